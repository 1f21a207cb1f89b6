"""Train next to nothing in steps as long as a table says for the present number of workers.

The global batch is fixed and dealt out among the workers, as in EDL. The forward and backward pass count: the
sleep ends when the time of the table has passed since the batch came.
"""

import argparse
import json
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

import elastane

parser = argparse.ArgumentParser()
parser.add_argument("--step-times", type=json.loads, required=True, help="seconds by number of workers")
parser.add_argument("--batch", type=int, default=840, help="samples of a step: dealt out evenly to 1..8")
options = parser.parse_args()

job = elastane.Job(batch=elastane.FixedGlobal(options.batch), seed=0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = job.loader(TensorDataset(torch.randn(8 * options.batch, 4)))
model, optimizer = job.prepare(model, optimizer)

for _ in job.epochs(100_000):
    for (x,) in loader:
        until_s = time.monotonic() + options.step_times[str(job.virtual_workers)]
        optimizer.zero_grad()
        model(x).square().mean().backward()
        time.sleep(max(0.0, until_s - time.monotonic()))
        optimizer.step()
