"""One model and data set, trained with stock DistributedDataParallel or with elastane; prints the state.

python ddp_peer.py ddp RANKS STORE_FILE RANK | python ddp_peer.py elastane N
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import elastane
from elastane.worker.digest import model_digest

EPOCHS, BATCH, SEED = 3, 6, 5


def build() -> tuple[nn.Module, TensorDataset]:
    torch.manual_seed(SEED)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 32), nn.Tanh(),
        nn.Linear(32, 10),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(96, 1, 8, 8, generator=generator)
    return model, TensorDataset(images, torch.randint(0, 10, (96,), generator=generator))


def train_ddp(ranks: int, store: str, rank: int) -> nn.Module:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    model, data = build()
    sampler = DistributedSampler(data, seed=SEED)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.7)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(parallel(x), y).backward()
            optimizer.step()
            scheduler.step()
    dist.destroy_process_group()
    return model


def train_elastane(virtual_workers: int) -> nn.Module:
    job = elastane.Job(virtual_workers=virtual_workers, seed=SEED)
    model, data = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.7)
    job.prepare(model, optimizer, scheduler)
    loader = job.loader(data, batch_size=BATCH)
    for _ in job.epochs(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()
    return model


if __name__ == "__main__":
    if sys.argv[1] == "ddp":
        trained = train_ddp(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        trained = train_elastane(int(sys.argv[2]))
    print("digest", model_digest(trained, buffers=True))
    print("norms", *(p.norm().item() for p in trained.parameters()), flush=True)
    os._exit(0)  # gloo's threads sometimes abort the process in torch's own clean-up at exit (torch 2.13)
