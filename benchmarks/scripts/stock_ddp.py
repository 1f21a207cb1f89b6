"""Train a workload with stock DistributedDataParallel over gloo; write the clocks of every step.

One of WORLD_SIZE processes, told its part by torchrun's variables. Settings of DDP are its defaults.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.scripts.stamps import Stamps
from benchmarks.workloads import WORKLOADS, Twin


def step_once(twin: Twin, model: nn.Module, batch: Any) -> float:
    """Train one step as the examples do; return the loss."""
    twin.optimizer.zero_grad()
    loss = twin.loss(model, batch)
    loss.backward()  # type: ignore[no-untyped-call]
    if twin.clip_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), twin.clip_grad_norm)
    twin.optimizer.step()
    for scheduler in twin.schedulers:
        scheduler.step()
    return loss.item()


def draw_batches(loader: DataLoader[Any], sampler: DistributedSampler[Any]) -> Iterator[Any]:
    """Yield batches without end, in a new order each epoch."""
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main() -> None:
    """Train so many steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    workload = WORKLOADS[options.workload]
    twin = workload.build()
    model = DistributedDataParallel(twin.model)
    sampler: DistributedSampler[Any] = DistributedSampler(twin.dataset, seed=0)
    loader = DataLoader(
        twin.dataset,
        batch_size=workload.batch_size,
        sampler=sampler,
        num_workers=workload.loading_processes,
        persistent_workers=workload.loading_processes > 0,
    )
    stamps = Stamps()
    for number, batch in enumerate(draw_batches(loader, sampler)):
        if number == options.steps:
            break
        step_once(twin, model, batch)
        stamps.note()
    stamps.save(options.out, dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
