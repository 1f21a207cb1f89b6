"""A worker moves its state to itself before it takes part; nothing may come of it."""

import pytest
import torch
from torch import nn

from elastane.worker.digest import compute_digests
from elastane.worker.state import JobState
from elastane.worker.transfer import rehearse_transfer


@pytest.mark.parametrize("steps", [0, 2])
def test_a_rehearsed_transfer_changes_no_bit(steps: int) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    state = JobState(
        device=torch.device("cpu"), models=[model], optimizers=[optimizer], schedulers=[scheduler]
    )
    state.step, state.epoch = steps, 1
    for _ in range(steps):
        model(torch.randn(5, 3)).sum().backward()
        optimizer.step()
        scheduler.step()
    before = compute_digests(state.capture())
    pointers = [p.data_ptr() for p in model.parameters()]
    rehearse_transfer(state)
    assert compute_digests(state.capture()) == before
    assert [p.data_ptr() for p in model.parameters()] == pointers
    assert (state.step, state.epoch) == (steps, 1)
