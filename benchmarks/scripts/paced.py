"""Train next to nothing, at a pace that is given: each turn of a virtual worker takes so long."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

import elastane

parser = argparse.ArgumentParser()
parser.add_argument("--turn", type=float, required=True, help="seconds")
options = parser.parse_args()

job = elastane.Job(seed=0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = job.loader(TensorDataset(torch.randn(4096, 4)), batch_size=1)
model, optimizer = job.prepare(model, optimizer)

for _ in job.epochs(100_000):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        time.sleep(options.turn)
        optimizer.step()
