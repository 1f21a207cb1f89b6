"""How a joiner gets warm: what is rehearsed, how often, and that nothing of it stays."""

from collections.abc import Callable, Iterator

import pytest
import torch
from reduction import BATCH, FEATURES, Job, Worker
from torch import Tensor, nn

import elastane.worker.reducer
import elastane.worker.rehearsal
from elastane.model.errors import UnsupportedModelError
from elastane.model.topology import VrankRange
from elastane.worker.reducer import GradientReducer
from elastane.worker.rehearsal import MOST_STEPS, PATIENCE_S, rehearse
from elastane.worker.update import Update

ROWS = torch.ones(2, 3)


def build(
    loss: Callable[[nn.Module, Tensor], Tensor] | None = None,
) -> tuple[nn.Module, Update, GradientReducer]:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    update = Update(model, [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)], [], warm_up=loss)
    return model, update, GradientReducer(model)


def clock(*steps_s: float) -> Callable[[], float]:
    def tell() -> Iterator[float]:
        now_s = 0.0
        yield now_s
        for step_s in steps_s:
            now_s += step_s
            yield now_s

    return tell().__next__


@pytest.mark.parametrize(
    ("steps_s", "rehearsed"),
    [
        ((0.010, 0.005, 0.004, 0.0039), 4),  # the fourth is hardly faster than the third
        ((0.010, 0.005, 0.006), 3),  # slower: somebody else was at work
        ((0.200,), 1),  # it takes long: the others would wait for more of it
        ((0.060, 0.030, 0.020), 3),  # getting faster still, but the time is up
        (tuple(0.01 * 0.8**n for n in range(MOST_STEPS)), MOST_STEPS),
    ],
)
def test_steps_are_rehearsed_until_they_get_no_faster_or_the_time_is_up(
    steps_s: tuple[float, ...], rehearsed: int
) -> None:
    _, update, reducer = build()
    assert rehearse(update, reducer, ROWS, clock(*steps_s)) == rehearsed


@pytest.mark.parametrize("small", [True, False])
def test_the_way_of_the_gradients_is_rehearsed_too(small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not small:
        for module in (elastane.worker.reducer, elastane.worker.rehearsal):
            monkeypatch.setattr(module, "SMALL_BYTES", 0)
    told: list[object] = []

    class Watched(GradientReducer):
        def enter(self, ranges: tuple[VrankRange, ...], own: int, courier: object) -> None:
            told.extend(ranges)
            super().enter(ranges, own, None)

        def end_vrank(self) -> bool:
            last = super().end_vrank()
            told.append(last)
            return last

        def finish(self, payload: bytes = b"") -> list[bytes]:
            told.append([p.grad is None for p in model.parameters()])
            payloads = super().finish(payload)
            told.append([p.grad is None for p in model.parameters()])
            return payloads

    model, update, _ = build()
    without, with_gradient = [True] * 6, [False] * 6
    assert rehearse(update, Watched(model), ROWS, clock(0.01, PATIENCE_S)) == 2
    # Large gradients are not kept twice.
    step = (VrankRange(0, 2), False, True) if small else (VrankRange(0, 1), True)
    assert told == [*step, without, with_gradient] * 2
    assert [p.grad for p in model.parameters()] == [None] * 6


def test_a_rehearsal_leaves_no_trace_once_the_state_is_there() -> None:
    job = Job(virtual_workers=2)
    warm, cold = Worker(job), Worker(job)
    kept = {name: tensor.clone() for name, tensor in warm.model.state_dict().items()}
    optimizer = torch.optim.SGD(warm.model.parameters(), lr=0.5)
    update = Update(warm.model, [optimizer], [], warm_up=lambda model, batch: model(batch, 0).sum())
    rehearse(update, warm.reducer, torch.ones(BATCH, FEATURES))
    assert any(not torch.equal(kept[name], tensor) for name, tensor in warm.model.state_dict().items())
    warm.model.load_state_dict(kept)
    warm.reducer.buffers_changed()
    for worker in (warm, cold):
        worker.reducer.enter((VrankRange(0, 2),), 0, None)
        worker.train_step(VrankRange(0, 2))
    assert warm.digest() == cold.digest()


@pytest.mark.parametrize("fails_in_call", [1, 3])
def test_a_model_that_raises_leaves_a_reducer_that_can_begin(fails_in_call: int) -> None:
    calls = 0

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == fails_in_call:
            raise ValueError("two inputs, please")
        return model(batch).sum()

    model, update, reducer = build(loss)
    with pytest.raises(ValueError, match="two inputs, please"):
        rehearse(update, reducer, ROWS, clock(0.01, 0.01))
    assert [p.grad for p in model.parameters()] == [None] * 6
    reducer.enter((VrankRange(0, 1),), 0, None)
    reducer.begin_vrank(0, total_weight=1.0)
    model(ROWS).sum().backward()
    assert reducer.end_vrank() is True


def test_what_training_refuses_the_rehearsal_refuses() -> None:
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1))
    update = Update(model, [torch.optim.SGD(model.parameters(), lr=0.1)], [])
    with pytest.raises(UnsupportedModelError, match="sparse gradient"):
        rehearse(update, GradientReducer(model), torch.tensor([1, 2]))
