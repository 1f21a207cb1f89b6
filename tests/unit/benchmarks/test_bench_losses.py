"""What a log of steps says about the loss of a worker, under systems that restart and systems that do not."""

from benchmarks.analysis import Commit
from benchmarks.deaths import make_plan
from benchmarks.stock_losses import Loss, compute_loss
from benchmarks.workloads import DIGITS, MLP25M


def commits(*lines: tuple[int, float, int]) -> list[Commit]:
    return [Commit(step=step, at_s=at_s, workers=workers) for step, at_s, workers in lines]


BEFORE = ((18, 1.0, 2), (19, 2.0, 2), (20, 3.0, 2), (21, 4.0, 2))


def test_a_restart_shows_by_going_back_to_the_checkpoint() -> None:
    log = commits(*BEFORE, (22, 4.6, 2), (20, 9.5, 2), (21, 10.0, 2))
    assert compute_loss(log, 4.5, workers_after=None, give_up_s=60.0) == Loss(
        wait_s=5.0, went_on=True, steps_again=3
    )


def test_a_job_that_never_goes_on_was_given_up() -> None:
    log = commits(*BEFORE, (22, 4.6, 2))
    assert compute_loss(log, 4.5, workers_after=None, give_up_s=60.0) == Loss(
        wait_s=60.0, went_on=False, steps_again=0
    )


def test_others_that_go_on_show_by_their_number() -> None:
    log = commits(*BEFORE, (22, 4.6, 2), (23, 9.5, 1))
    assert compute_loss(log, 4.5, workers_after=1, give_up_s=60.0) == Loss(
        wait_s=5.0, went_on=True, steps_again=0
    )


def test_jobs_have_steps_and_virtual_workers_for_all_drills() -> None:
    assert make_plan(DIGITS, 2, 3).arguments == ("--epochs", "200", "--virtual-workers", "4")
    assert make_plan(MLP25M, 3, 2).arguments == ("--steps", "50", "--virtual-workers", "3")
