"""The worked example does what its page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastane.sim.request import SimRequest, prepare_request, read_request_trace, run_request

EXAMPLE = Path(__file__).parents[2] / "examples" / "fair_share_policy.py"


def test_fair_share_halves_the_mean_of_fifo_skip_on_the_sample() -> None:
    request = SimRequest(policies=("fifo-skip", f"{EXAMPLE}:FairShare", "tiresias"))
    trace = read_request_trace(request)
    comparison = run_request(request, trace, prepare_request(request, trace), lambda number, share: None)
    hours = {run.policy: run.result.metrics.jct_mean_s / 3600 for run in comparison.runs}
    # The figures in docs/write-your-own-policy.md.
    assert hours == {
        "fifo-skip": pytest.approx(14.6, abs=0.05),
        "fair-share": pytest.approx(7.2, abs=0.05),
        "tiresias": pytest.approx(9.6, abs=0.05),
    }
