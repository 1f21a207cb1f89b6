"""Real data-loading processes: same bits, one set of processes for the whole job, and none left behind."""

import gc
import multiprocessing
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from feed_entry import open_feeder
from torch.utils.data import Dataset, get_worker_info

from elastane.core.data_order import DataOrder
from elastane.model.topology import VrankRange
from elastane.worker.data import FeedSettings
from elastane.worker.evaluation import EvalLoader
from elastane.worker.feeder import BatchFeeder

pytestmark = pytest.mark.process

DEADLINE_S = 20.0
ORDER = DataOrder(samples=27, virtual_workers=4, batch_size=2)
ALL = VrankRange(0, 4)
KEYS = [(epoch, step, vrank) for epoch in range(2) for step in range(4) for vrank in range(4)]


class Augmented(Dataset[tuple[int, torch.Tensor, float]]):
    def __len__(self) -> int:
        return ORDER.samples

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, float]:
        return index, torch.rand(3), random.random()


def feeder_of(dataset: Any, **settings: Any) -> BatchFeeder:
    return BatchFeeder(dataset, ORDER, 7, settings=FeedSettings(shuffle=True, **settings))


def bits(batch: Any) -> Any:
    return None if batch is None else [part.numpy().tobytes() for part in batch]


def child_pids() -> set[int | None]:
    return {child.pid for child in multiprocessing.active_children()}


def check_gone(pids: list[int]) -> None:
    """Wait until each process has ended, children of a process that is gone among them."""
    poll = select.poll()
    waiting = set()
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        waiting.add(handle)
        poll.register(handle, select.POLLIN)
    deadline_s = time.monotonic() + DEADLINE_S
    while waiting and time.monotonic() < deadline_s:
        for handle, _ in poll.poll((deadline_s - time.monotonic()) * 1000):
            poll.unregister(handle)
            waiting.discard(handle)
            os.close(handle)
    assert not waiting, f"of {pids}, {len(waiting)} are still there after {DEADLINE_S} s"


def shared_memory_of(pids: list[int]) -> list[str]:
    """Shared memory that torch made in these processes; its names hold the ids."""
    names = os.listdir("/dev/shm")
    return [name for name in names for pid in pids if name.startswith(f"torch_{pid}_")]


def resources() -> tuple[set[int | None], list[str], int, int]:
    """Children, shared memory, threads and open files of this process, once what it closed is gone."""
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":  # of a closed queue; ends, and closes its pipe, by itself
            thread.join(DEADLINE_S)
    return (
        child_pids(),
        shared_memory_of([os.getpid()]),
        threading.active_count(),
        len(os.listdir("/proc/self/fd")),
    )


@pytest.fixture(autouse=True)
def _no_process_left() -> Iterator[None]:
    before = child_pids()
    yield
    assert child_pids() == before


@pytest.mark.parametrize("settings", [{"num_workers": 1}, {"num_workers": 2, "prefetch_factor": 4}])
def test_the_number_of_processes_changes_no_bit(settings: dict[str, int]) -> None:
    alone = feeder_of(Augmented())
    served = feeder_of(Augmented(), **settings)
    served.schedule(0, 0, ALL)
    assert [bits(served.fetch(*key)) for key in KEYS] == [bits(alone.fetch(*key)) for key in KEYS]
    served.close()


@pytest.mark.slow
def test_spawned_processes_give_the_same_bits() -> None:
    alone = feeder_of(Augmented())
    served = feeder_of(Augmented(), num_workers=1, multiprocessing_context="spawn")
    served.schedule(0, 0, ALL)
    assert [bits(served.fetch(*key)) for key in KEYS] == [bits(alone.fetch(*key)) for key in KEYS]
    served.close()


def test_switches_rollbacks_and_epochs_keep_the_processes() -> None:
    alone = feeder_of(Augmented())
    served = feeder_of(Augmented(), num_workers=2)
    served.start()
    pids = child_pids()
    changes = [(0, 0, VrankRange(0, 2)), (0, 1, ALL), (0, 1, VrankRange(1, 4)), (1, 3, ALL), (0, 2, ALL)]
    for epoch, step, vranks in changes:
        served.schedule(epoch, step, vranks)
        for vrank in range(*vranks):
            assert bits(served.fetch(epoch, step, vrank)) == bits(alone.fetch(epoch, step, vrank))
    assert child_pids() == pids
    served.close()


class Broken(Augmented):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getitem__(self, index: int) -> Any:
        raise self.error


