"""A session in which workers come, go and are lost, while one process plays all of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from elastane.model.topology import VrankRange
from elastane.observe.metrics import MetricsRecord
from elastane.worker.session import Seating, Training


class ChangingSession:
    """Plays a job whose number of workers changes: all of them sit in this process.

    `plan` says how many there are from a step on. `losses` says how many are left when that try to commit
    fails, as after the death of the others in the middle of a step.
    """

    joining = False

    def __init__(self, plan: Mapping[int, int], losses: Mapping[int, int] | None = None) -> None:
        self.plan = {0: 1, **plan}
        self.losses = dict(losses or {})
        self.tries = 0
        self.generation = 0
        self.due: int | None = None
        self.records: list[MetricsRecord] = []
        self.restores: dict[int, Any] = {}
        self._training: Training | None = None

    def begin(self, training: Training) -> None:
        self._training = training
        self.seat(self.plan.pop(0))

    def pass_boundary(self) -> None:
        assert self._training is not None
        step = self._training.state.step
        workers = self.due if self.due is not None else self.plan.pop(step, None)
        if workers is not None:
            self.due = None
            self.seat(workers)

    def seat(self, workers: int) -> None:
        assert self._training is not None
        self.generation += 1
        self._training.take_seat(
            Seating(generation=self.generation, ranges=(VrankRange(0, workers),), own=0, courier=None)
        )

    def hold_back(self, took_s: float) -> float:
        return 0.0

    def begin_commit(self) -> bool:
        self.tries += 1
        self.due = self.losses.get(self.tries - 1)
        return self.due is None

    def check_lease(self) -> None: ...

    def note_checkpoint(self, step: int) -> None: ...

    def end_commit(self, record: MetricsRecord, notes: object) -> None:
        self.records.append(record)

    def note_compute(self, seconds: Sequence[float]) -> None: ...

    def abort_commit(self, why: str) -> None:
        raise AssertionError(why)

    def note_exchange(self, what: str, moved_bytes: int) -> None: ...

    def note_run(self, what: str) -> None: ...

    def finish(self) -> None: ...
