"""Train scikit-learn's digits with a batch that follows the workers: more workers, fewer and larger steps.

    elastane run examples/growing_batch.py --workers 1
    elastane scale growing-batch 4

`--fixed` keeps the batch at the largest size instead and splits it over the workers.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import elastane

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--local", type=int, default=32, help="samples per worker and step")
parser.add_argument("--largest", type=int, default=128, help="most samples of a step")
parser.add_argument("--fixed", action="store_true")
options = parser.parse_args()

if options.fixed:
    policy = elastane.FixedGlobal(options.largest)
else:
    # The learning rate below was chosen for steps of 32 samples, whoever is there at the start.
    policy = elastane.CappedLocal(
        local=options.local, max_global=options.largest, lr_rule="sqrt", lr_batch=32
    )
job = elastane.Job(batch=policy, seed=0)

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
labels = torch.tensor(digits.target)

# GroupNorm rather than BatchNorm: a worker's part of a batch may be a single sample.
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
).to(job.device)  # fmt: skip
loader = job.loader(TensorDataset(images[:1500], labels[:1500]))  # no batch_size: the policy says it
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
# A schedule of epochs: how many steps an epoch has depends on the workers.
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.epochs)
model, optimizer, scheduler = job.prepare(model, optimizer, scheduler)

for epoch in job.epochs(options.epochs):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        job.log(loss=loss)
    scheduler.step()
    if job.is_main:
        print(f"epoch {epoch}: {job.virtual_workers} workers, {job.global_batch} samples a step", flush=True)

if job.is_main:
    model.eval()
    with torch.no_grad():
        accuracy = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean()
    print(f"steps {job.step}, test accuracy {accuracy:.4f}")
