import pytest
import torch

from elastane.model.errors import ConfigError, JobStateError
from elastane.worker.data import FeedSettings
from elastane.worker.evaluating import combine_results, evaluate_together
from elastane.worker.evaluation import compute_eval_shares, pack_results, unpack_results

SAMPLES = list(range(23))


class Members:
    """Plays all members of a job in one thread: `others` answers for the rest, and may lose one."""

    seed = 0

    def __init__(self, workers: int, own: int, *, losses: int = 0) -> None:
        self.workers = workers
        self.own = own
        self.losses = losses
        self.rounds = 0

    def deal(self, batches: int) -> range:
        return compute_eval_shares(batches, self.workers)[self.own]

    def gather(self, payload: bytes) -> list[bytes] | None:
        self.rounds += 1
        if self.losses:
            self.losses -= 1
            self.workers, self.own = self.workers - 1, 0
            return None
        return self.answers(payload)

    def answers(self, payload: bytes) -> list[bytes]:
        return [payload]


class Complete(Members):
    """The others have done their whole share of the first deal."""

    def answers(self, payload: bytes) -> list[bytes]:
        missing = [n for n in range(6) if n not in dict(unpack_results(payload))]
        batches = [torch.tensor(SAMPLES[4 * n : 4 * n + 4]) for n in missing]
        return [payload, pack_results(missing, [double(batch) for batch in batches])]


def double(batch: torch.Tensor) -> torch.Tensor:
    return batch * 2


def test_results_are_joined_in_sample_order_whoever_evaluated_what() -> None:
    for own in range(3):
        members = Complete(3, own)
        joined = evaluate_together(members, double, SAMPLES, 4, FeedSettings())
        assert joined.tolist() == [2 * s for s in SAMPLES]
        assert members.rounds == 1


def test_a_lost_workers_share_is_done_by_the_others() -> None:
    members = Members(2, 1, losses=1)
    joined = evaluate_together(members, double, SAMPLES, 4, FeedSettings())
    assert joined.tolist() == [2 * s for s in SAMPLES]
    assert members.rounds == 2


def test_combining_needs_one_result_for_each_batch() -> None:
    with pytest.raises(ConfigError, match="3 results, but the loader gave 2 batches"):
        combine_results(Members(1, 0), 2, {0: 1.0, 1: 2.0}, 3)


def test_combined_results_come_in_batch_order() -> None:
    own = {1: torch.tensor([3.0]), 0: torch.tensor([1.0, 2.0])}
    assert combine_results(Members(1, 0), 2, own, 2).tolist() == [1.0, 2.0, 3.0]


def test_combining_after_a_loss_says_what_is_missing_and_what_to_use_instead() -> None:
    with pytest.raises(JobStateError, match=r"\[1\]; use job.evaluate"):
        combine_results(Members(2, 0, losses=1), 2, {0: torch.tensor([1.0])}, 1)
