"""Train next to nothing, at a pace that is given: each turn of a virtual worker takes so long.

From the moment on that the file `slow` lies in the folder, the turns of worker w2 take `--slowness` times as
long.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import elastane
from elastane.worker.bootstrap import running_control

parser = argparse.ArgumentParser()
parser.add_argument("--turn", type=float, required=True, help="seconds")
parser.add_argument("--slowness", type=float, required=True)
parser.add_argument("--folder", type=Path, required=True)
options = parser.parse_args()

control = running_control()
mine = control is not None and control.context.worker == "w2"
job = elastane.Job(seed=0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = job.loader(TensorDataset(torch.randn(4096, 4)), batch_size=1)
model, optimizer = job.prepare(model, optimizer)

for _ in job.epochs(100_000):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        slow = mine and (options.folder / "slow").exists()
        time.sleep(options.turn * (options.slowness if slow else 1.0))
        optimizer.step()
