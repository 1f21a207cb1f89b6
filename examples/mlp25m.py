"""Train an MLP of 25 million parameters with Adam (300 MB of state): a heavy load for links and switches."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import elastane

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--virtual-workers", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=64)
options = parser.parse_args()

job = elastane.Job(virtual_workers=options.virtual_workers, seed=0)
model = nn.Sequential(
    nn.Linear(1024, 3072), nn.ReLU(), nn.Linear(3072, 3072), nn.ReLU(), nn.Linear(3072, 3072), nn.ReLU(),
    nn.Linear(3072, 1024),
).to(job.device)  # fmt: skip
inputs = torch.randn(4096, 1024)
loader = job.loader(TensorDataset(inputs, inputs.roll(1, 1)), batch_size=options.batch_size)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
model, optimizer = job.prepare(model, optimizer)

for _ in job.epochs(1000, max_steps=options.steps):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        job.log(loss=loss)

if job.is_main:
    print(f"steps {job.step}")
    print(f"digest {job.digest()}")