class Unusual(Exception):
    """Cannot be made again from its message, so it cannot be sent."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def test_an_error_of_the_data_set_arrives_as_itself_with_its_traceback() -> None:
    feeder = feeder_of(Broken(FileNotFoundError(2, "no such image", "a.png")), num_workers=1)
    with pytest.raises(FileNotFoundError) as caught:
        feeder.fetch(0, 0, 0)
    assert caught.value.filename == "a.png"
    where, text = caught.value.__notes__
    assert where.startswith("while fetching samples [")
    assert "raised in a data-loading process:\nTraceback" in text
    assert "raise self.error" in text
    feeder.close()


def test_an_error_that_cannot_be_sent_arrives_as_its_text() -> None:
    feeder = feeder_of(Broken(Unusual(1, 2)), num_workers=1)
    with pytest.raises(RuntimeError, match="Unusual in a data-loading process: 1 and 2") as caught:
        feeder.fetch(0, 0, 0)
    assert "raise self.error" in caught.value.__notes__[-1]
    feeder.close()


class Deadly(Augmented):
    """The first process that reads a sample dies of it; the file says that it has happened."""

    def __init__(self, happened: Path) -> None:
        self.happened = happened

    def __getitem__(self, index: int) -> Any:
        if not self.happened.exists():
            self.happened.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_killed_process_is_reported_and_the_next_fetch_starts_new_ones(tmp_path: Path) -> None:
    feeder = feeder_of(Deadly(tmp_path / "happened"), num_workers=1)
    feeder.schedule(0, 0, ALL)
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid"):
        feeder.fetch(0, 0, 0)
    assert [bits(feeder.fetch(*key)) for key in KEYS] == [
        bits(feeder_of(Augmented()).fetch(*k)) for k in KEYS
    ]
    feeder.close()


def test_a_batch_that_does_not_come_in_time_is_an_error_and_ends_the_processes() -> None:
    feeder = open_feeder(stuck=True, timeout_s=0.2)
    with pytest.raises(RuntimeError, match=r"timed out after 0\.2 seconds"):
        feeder.fetch(0, 0, 0)
    assert child_pids() == set()


def test_closing_leaves_nothing_even_if_a_data_set_never_returns() -> None:
    open_feeder().close()  # what multiprocessing keeps for good, it makes once
    gc.collect()  # files of earlier tests
    before = resources()
    for stuck in (False, True, False):
        feeder = open_feeder(stuck=stuck)
        if not stuck:
            feeder.fetch(0, 0, 0)
        feeder.close()
        feeder.close()
    assert resources() == before


def note_dataset(number: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.started_as = number  # type: ignore[attr-defined]


class Started(Augmented):
    started_as = -1

    def __getitem__(self, index: int) -> Any:
        return index, torch.tensor(self.started_as), 0.0


def test_a_worker_init_fn_meets_the_user_s_own_data_set() -> None:
    feeder = feeder_of(Started(), num_workers=1, worker_init_fn=note_dataset)
    assert feeder.fetch(0, 0, 0)[1].tolist() == [0, 0]
    feeder.close()


StartEntry = Callable[[str], tuple[subprocess.Popen[str], list[int]]]


@pytest.fixture
def start_entry() -> Iterator[StartEntry]:
    """Start a training process that ends in the given way; gives it and the ids of its children."""
    started: list[tuple[subprocess.Popen[str], list[int]]] = []

    def start(ending: str) -> tuple[subprocess.Popen[str], list[int]]:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("feed_entry.py")), ending],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        started.append((process, [int(pid) for pid in process.stdout.readline().split()]))
        return started[-1]

    yield start
    for process, _ in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
        ("return", 0, ""),
        ("raise", 1, "KeyError: 'a fault of the script'"),
        ("abrupt", 0, ""),
        ("child", 0, ""),
    ],
)
def test_a_process_that_ends_without_closing_leaves_no_process(
    start_entry: StartEntry, ending: str, code: int, message: str
) -> None:
    process, pids = start_entry(ending)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert (len(pids), process.returncode) == (2, code)
    assert errors.strip().splitlines()[-1:] == ([message] if message else [])
    check_gone(pids)


def test_a_killed_process_takes_all_its_data_loading_processes_along_and_leaves_no_shared_memory(
    start_entry: StartEntry,
) -> None:
    process, pids = start_entry("kill")
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    assert len(pids) == 4
    check_gone(pids)
    assert shared_memory_of([process.pid, *pids]) == []


def test_a_signal_to_all_processes_does_not_end_the_feeding(start_entry: StartEntry) -> None:
    process, pids = start_entry("signals")
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert (len(pids), process.returncode, output, errors) == (2, 0, "still fed\n", "")
    check_gone(pids)


def test_evaluation_passes_keep_their_processes_and_give_the_batches_of_a_lone_process() -> None:
    alone = [bits(batch) for batch in EvalLoader(Augmented(), 4, 7, settings=FeedSettings())]
    share = [1, 2, 3, 6]
    loader = EvalLoader(Augmented(), 4, 7, settings=FeedSettings(num_workers=2), assign=lambda _: share)
    assert [bits(batch) for batch in loader] == [alone[number] for number in share]
    pids = child_pids()
    for batch in loader:  # a pass that is broken off
        assert bits(batch) == alone[1]
        break
    share[:] = [0, 4, 5]
    assert [bits(batch) for batch in loader] == [alone[number] for number in share]
    assert loader.yielded == (0, 4, 5)
    assert child_pids() == pids
    loader.close()
