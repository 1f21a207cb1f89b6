"""Make one worker of a job slow, and see it relieved while the job trains.

    elastane run examples/straggler.py --workers 3 --stragglers auto
    elastane chaos straggler --slow 1=2 --for 20s

The second command, in another terminal, lets the second worker compute twice as long. Within some ten steps
it has fewer of the 24 virtual workers, and the step is nearly as short as before; afterwards it gets them
back. Each turn takes 10 ms here, as on a device of its own, so that it is the same on any machine.
"""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import elastane

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--turn", type=float, default=0.01, help="seconds")
options = parser.parse_args()

job = elastane.Job(virtual_workers=24, seed=0)
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
model = torch.nn.Linear(64, 10).to(job.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = job.loader(TensorDataset(images, torch.tensor(digits.target)), batch_size=2)
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
