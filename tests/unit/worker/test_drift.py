import pytest
import torch

from elastane.worker.drift import (
    CHECK_AFTER_SWITCH_STEPS,
    combine_checksums,
    compute_checksums,
    first_difference,
    is_check_due,
)
from elastane.worker.state import CapturedState


def state(**tensors: torch.Tensor) -> CapturedState:
    return CapturedState(step=1, epoch=0, device_type="cpu", skeleton={"lr": 0.1}, tensors=tensors)


def test_the_state_is_compared_a_little_after_a_switch_and_then_regularly() -> None:
    due = [step for step in range(2000) if is_check_due(step, switch_step=100, every=500)]
    assert due == [100 + CHECK_AFTER_SWITCH_STEPS, 500, 1000, 1500]


def test_a_short_interval_is_kept_after_a_switch_too() -> None:
    assert [step for step in range(30) if is_check_due(step, switch_step=7, every=10)] == [10, 17, 20]


def test_the_check_can_be_switched_off() -> None:
    assert not any(is_check_due(step, switch_step=0, every=0) for step in range(2000))


@pytest.mark.parametrize(
    "kind", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
def test_one_changed_element_of_any_type_is_found_and_named(kind: torch.dtype) -> None:
    own = state(a=torch.ones(3), b=torch.ones(7, dtype=kind), c=torch.ones(2))
    changed = torch.ones(7, dtype=kind)
    changed[6] = 0
    other = state(a=torch.ones(3), b=changed, c=torch.zeros(2))
    assert first_difference(compute_checksums(own), compute_checksums(other)) == "b"
    assert combine_checksums(compute_checksums(own)) != combine_checksums(compute_checksums(other))


def test_equal_states_have_equal_checksums_whatever_their_layout() -> None:
    tensor = torch.arange(12.0).reshape(3, 4)
    turned = tensor.t().contiguous().t()
    assert compute_checksums(state(a=tensor)) == compute_checksums(state(a=turned))
    assert first_difference(compute_checksums(state(a=tensor)), compute_checksums(state(a=turned))) == ""


def test_a_plain_value_that_differs_is_found() -> None:
    own = compute_checksums(state())
    other = CapturedState(step=1, epoch=0, device_type="cpu", skeleton={"lr": 0.2}, tensors={})
    assert first_difference(own, compute_checksums(other)) == "plain values"


def test_a_missing_tensor_is_a_difference() -> None:
    one, two = state(a=torch.ones(1)), state(a=torch.ones(1), b=torch.ones(1))
    assert first_difference(compute_checksums(one), compute_checksums(two)) == "the number of tensors"
