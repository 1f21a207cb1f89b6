"""What a job's log says about a change: the stop, the progress lost, the phases of a join."""

import pytest
from benchmarks.analysis import (
    Commit,
    Stop,
    compute_lost_s,
    compute_periods,
    compute_stop,
    count_steps,
    find_first_commit,
)


def commits(*stamps_s: float, switch: int, first: int = 0) -> list[Commit]:
    """Return commits of consecutive steps; from step `switch` on there are two workers."""
    return [
        Commit(step=first + i, at_s=at_s, workers=1 if first + i < switch else 2)
        for i, at_s in enumerate(stamps_s)
    ]


# One worker takes 4 s a step, two take 3 s; the request comes at 9 s and slows the step then running by 1 s;
# the switch before step 4 stops the job for 2 s.
GROWN = commits(0.0, 4.0, 8.0, 13.0, 18.0, 21.0, 24.0, switch=4)


def test_periods_are_the_times_between_commits() -> None:
    assert compute_periods(GROWN) == [4.0, 4.0, 5.0, 5.0, 3.0, 3.0]


def test_the_stop_is_the_gap_less_the_step_within_it() -> None:
    stop = compute_stop(GROWN, 4, 9.0, window=2)

    assert stop == Stop(gap_s=5.0, before_s=4.0, after_s=3.0)
    assert stop.stop_s == 2.0


def test_a_stop_in_steps_is_told_by_the_shorter_step() -> None:
    assert Stop(gap_s=5.0, before_s=4.0, after_s=3.0).steps == pytest.approx(2 / 3)
    assert Stop(gap_s=5.0, before_s=2.0, after_s=4.0).steps == 0.5


def test_steps_disturbed_by_a_worker_that_prepares_itself_do_not_tell_the_step_time() -> None:
    assert compute_stop(GROWN, 4, 9.0, window=9).before_s == 4.0


def test_the_steps_of_a_log_may_begin_anywhere() -> None:
    later = commits(*(c.at_s for c in GROWN), switch=104, first=100)

    assert compute_stop(later, 104, 9.0, window=2) == compute_stop(GROWN, 4, 9.0, window=2)


@pytest.mark.parametrize(("switch", "requested_at_s"), [(0, 9.0), (6, 9.0), (4, 3.0)])
def test_a_log_that_does_not_reach_far_enough_is_refused(switch: int, requested_at_s: float) -> None:
    with pytest.raises(ValueError, match=f"too few steps around step {switch}"):
        compute_stop(GROWN, switch, requested_at_s, window=2)


def test_the_progress_lost_holds_the_stop_and_the_slower_steps_before_it() -> None:
    stop = compute_stop(GROWN, 4, 9.0, window=2)

    assert compute_lost_s(GROWN, 4, 9.0, stop) == 3.0


def test_the_first_commit_with_the_new_worker_is_found_after_the_request_only() -> None:
    before = [Commit(step=0, at_s=1.0, workers=2), Commit(step=1, at_s=2.0, workers=1)]

    assert find_first_commit([*before, Commit(step=2, at_s=5.0, workers=2)], 2, 3.0).step == 2
    with pytest.raises(ValueError, match="no step was committed by 2 workers"):
        find_first_commit(before, 2, 3.0)


def test_steps_between_two_moments_are_counted_with_their_fractions() -> None:
    assert count_steps(GROWN, 2.0, 21.0) == 4.5


def test_steps_beyond_the_log_are_not_counted() -> None:
    with pytest.raises(ValueError, match=r"no step was under way at 25\.000"):
        count_steps(GROWN, 2.0, 25.0)
