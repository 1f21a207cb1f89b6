"""Train a workload under torchrun, elastic by stop and restart: save every few steps, restore at the start.

Rank 0 appends one line of JSON for each step: its number, the wall clock and the number of ranks.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.scripts.stock_ddp import draw_batches, step_once
from benchmarks.workloads import WORKLOADS, Twin


def restore(twin: Twin, path: Path) -> int:
    """Load the newest saved state, if there is one; return the number of the next step."""
    if not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    twin.model.load_state_dict(saved["model"])
    twin.optimizer.load_state_dict(saved["optimizer"])
    for scheduler, state in zip(twin.schedulers, saved["schedulers"], strict=True):
        scheduler.load_state_dict(state)
    step: int = saved["step"]
    return step


def save(twin: Twin, step: int, path: Path) -> None:
    """Save the state, so that a restart in the middle finds the one before."""
    new = path.with_suffix(".new")
    schedulers = [scheduler.state_dict() for scheduler in twin.schedulers]
    state: dict[str, Any] = {"model": twin.model.state_dict(), "optimizer": twin.optimizer.state_dict()}
    torch.save({**state, "schedulers": schedulers, "step": step}, new)
    os.replace(new, path)


def main() -> None:
    """Train until ended from outside."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--save-every", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    workload = WORKLOADS[options.workload]
    twin = workload.build()
    checkpoint = options.folder / "checkpoint.pt"
    step = restore(twin, checkpoint)
    model = DistributedDataParallel(twin.model)
    sampler: DistributedSampler[Any] = DistributedSampler(twin.dataset, seed=0)
    loader = DataLoader(twin.dataset, batch_size=workload.batch_size, sampler=sampler)
    is_main = dist.get_rank() == 0
    with (options.folder / "steps.jsonl").open("a") as lines:
        for batch in draw_batches(loader, sampler):
            step_once(twin, model, batch)
            if is_main:
                line = {"step": step, "at_s": time.time(), "workers": dist.get_world_size()}
                lines.write(json.dumps(line) + "\n")
                lines.flush()
            step += 1
            if is_main and step % options.save_every == 0:
                save(twin, step, checkpoint)


if __name__ == "__main__":
    main()
