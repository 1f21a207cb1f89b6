"""Train a tiny model under a batch policy, write down which samples each part had, and hurry when told to.

Alone, `--replay` plays the numbers of workers that an elastic run had, step by step, in this one process.
"""

import argparse
import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import elastane
from elastane.model.topology import VrankRange
from elastane.worker.bootstrap import running_control
from elastane.worker.course import Course
from elastane.worker.session import Seating, SoloSession, Training

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=211)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--num-workers", type=int, default=0)
parser.add_argument("--shards", choices=["", "told", "found"], default="", help="whether lengths are told")
parser.add_argument("--policy", required=True, help="FixedGlobal(...) or CappedLocal(...)")
parser.add_argument("--marks", default="", help="folder: `go` when to hurry, and what each part trained")
parser.add_argument("--deaths", type=json.loads, default=[], help='["look_ahead 1", ...], one each')
parser.add_argument("--replay", type=json.loads, default=None, help="numbers of workers, one for each step")
options = parser.parse_args()


class Noisy(Dataset):
    """Samples with their number and an augmentation."""

    def __len__(self) -> int:
        return options.samples

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, int]:
        clean = torch.linspace(0, 1, 8).roll(index % 8) + index % 3
        return index, clean + 0.1 * torch.randn(8), index % 4


def shard_lengths() -> list[int]:
    """Return lengths that differ, and sum up to all samples."""
    lengths = [3, 0, 40, 17, 1, 60, 8]
    return [*lengths, options.samples - sum(lengths)]


def open_shard(shard: int) -> Iterator[tuple[int, torch.Tensor, int]]:
    """Give the samples of a shard one after another."""
    lengths = shard_lengths()
    for index in range(sum(lengths[:shard]), sum(lengths[: shard + 1])):
        yield Noisy()[index]


class Replay(SoloSession):
    """Play a run's numbers of workers in one process."""

    def begin(self, training: Training) -> None:
        self._training = training
        self._workers = 0
        self.pass_boundary()

    def pass_boundary(self) -> None:
        workers = options.replay[self._training.state.step]
        if workers != self._workers:
            self._workers = workers
            seat = Seating(generation=0, ranges=(VrankRange(0, workers),), own=0, courier=None)
            self._training.take_seat(seat)


def die_at(method: str) -> None:
    """Let the first worker that calls a method of the course for the n-th time be killed."""
    inner, calls = getattr(Course, method), itertools.count(1)

    def watched(self: Course, *arguments: Any) -> Any:
        place = f"{method} {next(calls)}"
        if place in options.deaths and control is not None:
            with suppress(FileExistsError):
                Path(options.marks, f"died at {place}").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return inner(self, *arguments)

    setattr(Course, method, watched)


die_at("look_ahead")
die_at("learn")
policy = eval(options.policy, {"FixedGlobal": elastane.FixedGlobal, "CappedLocal": elastane.CappedLocal})
job = elastane.Job(batch=policy, seed=3)
control = running_control()
if options.replay is not None:
    session = job._trainer._session
    job._trainer._session = Replay(0, None)
    job._trainer._session._metrics = session._metrics
model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 4))
data: Any = Noisy()
if options.shards:
    lengths = shard_lengths() if options.shards == "told" else None
    data = elastane.shards(range(8), open=open_shard, lengths=lengths)
loader = job.loader(data, num_workers=options.num_workers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.9)
warm_up = lambda model, batch: F.cross_entropy(model(batch[1]), batch[2])  # noqa: E731
model, optimizer, scheduler = job.prepare(model, optimizer, scheduler, warm_up=warm_up)
go = Path(options.marks, "go")


def note_part(epoch: int, indices: list[int]) -> None:
    """Write down what this worker is about to train; wait a little unless it is to hurry."""
    crawls = epoch >= options.epochs - 2  # what is to happen must not come too late
    line = (job._trainer.seating.generation, job.step, epoch, indices)
    with Path(options.marks, f"parts-{control.context.worker}").open("a") as file:
        file.write(json.dumps(line) + "\n")
    time.sleep(0.0 if go.exists() else 0.5 if crawls else 0.02)


for epoch in job.epochs(options.epochs):
    for indices, x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if control is not None:
            note_part(epoch, indices.tolist())
        optimizer.step()
        scheduler.step()
        job.log(loss=loss, lr=optimizer.param_groups[0]["lr"])

print(f"digest {job.digest()}")
