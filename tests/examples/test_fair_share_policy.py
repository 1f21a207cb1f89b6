"""The worked example does what its page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastane.sim.request import SimRequest, compare

EXAMPLE = Path(__file__).parents[2] / "examples" / "fair_share_policy.py"


def test_fair_share_halves_the_mean_of_fifo_skip_on_the_sample() -> None:
    request = SimRequest(policies=("fifo-skip", f"{EXAMPLE}:FairShare", "tiresias"))
    hours = {run.policy: run.result.metrics.jct_mean_s / 3600 for run in compare(request).runs}
    # The figures in docs/write-your-own-policy.md.
    assert hours == {
        "fifo-skip": pytest.approx(14.6, abs=0.05),
        "fair-share": pytest.approx(7.2, abs=0.05),
        "tiresias": pytest.approx(9.6, abs=0.05),
    }
