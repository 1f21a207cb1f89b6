"""Train a workload as one replica under torchft: a quorum, one all-reduce and a vote for each step.

Written with torchft's own building blocks (`Manager.start_quorum`, `allreduce`, `should_commit`), one process
per replica. Appends one line of JSON for each committed step: its number, the wall clock, how many replicas.
"""

import argparse
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._C._distributed_c10d import TCPStore
from torch.utils.data import DataLoader, DistributedSampler
from torchft import Manager, ProcessGroupGloo

from benchmarks.scripts.stock_ddp import draw_batches
from benchmarks.workloads import WORKLOADS, Twin

PATIENCE = timedelta(seconds=5)
"""How long a replica waits for another in a step: as long as the lighthouse does for a heartbeat."""


def make_manager(twin: Twin, name: str, lighthouse: str, store: TCPStore) -> Manager:
    """Return the replica's manager; the store is the replica's own and must live as long."""
    models: dict[str, Any] = {"model": twin.model, "optimizer": twin.optimizer}
    return Manager(
        pg=ProcessGroupGloo(timeout=PATIENCE),
        load_state_dict=lambda state: [models[key].load_state_dict(state[key]) for key in models],
        state_dict=lambda: {key: value.state_dict() for key, value in models.items()},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=name,
        hostname="127.0.0.1",
    )


def train_step(twin: Twin, manager: Manager, batch: Any) -> bool:
    """Train one step with whoever is there; tell whether it was committed."""
    manager.start_quorum()
    twin.optimizer.zero_grad(set_to_none=False)
    loss = twin.loss(twin.model, batch)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in twin.model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    manager.allreduce(flat).wait()
    for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
    if not manager.should_commit():
        return False
    if twin.clip_grad_norm is not None:
        nn.utils.clip_grad_norm_(twin.model.parameters(), twin.clip_grad_norm)
    twin.optimizer.step()
    for scheduler in twin.schedulers:
        scheduler.step()
    return True


def main() -> None:
    """Train until ended from outside."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--lighthouse", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    workload = WORKLOADS[options.workload]
    twin = workload.build()
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = make_manager(twin, options.name, options.lighthouse, store)
    sampler: DistributedSampler[Any] = DistributedSampler(
        twin.dataset, num_replicas=2, rank=options.number, seed=0
    )
    loader = DataLoader(twin.dataset, batch_size=workload.batch_size, sampler=sampler)
    with options.out.open("a") as lines:
        for batch in draw_batches(loader, sampler):
            if train_step(twin, manager, batch):
                now_s, workers = time.time(), manager.num_participants()
                line = {"step": manager.current_step(), "at_s": now_s, "workers": workers}
                lines.write(json.dumps(line) + "\n")
                lines.flush()


if __name__ == "__main__":
    main()
