"""Train a small CNN (BatchNorm, dropout) on scikit-learn's digits, alone or under `elastane run`."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import elastane

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--virtual-workers", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=32)
options = parser.parse_args()

job = elastane.Job(virtual_workers=options.virtual_workers, seed=0)

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
labels = torch.tensor(digits.target)
train_set = TensorDataset(images[:1500], labels[:1500])

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
).to(job.device)  # fmt: skip
loader = job.loader(train_set, batch_size=options.batch_size, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=0.1, total_steps=options.epochs * len(loader)
)
model, optimizer, scheduler = job.prepare(model, optimizer, scheduler)

for _ in job.epochs(options.epochs):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        job.log(loss=loss)

if job.is_main:
    model.eval()
    with torch.no_grad():
        accuracy = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean()
    print(f"steps {job.step}, test accuracy {accuracy:.4f}")
    print(f"digest {job.digest()}")
