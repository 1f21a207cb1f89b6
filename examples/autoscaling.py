"""Let a job find its own number of workers, and see why it chose it.

    elastane run examples/autoscaling.py --autoscale max=6
    elastane autoscale autoscaling --plot search.png

Each turn of a virtual worker takes 20 ms here, as on a device of its own, so that it is the same on any
machine. Twelve of them are shared out evenly by one, two, three, four or six workers; five are passed over,
since somebody would still have three.
"""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import elastane

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--turn", type=float, default=0.02, help="seconds")
options = parser.parse_args()

job = elastane.Job(virtual_workers=12, seed=0)
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
model = torch.nn.Linear(64, 10).to(job.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = job.loader(TensorDataset(images, torch.tensor(digits.target)), batch_size=4)
model, optimizer = job.prepare(model, optimizer)

for _ in job.epochs(1000, max_steps=options.steps):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        time.sleep(options.turn)  # the device computes
        optimizer.step()
        job.log(loss=loss)

if job.is_main:
    print(f"steps {job.step}")
    print(f"digest {job.digest()}")
