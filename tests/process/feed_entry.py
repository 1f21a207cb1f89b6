"""A training process in small: opens a feeder, tells the ids of its processes, ends somehow."""

import multiprocessing
import os
import signal
import sys
import threading
from typing import Any

from torch.utils.data import Dataset

from elastane.core.data_order import DataOrder
from elastane.model.topology import VrankRange
from elastane.worker.data import FeedSettings
from elastane.worker.feeder import BatchFeeder


class Numbers(Dataset[int]):
    """Sample i is i; with `stuck`, reading never ends."""

    def __init__(self, *, stuck: bool = False) -> None:
        self.stuck = stuck

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        if self.stuck:
            threading.Event().wait()
        return index


def open_feeder(*, stuck: bool = False, **settings: Any) -> BatchFeeder:
    """Open a feeder with two data-loading processes and give them work."""
    feeder = BatchFeeder(
        Numbers(stuck=stuck),
        DataOrder(samples=1000, virtual_workers=2, batch_size=2),
        0,
        settings=FeedSettings(num_workers=2, **settings),
    )
    feeder.schedule(0, 0, VrankRange(0, 2))
    feeder.start()
    return feeder


def tell_processes() -> None:
    """Write the ids of this process's children on one line."""
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)


def leave_open() -> None:
    """Fetch a batch and return without closing."""
    feeder = open_feeder()
    feeder.fetch(0, 0, 0)
    tell_processes()


def main(ending: str) -> None:
    """Open a feeder, and end the process by `ending`."""
    if ending == "return":
        leave_open()
    elif ending == "raise":
        leave_open()
        raise KeyError("a fault of the script")
    elif ending == "abrupt":
        leave_open()
        os._exit(0)
    elif ending == "child":
        child = multiprocessing.get_context("fork").Process(target=leave_open)
        child.start()
        child.join()
    elif ending == "signals":
        signal.signal(signal.SIGTERM, lambda *_: None)
        feeder = open_feeder()
        for vrank in range(2):  # one batch of each process: both have set up their signals by then
            feeder.fetch(0, 0, vrank)
        tell_processes()
        os.killpg(0, signal.SIGTERM)
        for step in range(1, 20):
            feeder.fetch(0, step, 1)
        print("still fed", flush=True)
        feeder.close()
    else:
        feeders = [open_feeder(stuck=True) for _ in range(2)]
        feeders[0].close()
        feeders[0].start()
        tell_processes()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
