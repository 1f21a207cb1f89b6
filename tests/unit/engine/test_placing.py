"""Packing of jobs onto pools when a policy names only a number."""

import numpy as np
import pytest

from elastane.sim.placing import place


@pytest.mark.parametrize(
    ("own", "free", "devices", "placed"),
    [
        ([0, 0, 0], [8, 3, 4], 3, [0, 3, 0]),  # best fit
        ([0, 0, 0], [8, 3, 4], 4, [0, 0, 4]),
        ([0, 0, 0], [2, 3, 4], 7, [0, 3, 4]),  # the emptiest first, then the tightest that holds the rest
        ([2, 0, 0], [1, 8, 0], 4, [3, 1, 0]),  # where it already is
        ([4, 1, 3], [0, 0, 0], 5, [4, 0, 1]),  # shrinks from where it has fewest
        ([4, 1, 0], [0, 0, 0], 5, [4, 1, 0]),
        ([4, 1, 0], [0, 0, 0], 0, [0, 0, 0]),
    ],
)
def test_placing(own: list[int], free: list[int], devices: int, placed: list[int]) -> None:
    before = (np.array(own), np.array(free))
    assert place(*before, devices).tolist() == placed
    assert (before[0].tolist(), before[1].tolist()) == (own, free)
