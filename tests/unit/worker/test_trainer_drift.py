"""The drift check in the training loop: two trainers, in threads, that exchange over a fake link."""

import threading
from collections.abc import Sequence

import torch
from fake_link import FakeNetwork
from torch import nn

from elastane.core.data_order import DataOrder
from elastane.model.errors import DeterminismError
from elastane.model.topology import VrankRange
from elastane.observe.metrics import MetricsRecord
from elastane.worker.courier import Courier
from elastane.worker.data import FeedSettings
from elastane.worker.feeder import BatchFeeder
from elastane.worker.session import Seating, Training
from elastane.worker.state import JobState
from elastane.worker.trainer import Trainer
from elastane.worker.update import Update

SAMPLES = [(torch.full((3,), float(i)), torch.tensor([float(i % 2)])) for i in range(16)]
GATHERING = "in what the others' states differ"
DEADLINE_S = 30.0


class SeatedSession:
    """Seats its trainer beside one other, and breaks the link when told to, at the first gathering."""

    joining = False

    def __init__(self, own: int, courier: Courier, *, breaks: bool) -> None:
        self.waits: list[str] = []
        self.aborted: list[str] = []
        self._own = own
        self._courier = courier
        self._breaks = breaks

    def begin(self, training: Training) -> None:
        ranges = (VrankRange(0, 1), VrankRange(1, 2))
        training.take_seat(Seating(generation=1, ranges=ranges, own=self._own, courier=self._courier))

    def pass_boundary(self) -> None: ...

    def hold_back(self, took_s: float) -> float:
        return 0.0

    def begin_commit(self) -> bool:
        return True

    def check_lease(self) -> None: ...

    def note_checkpoint(self, step: int) -> None: ...

    def end_commit(self, record: MetricsRecord, notes: object) -> None: ...

    def note_compute(self, seconds: Sequence[float]) -> None: ...

    def abort_commit(self, why: str) -> None:
        self.aborted.append(why)

    def note_exchange(self, what: str, moved_bytes: int) -> None:
        self.waits.append(what)
        if self._breaks and what == GATHERING:
            self._courier.abandon("a peer was lost")

    def note_run(self, what: str) -> None: ...

    def finish(self) -> None: ...


class Worker:
    """One of two members of a job of two virtual workers."""

    def __init__(self, own: int, courier: Courier, *, bias: float, breaks: bool) -> None:
        torch.manual_seed(0)
        self.session = SeatedSession(own, courier, breaks=breaks)
        self.trainer = Trainer(7, 2, self.session, torch.device("cpu"))
        self.trainer.check_every = 2
        self.error: Exception | None = None
        self._model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        with torch.no_grad():
            self._model[2].bias += bias
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.1)
        state = JobState(device=torch.device("cpu"), models=[self._model], optimizers=[self._optimizer])
        self.trainer.equip(self._model, state, Update(self._model, [self._optimizer], []), overlap=True)
        order = DataOrder(samples=len(SAMPLES), virtual_workers=2, batch_size=2)
        self.trainer.course.feed_from(
            BatchFeeder(SAMPLES, order, 7, settings=FeedSettings(shuffle=True)), order
        )

    def train(self) -> None:
        try:
            for _ in self.trainer.epochs(2):
                for x, y in self.trainer.batches():
                    ((self._model(x) - y) ** 2).mean().backward()
                    self._optimizer.step()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error


def train_two(*, bias: float = 0.0, breaks: bool = False) -> list[Worker]:
    """Train with two members, whose models differ by `bias`; `breaks`: the link does when they gather."""
    couriers = [Courier(link) for link in FakeNetwork(2).links()]
    workers = [Worker(own, couriers[own], bias=own * bias, breaks=breaks) for own in range(2)]
    threads = [threading.Thread(target=worker.train, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    for courier in couriers:
        courier.close()
        assert courier.join(DEADLINE_S)
    return workers


def test_buffers_that_each_workers_own_batches_have_moved_are_no_drift() -> None:
    workers = train_two()
    assert [worker.error for worker in workers] == [None, None]
    assert [worker.trainer.state.step for worker in workers] == [8, 8]
    assert not any(GATHERING in worker.session.waits for worker in workers)


def test_workers_that_differ_are_told_from_which_tensor_on() -> None:
    told = "before step 2 the states of members 0 and 1 differ, first in 'model/parameters/2.bias'"
    assert [str(worker.error).partition(";")[0] for worker in train_two(bias=0.5)] == [told, told]


def test_a_step_before_which_workers_differed_is_not_applied_when_one_of_them_is_lost() -> None:
    for worker in train_two(bias=0.5, breaks=True):
        assert isinstance(worker.error, DeterminismError)
        assert "before step 2 the states of the members differ, and one was lost" in str(worker.error)
        assert worker.session.aborted != []
        assert worker.trainer.state.step == 2
