"""The training loop's inside, alone and with a session that refuses commits or moves the worker's seat."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import elastane
from elastane.core.data_order import DataOrder
from elastane.model.errors import ConfigError, ElastaneError, UnsupportedModelError
from elastane.model.topology import VrankRange
from elastane.observe.metrics import MetricsRecord
from elastane.worker.data import FeedSettings
from elastane.worker.digest import compute_digest
from elastane.worker.feeder import BatchFeeder
from elastane.worker.session import Seating, Training
from elastane.worker.state import CapturedState, JobState, copy_state
from elastane.worker.trainer import Trainer
from elastane.worker.update import Update

SAMPLES = [(torch.full((3,), float(i)), torch.tensor([float(i % 2)])) for i in range(24)]
N = 3


class StubSession:
    """Plays the rest of the job: may refuse the commit of some tries, and says what it was told."""

    joining = False

    def __init__(self, refuse: tuple[int, ...] = ()) -> None:
        self.refuse = refuse
        self.tries = 0
        self.held_s = 0.0
        self.records: list[MetricsRecord] = []
        self.compute: list[list[float]] = []
        self.boundaries: list[int] = []
        self.finished = False
        self._training: Training | None = None

    def begin(self, training: Training) -> None:
        self._training = training
        training.take_seat(Seating(generation=1, ranges=(VrankRange(0, N),), own=0, courier=None))

    def pass_boundary(self) -> None:
        assert self._training is not None
        self.boundaries.append(self._training.state.step)

    def hold_back(self, took_s: float) -> float:
        return self.held_s

    def begin_commit(self) -> bool:
        self.tries += 1
        return self.tries - 1 not in self.refuse

    def check_lease(self) -> None: ...

    def note_checkpoint(self, step: int) -> None: ...

    def end_commit(self, record: MetricsRecord, notes: object) -> None:
        self.records.append(record)

    def note_compute(self, seconds: Sequence[float]) -> None:
        self.compute.append(list(seconds))

    def abort_commit(self, why: str) -> None:
        raise AssertionError(why)

    def note_exchange(self, what: str, moved_bytes: int) -> None: ...

    def note_run(self, what: str) -> None: ...

    def finish(self) -> None:
        self.finished = True


def build(session: StubSession, batch_size: int = 3) -> tuple[Trainer, nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    trainer = Trainer(7, N, session, torch.device("cpu"))
    state = JobState(
        device=torch.device("cpu"), models=[model], optimizers=[optimizer], schedulers=[scheduler]
    )
    trainer.equip(model, state, Update(model, [optimizer], [scheduler]), overlap=True)
    order = DataOrder(samples=len(SAMPLES), virtual_workers=N, batch_size=batch_size)
    settings = FeedSettings(shuffle=True)
    trainer.course.feed_from(BatchFeeder(SAMPLES, order, 7, settings=settings), order)
    return trainer, model, optimizer, scheduler


def train(session: StubSession, epochs: int = 2, **limits: int) -> tuple[str, list[tuple[int, int]]]:
    """Train; return the digest of the state and the (epoch, step) of every batch the loop saw."""
    trainer, model, optimizer, scheduler = build(session)
    seen = []
    for epoch in trainer.epochs(epochs, **limits):
        for x, y in trainer.batches():
            seen.append((epoch, trainer.state.step))
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            trainer.log({"loss": loss.detach()})
    return compute_digest(trainer.state.capture()), seen


def test_the_loop_sees_each_virtual_workers_batch_and_a_step_is_committed_after_the_last() -> None:
    session = StubSession()
    _, seen = train(session)
    steps = [(epoch, 3 * epoch + step) for epoch in range(2) for step in range(3)]
    # 24 samples: the last step has 6 left, two for each virtual worker.
    assert seen == [place for place in steps for _ in range(N)]
    assert [(r.step, r.epoch, r.samples) for r in session.records] == [
        (step, epoch, 6 if step % 3 == 2 else 9) for epoch, step in steps
    ]
    assert session.boundaries == list(range(6))
    assert session.finished


@pytest.mark.parametrize("refuse", [(0,), (2, 3), (5,), (1, 4, 5, 7)])
def test_a_step_that_may_not_be_committed_is_repeated_to_the_same_bits(refuse: tuple[int, ...]) -> None:
    plain, session = StubSession(), StubSession(refuse)
    expected, seen = train(plain)
    digest, seen_with_repeats = train(session)
    assert digest == expected
    assert len(seen_with_repeats) == len(seen) + N * len(refuse)
    assert [r.values for r in session.records] == [r.values for r in plain.records]


def test_training_ends_after_the_steps_asked_for_wherever_that_is() -> None:
    session = StubSession()
    train(session, epochs=5, max_steps=5)
    assert [r.step for r in session.records] == list(range(5))
    assert session.finished


def test_an_epoch_left_by_break_after_a_whole_step_is_over() -> None:
    session = StubSession()
    trainer, model, optimizer, _ = build(session)
    for _ in trainer.epochs(2):
        for number, (x, _) in enumerate(trainer.batches()):
            model(x).sum().backward()
            optimizer.step()
            if number == 2 * N - 1:
                break
    assert [(r.step, r.epoch) for r in session.records] == [(0, 0), (1, 0), (2, 1), (3, 1)]


class Overtaken(StubSession):
    """Plays a worker that is a step behind when a peer is lost, and is sent the state of the next epoch."""

    def __init__(self, sent: CapturedState | None = None) -> None:
        super().__init__()
        self.sent = sent
        self.kept: CapturedState | None = None

    def pass_boundary(self) -> None:
        super().pass_boundary()
        assert self._training is not None
        step = self._training.state.step
        if step == 3 and self.kept is None:
            self.kept = copy_state(self._training.state.capture())
        if step == 2 and self.sent is not None:
            self._training.state.restore(self.sent)
            self.begin(self._training)


def test_what_a_script_does_between_epochs_is_not_done_twice_by_a_worker_that_was_sent_on() -> None:
    def train_by_epochs(session: StubSession) -> str:
        trainer, model, optimizer, scheduler = build(session)
        for _ in trainer.epochs(2):
            for x, y in trainer.batches():
                ((model(x) - y) ** 2).mean().backward()
                optimizer.step()
            scheduler.step()
            with torch.no_grad():
                model[0].bias.add_(1.0)
        return compute_digest(trainer.state.capture())

    ahead = Overtaken()
    expected = train_by_epochs(ahead)
    behind = Overtaken(sent=ahead.kept)
    assert train_by_epochs(behind) == expected
    assert [record.step for record in behind.records] == [0, 1, 3, 4, 5]


def test_an_epoch_left_in_the_middle_of_a_step_is_an_error_that_says_what_to_do() -> None:
    trainer, model, optimizer, _ = build(StubSession())

    def leave_early() -> None:
        for _ in trainer.epochs(1):
            for x, _ in trainer.batches():
                model(x).sum().backward()
                optimizer.step()
                break

    with pytest.raises(ElastaneError, match=r"middle of step 0.*max_steps"):
        leave_early()


def test_a_batch_without_an_optimizer_step_is_an_error() -> None:
    trainer, *_ = build(StubSession())

    def look_only() -> None:
        for _ in trainer.epochs(1):
            list(trainer.batches())

    with pytest.raises(UnsupportedModelError, match=r"optimizer.step\(\) was not called .* virtual worker 0"):
        look_only()


def test_the_body_of_a_step_sees_the_state_before_it_whichever_virtual_worker_runs() -> None:
    trainer, model, optimizer, scheduler = build(StubSession())
    seen: dict[int, set[tuple[float, float]]] = {}
    for _ in trainer.epochs(1):
        for x, _ in trainer.batches():
            model(x).sum().backward()
            optimizer.step()
            scheduler.step()
            weight = model[0].weight.detach().sum().item()
            seen.setdefault(trainer.state.step, set()).add((weight, scheduler.get_last_lr()[0]))
    assert [len(values) for values in seen.values()] == [1, 1, 1]
    assert len(set.union(*seen.values())) == 3


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda trainer: next(trainer.batches()), "outside job.epochs"),
        (lambda trainer: (list(trainer.epochs(0)), next(trainer.epochs(1))), "called twice"),
        (
            lambda trainer: trainer.course.feed_from(trainer.course.feeder, trainer.course.order),
            "job.loader was called twice",
        ),
    ],
)
def test_misuse_of_the_loop_is_told_in_words(misuse: Callable[[Trainer], object], message: str) -> None:
    trainer, *_ = build(StubSession())
    with pytest.raises(ConfigError, match=message):
        misuse(trainer)


def test_without_prepare_or_loader_the_loop_says_what_is_missing() -> None:
    trainer = Trainer(0, 1, StubSession(), torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"job\.loader"):
        next(trainer.epochs(1))
    with pytest.raises(ConfigError, match=r"job\.prepare"):
        _ = trainer.state


def test_hooks_run_once_per_step_after_the_update() -> None:
    session = StubSession()
    job_like, model, optimizer, _ = build(session)
    averages: list[float] = []
    assert job_like._update is not None
    job_like._update.commit_hooks.append(lambda: averages.append(model[0].weight.sum().item()))
    for _ in job_like.epochs(1):
        for x, _ in job_like.batches():
            model(x).sum().backward()
            optimizer.step()
    assert len(averages) == 3


def test_the_package_exports_what_a_script_needs() -> None:
    assert sorted(elastane.__all__) == ["CappedLocal", "FixedGlobal", "Job", "Left", "shards"]
    with pytest.raises(AttributeError, match="no attribute 'Jobb'"):
        _ = elastane.Jobb


def test_own_compute_time_is_told_after_each_commit() -> None:
    session = StubSession()
    train(session, epochs=1)
    assert [len(seconds) for seconds in session.compute] == [1, 1, 1]
    assert all(seconds[0] > 0 for seconds in session.compute)


def test_for_what_a_drill_holds_a_worker_back_counts_as_its_computing() -> None:
    session = StubSession()
    session.held_s = 100.0  # said, not slept
    train(session, epochs=1)
    # N virtual workers, each held back as long; more than the machine may take for the rest.
    assert all(100.0 < seconds[0] < 200.0 for seconds in session.compute)
