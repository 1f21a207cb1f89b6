"""Train a tiny model whose every part could betray a lost or repeated step, past places to die at."""

import argparse
import os
import random
import time
from pathlib import Path

import torch
from kill_points import Watched, reach, watch_model, watch_product
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import elastane
from elastane.worker.bootstrap import running_control

parser = argparse.ArgumentParser()
parser.add_argument("--orders", type=Path, required=True, help="folder of the orders, and of `hurry`")
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--read", action="store_true", help="let workers read all tensors from each other")
options = parser.parse_args()
control = running_control()
if control is not None:
    watch_product(options.orders, small_ones_are_read=options.read)
    reach("prepare")


class Noisy(Dataset):
    """Samples with an augmentation that must be the same wherever a batch is fetched."""

    def __len__(self) -> int:
        return 211

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        clean = torch.linspace(0, 1, 8).roll(index % 8) + index % 3
        return clean + 0.1 * torch.randn(8) + 0.01 * random.random(), index % 4


job = elastane.Job(virtual_workers=4, seed=3)
width = options.width
model = nn.Sequential(
    nn.Linear(8, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.25), nn.Linear(width, 4)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
watch_model(model, optimizer)
loader = job.loader(Watched(Noisy()), batch_size=5, num_workers=0)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=options.steps)
model, optimizer, scheduler = job.prepare(model, optimizer, scheduler, clip_grad_norm=5.0)


def pace() -> None:
    """Train slowly until told to hurry, slower still beyond the step that the test has granted."""
    try:
        granted = os.stat(options.orders / "granted").st_size
    except FileNotFoundError:
        return
    time.sleep(0.01 if job.step < granted else 0.1)


for _ in job.epochs(options.steps, max_steps=options.steps):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if control is not None:
            pace()
        optimizer.step()
        reach("stepped")
        scheduler.step()
        job.log(loss=loss, lr=optimizer.param_groups[0]["lr"])
reach("end")


def correct(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return 1.0 for each sample that the model gets right."""
    return (model(batch[0]).argmax(1) == batch[1]).float()


model.eval()
accuracy = job.evaluate(correct, Noisy(), batch_size=16).mean()
if job.is_main:
    print(f"accuracy {accuracy.item().hex()}")
    print(f"digest {job.digest()}")
