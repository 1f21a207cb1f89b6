"""Local gradients are added along the tree as they come, with few copies and known zeros."""

import math

import pytest
import torch
from torch import Tensor

from elastane.core.placement import plan_even
from elastane.core.tree import canonical_segments
from elastane.model.topology import VrankRange
from elastane.worker.fold import CHUNK_ELEMENTS, GradientFold, Push, add_and_divide, divide, plan_pushes


def test_eight_virtual_workers_fold_like_a_binary_counter() -> None:
    merges = [push.merges for push in plan_pushes(VrankRange(0, 8), 8)]
    assert merges == [0, 1, 0, 2, 0, 1, 0, 3]
    assert [push.segment for push in plan_pushes(VrankRange(0, 8), 8)] == [None] * 7 + [0]


def test_an_unaligned_range_completes_its_segments_one_by_one() -> None:
    assert plan_pushes(VrankRange(3, 9), 16) == (
        Push(merges=0, segment=0),
        Push(merges=0, segment=None),
        Push(merges=1, segment=None),
        Push(merges=0, segment=None),
        Push(merges=2, segment=1),
        Push(merges=0, segment=2),
    )


@pytest.mark.parametrize("virtual_workers", range(1, 20))
def test_every_range_completes_exactly_its_canonical_segments_in_order(virtual_workers: int) -> None:
    for start in range(virtual_workers):
        for stop in range(start + 1, virtual_workers + 1):
            pushes = plan_pushes(VrankRange(start, stop), virtual_workers)
            completed = [push.segment for push in pushes if push.segment is not None]
            assert completed == list(range(len(canonical_segments(VrankRange(start, stop), virtual_workers))))
            assert sum(push.merges for push in pushes) == stop - start - len(completed)


@pytest.mark.parametrize(("most_virtual_workers", "more"), [(29, 0), (61, 1)])
def test_planned_placements_hold_at_most_log_v_plus_one_copies_beside_the_plain_gradient(
    most_virtual_workers: int, more: int
) -> None:
    # From N = 30 on some placements with 12 and more virtual workers per worker take one copy more: the
    # flat tensors of all segments exist from the start, while the first segment is still being folded.
    for virtual_workers in range(1, most_virtual_workers + 1):
        for workers in range(1, virtual_workers + 1):
            for vranks in plan_even(virtual_workers, workers):
                copies = count_copies(vranks, virtual_workers, shared=workers > 1)
                extra = math.ceil(math.log2(vranks.width)) + 1
                assert copies <= 1 + extra + more, (virtual_workers, vranks)


def count_copies(vranks: VrankRange, virtual_workers: int, *, shared: bool) -> int:
    """Fold one number, as hooks do; return the most gradient copies at any time, targets included.

    A new gradient exists for one parameter at a time: the hook adds it to an older one, or it is pending.
    """
    pushes = plan_pushes(vranks, virtual_workers)
    segments = len([push for push in pushes if push.segment is not None])
    targets = [[torch.zeros(1)] for _ in range(segments)] if shared else None
    fold = GradientFold(1, targets)
    most = 1
    for push in pushes:
        fold.start(push, 1.0)
        fold.push_one(0, torch.ones(1))
        fold.end()
        most = max(most, fold.pending + (segments if shared else 0))
    assert fold.pending == 0
    total = sum(float(row[0]) for row in targets) if targets is not None else float(fold.results[0] or 0)
    assert total == vranks.width
    return most


ONE = torch.tensor([1.0, -0.0])
NOTHING = None


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("gradients", "expected"),
    [
        ([ONE, ONE], [2.0, -0.0]),
        ([ONE, NOTHING], [1.0, 0.0]),  # adding the zeros of an unused parameter turns -0.0 into 0.0
        ([NOTHING, ONE], [1.0, 0.0]),
        ([NOTHING, NOTHING], None),
    ],
)
def test_a_missing_gradient_counts_as_zeros(
    gradients: list[Tensor | None], expected: list[float] | None, shared: bool, at_once: bool
) -> None:
    target = torch.full((2,), 9.0)
    fold = GradientFold(1, [[target]] if shared else None)
    for push, gradient in zip(plan_pushes(VrankRange(0, 2), 4 if shared else 2), gradients, strict=True):
        fold.start(push, 1.0)
        mine = None if gradient is None else gradient.clone()
        if at_once:
            fold.push_all([mine])
        else:
            fold.push_one(0, mine)
        fold.end()
    total = target if shared else fold.results[0]
    assert fold.used == [expected is not None]
    if expected is None:
        assert total is None or torch.equal(total, torch.zeros(2))
        return
    assert total is not None
    assert torch.equal(total, torch.tensor(expected))
    assert torch.equal(torch.signbit(total), torch.signbit(torch.tensor(expected)))


def test_a_lone_gradient_is_passed_on_untouched() -> None:
    fold = GradientFold(1, None)
    gradient = ONE.clone()
    fold.start(Push(merges=0, segment=0), 1.0)
    fold.push_one(0, gradient)
    assert fold.results[0] is gradient


@pytest.mark.parametrize("divisor", [1.0, 2.0, 8.0, 0.25, 3.0, 2.875])
def test_dividing_gives_the_bits_of_a_division(divisor: float) -> None:
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(0)) * 1e-38  # subnormals too
    expected = values / divisor
    divide(values, divisor)
    assert torch.equal(values, expected)


@pytest.mark.parametrize("length", [0, 1, CHUNK_ELEMENTS, 2 * CHUNK_ELEMENTS + 3])
def test_adding_in_chunks_gives_the_bits_of_adding_at_once(length: int) -> None:
    generator = torch.Generator().manual_seed(1)
    values = [torch.randn(length, generator=generator) for _ in range(4)]
    expected = ((values[0] + values[1]) + (values[2] + values[3])) / 3.0
    add_and_divide(values, ((0, 1), (2, 3), (0, 2)), 3.0, values[3])
    assert torch.equal(values[3], expected)


def test_strided_gradients_are_added_and_divided_where_they_lie() -> None:
    fold = GradientFold(3, None)
    shapes = [(2, 3, 4, 5), (4, 6), (4, 6)]
    older = [torch.randn(shape) for shape in shapes]
    newer = [torch.randn(shape) for shape in shapes]
    older[0] = older[0].to(memory_format=torch.channels_last)
    newer[0] = newer[0].to(memory_format=torch.channels_last)
    older[1] = older[1].t().contiguous().t()
    expected = [(a + b) / 3.0 for a, b in zip(older, newer, strict=True)]
    for push, gradients in zip(plan_pushes(VrankRange(0, 2), 2), (older, newer), strict=True):
        fold.start(push, 3.0)
        for index, gradient in enumerate(gradients):
            fold.push_one(index, gradient)
        fold.end()
    for result, right in zip(fold.results, expected, strict=True):
        assert result is not None
        assert torch.equal(result, right)
