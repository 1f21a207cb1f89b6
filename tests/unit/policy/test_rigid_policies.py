"""Policies that keep jobs at one size: order of arrival, shortest first, backfill, static."""

import math

import numpy as np
import pytest
from policy_records import ask, make_record, make_view, sizes

from elastane.model.cluster import KEEP
from elastane.model.errors import ConfigError, PlanError
from elastane.policy.backfill import FifoBackfill
from elastane.policy.fifo import Fifo, FifoSkip
from elastane.policy.fill import compute_order, select_skipping, select_strict
from elastane.policy.srtf import Srsf, Srtf
from elastane.policy.static import Static


def test_a_strict_walk_ends_at_the_first_misfit_and_a_skipping_one_goes_past_it() -> None:
    need = np.array([4, 2, 5, 1, 3, 1])
    assert select_strict(need, 8) == 2
    assert select_skipping(need, 8).tolist() == [0, 1, 3, 5]
    assert select_skipping(need, 100).tolist() == [0, 1, 2, 3, 4, 5]
    assert select_skipping(need, 0).tolist() == []


def test_a_skipping_walk_agrees_with_one_step_for_each_job() -> None:
    generator = np.random.default_rng(5)
    for _ in range(300):
        need = generator.integers(1, 9, size=generator.integers(0, 30))
        room = left = int(generator.integers(0, 40))
        taken = []
        for place, width in enumerate(need.tolist()):
            if width <= left:
                taken.append(place)
                left -= width
        assert select_skipping(need, room).tolist() == taken


def test_equal_keys_keep_their_order() -> None:
    keys = np.array([2.0, 1.0, 2.0, 1.0] * 50)
    assert compute_order(keys).tolist() == [*range(1, 200, 2), *range(0, 200, 2)]


@pytest.mark.parametrize(
    ("policy", "started"), [(Fifo(), {1: 2}), (FifoSkip(), {1: 2, 3: 1})], ids=["fifo", "fifo-skip"]
)
def test_a_misfit_blocks_fifo_and_not_fifo_skip(policy: Fifo, started: dict[int, int]) -> None:
    records = [
        make_record("running", 4, requested=4),
        make_record("first", requested=2),
        make_record("wide", requested=4),
        make_record("narrow", requested=1),
    ]
    assert sizes(ask(policy, records, 8)) == started


@pytest.mark.parametrize("policy", [Fifo(), FifoSkip(), FifoBackfill(), Static()])
def test_nothing_is_done_when_nothing_waits_or_nothing_is_free(policy: Fifo) -> None:
    assert ask(policy, [make_record("a", 8, requested=8), make_record("b")], 8) == KEEP
    assert ask(policy, [make_record("a", 4, requested=4)], 8) == KEEP


def test_backfill_does_not_delay_the_head() -> None:
    # The head can start in 50 s on the 4 devices that a frees; one of 8 is spare then (8 - 7).
    records = [
        make_record("a", 4, requested=4, left_s=50.0),
        make_record("b", 1, requested=1, left_s=500.0),
        make_record("head", requested=6),
        make_record("too-long", requested=2, left_s=60.0),
        make_record("short", requested=2, left_s=50.0),
        make_record("narrow", requested=1, left_s=500.0),
        make_record("second-narrow", requested=1, left_s=500.0),
    ]
    assert sizes(ask(FifoBackfill(), records, 8)) == {4: 2, 5: 1}


def test_backfill_uses_a_spare_device_once() -> None:
    # At 50 the head takes 7 of 8, so one long job may stay beside it, not two, although both fit now.
    records = [
        make_record("a", 4, requested=4, left_s=50.0),
        make_record("head", requested=7),
        make_record("long", requested=1, left_s=500.0),
        make_record("another", requested=1, left_s=500.0),
    ]
    assert sizes(ask(FifoBackfill(), records, 8)) == {2: 1}


def test_backfill_starts_the_front_of_the_queue_like_fifo() -> None:
    records = [make_record("a", requested=3), make_record("b", requested=5), make_record("c", requested=1)]
    assert sizes(ask(FifoBackfill(), records, 8)) == {0: 3, 1: 5}


def test_static_gives_every_job_the_same_size_within_its_limits() -> None:
    records = [
        make_record("a", requested=1),
        make_record("b", requested=6, min_devices=5),
        make_record("rigid", requested=2, elasticity="rigid"),
        make_record("small", requested=1, max_devices=2),
    ]
    assert sizes(ask(Static(parallelism=4), records, 16)) == {0: 4, 1: 5, 2: 2, 3: 2}
    assert sizes(ask(Static(), records, 16)) == {0: 1, 1: 6, 2: 2, 3: 1}
    with pytest.raises(ConfigError, match="parallelism -1"):
        Static(parallelism=-1)


def test_srtf_preempts_the_longer_and_srsf_the_larger_job() -> None:
    records = [
        make_record("running", 8, requested=8, left_s=60.0),
        make_record("shorter", requested=4, left_s=50.0),
        make_record("narrow", requested=1, left_s=300.0),
    ]
    assert sizes(ask(Srtf(), records, 8)) == {0: 0, 1: 4, 2: 1}
    # Services: 480, 200 and 300.
    assert sizes(ask(Srsf(), records, 8)) == {0: 0, 1: 4, 2: 1}
    assert sizes(ask(Srsf(), [records[0], make_record("long", requested=1, left_s=500.0)], 8)) == {}


def test_srsf_serves_the_narrower_of_equals_first() -> None:
    records = [make_record("wide", requested=4, left_s=50.0), make_record("thin", requested=1, left_s=200.0)]
    assert [change.job for change in ask(Srsf(), records, 4).changes] == [1]


def test_clairvoyance_must_be_declared() -> None:
    view = make_view([make_record("a")], 8)
    with pytest.raises(PlanError, match="declare themselves clairvoyant"):
        view.remaining_s(view.live)


def test_a_plan_that_waits_for_events_says_so() -> None:
    assert ask(Srtf(), [make_record("a")], 8).ask_again_s == math.inf
