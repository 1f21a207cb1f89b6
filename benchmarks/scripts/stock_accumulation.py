"""Train a workload in one process with plain gradient accumulation; write the clocks of every step."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from benchmarks.scripts.stamps import Stamps
from benchmarks.workloads import WORKLOADS, Twin


def step_once(twin: Twin, batches: Iterator[Any], micro_batches: int) -> float:
    """Train one step on so many micro-batches; return the sum of their losses."""
    total = 0.0
    twin.optimizer.zero_grad()
    for _ in range(micro_batches):
        loss = twin.loss(twin.model, next(batches)) / micro_batches
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    if twin.clip_grad_norm is not None:
        nn.utils.clip_grad_norm_(twin.model.parameters(), twin.clip_grad_norm)
    twin.optimizer.step()
    for scheduler in twin.schedulers:
        scheduler.step()
    return total


def draw_batches(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield batches without end."""
    while True:
        yield from loader


def main() -> None:
    """Train so many steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--micro-batches", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    workload = WORKLOADS[options.workload]
    twin = workload.build()
    loader = DataLoader(
        twin.dataset,
        batch_size=workload.batch_size,
        shuffle=True,
        num_workers=workload.loading_processes,
        persistent_workers=workload.loading_processes > 0,
    )
    batches = draw_batches(loader)
    stamps = Stamps()
    for _ in range(options.steps):
        step_once(twin, batches, options.micro_batches)
        stamps.note()
    stamps.save(options.out, 0)


if __name__ == "__main__":
    main()
