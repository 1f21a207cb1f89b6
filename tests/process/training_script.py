"""Train a tiny model whose every part could betray a change of placement; told by flags what to ask for.

BatchNorm and dropout, momentum and a schedule, augmentation in the data set, short batches at the end of
an epoch. The main worker asks for other numbers of workers as `--plan` says: {"step": workers, ...}.
"""

import argparse
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import elastane
from elastane.jobs import requests
from elastane.worker.bootstrap import running_control

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=211)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--virtual-workers", type=int, default=4)
parser.add_argument("--num-workers", type=int, default=0)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--plan", type=json.loads, default=[], help="numbers of workers to ask for, in turn")
parser.add_argument("--deaths", type=json.loads, default=[], help="virtual workers whose owners die, in turn")
parser.add_argument("--inventory", default="", help="file for what this process holds after each change")
parser.add_argument(
    "--cover", type=int, default=0, help="go on with the plan until each of so many steps met"
)
parser.add_argument("--joiner", default="", help="what a worker that joins does: crash, hang, slow, differ")
parser.add_argument("--shards", type=int, default=0, help="read the data from so many shards")
parser.add_argument("--marks", default="", help="folder: a file for each death, and `go` when to hurry")
parser.add_argument("--pace", type=json.loads, default={}, help="seconds of a turn, by worker or `else`")
options = parser.parse_args()


class Noisy(Dataset):
    """Samples with an augmentation that must be the same wherever a batch is fetched."""

    def __len__(self) -> int:
        return options.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        clean = torch.linspace(0, 1, 8).roll(index % 8) + index % 3
        return clean + 0.1 * torch.randn(8) + 0.01 * random.random(), index % 4


def open_shard(number: int) -> Iterator[tuple[torch.Tensor, int]]:
    """Give every so many-th sample, one after another."""
    noisy = Noisy()
    return (noisy[index] for index in range(number, options.samples, options.shards))


control = running_control()
joins = control is not None and control.view.current is not None
if joins and options.joiner == "crash":
    raise ValueError("this joiner is broken")
if joins and options.joiner == "hang":
    time.sleep(3600)
if joins and options.joiner == "slow":
    time.sleep(3)
if joins and options.joiner == "differ":
    options.width += 1

job = elastane.Job(virtual_workers=options.virtual_workers, seed=3)
model = nn.Sequential(
    nn.Linear(8, options.width),
    nn.BatchNorm1d(options.width),
    nn.ReLU(),
    nn.Dropout(0.25),
    nn.Linear(options.width, 4),
)
train_set = elastane.shards(range(options.shards), open=open_shard) if options.shards else Noisy()
loader = job.loader(train_set, batch_size=5, num_workers=options.num_workers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=options.epochs * len(loader))
model, optimizer, scheduler = job.prepare(model, optimizer, scheduler, clip_grad_norm=5.0)
pending = list(options.plan)
asked_at = [-10]
met: set[int] = set()
"""Places among `--cover` steps before which a generation began."""


def settled(workers: int) -> bool:
    """Tell whether so many workers train, and no change is under way."""
    view, seating = control.view, job._trainer.seating
    present = seating.generation == view.current.generation
    return view.proposal is None and present and len(seating.ranges) == workers


def take_inventory() -> None:
    """Write down how many threads and descriptors this process holds, and its memory in MB."""
    if options.inventory:
        process = psutil.Process()
        counts = (process.num_threads(), process.num_fds(), process.memory_info().rss >> 20)
        with open(options.inventory, "a") as file:
            file.write(" ".join(map(str, counts)) + "\n")


def ask() -> bool:
    """Ask for the plan's next number of workers once the last one is reached; tell whether one is open."""
    if not options.plan or not job.is_main or not settled(control.view.spec.wanted):
        return bool(pending)
    switched_at = job._trainer._switch_step
    if options.cover:
        met.add(switched_at % options.cover)
        if not pending and len(met) < options.cover:
            pending.extend([2, 1])
    if options.inventory and job.step < switched_at + 2:
        return bool(pending)  # the link of the generation before is closed at the next step
    if pending and job.step > asked_at[-1] + job.step % 5:
        asked_at.append(job.step)
        wanted = pending.pop(0)
        take_inventory()
        control.post(lambda store: requests.request_scale(store, control.context.job, wanted))
    return bool(pending)


def die(batch: int) -> bool:
    """Kill this worker in mid-step if it is its turn and all are there; tell whether deaths are left."""
    done = len(list(Path(options.marks).glob("death-*"))) if options.deaths else 0
    if done >= len(options.deaths):
        return False
    vranks = job._trainer.seating.vranks
    mine = vranks.start <= options.deaths[done] < vranks.stop and batch == 0
    if mine and settled(control.view.spec.wanted) and job.step >= 5 * (done + 1):
        Path(options.marks, f"death-{done}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return True


def busy(batch: int) -> bool:
    """Tell whether something is still to happen, so that the training must not run ahead of it."""
    waits = bool(options.marks) and not options.deaths
    return ask() | die(batch) | (waits and not Path(options.marks, "go").exists())


for _ in job.epochs(options.epochs):
    for number, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if control is not None:
            time.sleep(options.pace.get(control.context.worker, options.pace.get("else", 0.0)))
            time.sleep(0.05 if busy(number % job._trainer.seating.vranks.width) else 0.0)
        optimizer.step()
        scheduler.step()
        job.log(loss=loss, lr=optimizer.param_groups[0]["lr"])


def correct(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return 1.0 for each sample that the model gets right."""
    return (model(batch[0]).argmax(1) == batch[1]).float()


model.eval()
accuracy = job.evaluate(correct, Noisy(), batch_size=16).mean()
if job.is_main:
    print(f"accuracy {accuracy.item().hex()}")
    print(f"digest {job.digest()}")
