"""Checkpoints of several workers: any number writes, any number restores, the bits are the same."""

import io
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from replicas import CPU, Replica, make_replica
from torch import nn
from torch.optim import lr_scheduler

from elastane.checkpoint.catalog import list_checkpoints
from elastane.checkpoint.target import LocalTarget, Target, open_target
from elastane.core.checkpoints import ShareNote
from elastane.core.placement import plan_even
from elastane.model.errors import StateFileError, StateRefusedError
from elastane.model.ids import JobId, WorkerId
from elastane.model.records import CheckpointPlan
from elastane.model.topology import Member, Mode, Topology
from elastane.observe.events import EventLog, read_events
from elastane.worker.checkpointing import Checkpointing, CheckpointPlace
from elastane.worker.restoring import load_newest
from elastane.worker.snapshot import Snapshot, SnapshotBuffer
from elastane.worker.state import JobState

JOB = JobId("job-1")
N = 8


def adam_with_cosine(seed: int) -> Replica:
    return make_replica(
        seed,
        lambda groups: torch.optim.Adam(groups, lr=0.01, amsgrad=True),
        lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=20),
    )


def trained(steps: int) -> Replica:
    replica = adam_with_cosine(1)
    replica.train(steps)
    replica.state.epoch = 2
    return replica


def topology(names: Sequence[str], generation: int = 1, mode: Mode = Mode.PLANNED) -> Topology:
    ranges = plan_even(N, len(names))
    members = tuple(Member(worker=WorkerId(w), vranks=r) for w, r in zip(names, ranges, strict=True))
    return Topology(generation=generation, mode=mode, members=members, reason="so be it")


class Crew:
    """Some workers that hold the same state and hear each other's notes."""

    def __init__(self, folder: Path, target: Target, names: str, plan: CheckpointPlan) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.names = list(names)
        self.replica = trained(3)
        self.workers = {}
        for name in names:
            worker = Checkpointing(WorkerId(name), EventLog(folder, name))
            worker.open(CheckpointPlace(job=JOB, virtual_workers=N, target=target, plan=plan))
            self.workers[name] = worker
        self.enter(topology(self.names))

    def enter(self, entered: Topology) -> None:
        for worker in self.workers.values():
            worker.enter(entered)
        self.names = [m.worker for m in entered.members]

    def step(self) -> dict[str, ShareNote | None]:
        """Commit a step, and wait until whoever then writes has done so."""
        self.replica.train(1)
        number = self.replica.state.step
        notes = {name: self.workers[name].note(number) for name in self.names}
        for name in self.names:
            told = {WorkerId(other): note for other, note in notes.items()}
            self.workers[name].commit(number, told, self.replica.state.capture)
        for worker in self.workers.values():
            if worker._thread is not None:
                worker._thread.join()
        return notes

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [event.fields for event in read_events(self.folder) if event.kind == kind]


def restored(target: Target, job: JobId = JOB, virtual_workers: int = N) -> Replica:
    loaded = load_newest(target, job=job, virtual_workers=virtual_workers)
    assert loaded is not None
    replica = adam_with_cosine(2)
    replica.state.restore(loaded.state)
    return replica


EVERY_STEP = CheckpointPlan(every_steps=1, every_s=None)
EVERY_4 = CheckpointPlan(every_steps=4, every_s=None)


@pytest.mark.parametrize("names", ["a", "ab", "abc", "abcdefg"])
def test_what_any_number_of_workers_has_written_goes_on_bit_identically(tmp_path: Path, names: str) -> None:
    target = open_target(str(tmp_path / "place"))
    crew = Crew(tmp_path / "job", target, names, EVERY_4)
    crew.step()
    digest = crew.replica.digest()  # of step 4
    crew.step()
    crew.step()

    replica = restored(target)

    assert (replica.state.step, replica.state.epoch, replica.digest()) == (4, 2, digest)
    replica.train(2)
    assert replica.digest() == crew.replica.digest()
    (saved,) = crew.told("checkpoint_saved")
    assert (saved["step"], saved["workers"], saved["worker"]) == (4, len(names), "a")
    assert len(list_checkpoints(target)) == 1


def test_shares_are_equally_long(tmp_path: Path) -> None:
    target = open_target(str(tmp_path))
    crew = Crew(tmp_path / "job", target, "abc", EVERY_4)
    crew.step()
    crew.step()
    (listing,) = (one for one in list_checkpoints(target) if one.manifest is not None)
    assert listing.manifest is not None
    sizes = [share.content_bytes for share in listing.manifest.shares]
    assert max(sizes) - min(sizes) <= 128
    assert sum(sizes) == listing.manifest.state_bytes


def test_a_graceful_stop_saves_the_whole_state_alone(tmp_path: Path) -> None:
    target = open_target(str(tmp_path / "place"))
    crew = Crew(tmp_path / "job", target, "ab", CheckpointPlan(keep=1))
    path = crew.workers["b"].save(crew.replica.state.capture(), generation=5)
    assert path == f"{target.url}/g000005-step-000000003"
    assert restored(target).digest() == crew.replica.digest()


def test_old_ones_are_removed_when_a_new_one_is_there(tmp_path: Path) -> None:
    target = open_target(str(tmp_path / "place"))
    crew = Crew(tmp_path / "job", target, "ab", EVERY_4)
    for _ in range(14):
        crew.step()
    assert [one.name.step for one in list_checkpoints(target) if not one.problem] == [16, 12]


class SlowTarget(LocalTarget):
    """Writes nothing before it is let go."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.go = threading.Event()

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        self.go.wait()
        with super().writing(path) as file:
            yield file


def test_the_next_is_skipped_while_somebody_still_writes(tmp_path: Path) -> None:
    target = SlowTarget(tmp_path / "place")
    plan = EVERY_STEP
    worker = Checkpointing(WorkerId("a"), EventLog(tmp_path, "a"))
    worker.open(CheckpointPlace(job=JOB, virtual_workers=N, target=target, plan=plan))
    worker.enter(topology("a"))
    replica = trained(1)
    for _ in range(3):
        replica.train(1)
        step = replica.state.step
        worker.commit(step, {WorkerId("a"): worker.note(step)}, replica.state.capture)
    target.go.set()
    worker.close()
    skipped = [e.fields for e in read_events(tmp_path) if e.kind == "checkpoint_skipped"]
    assert [(e["step"], e["reason"]) for e in skipped] == [
        (3, "a still write the one before"),
        (4, "a still write the one before"),
    ]


class FullTarget(LocalTarget):
    """Has no space left for shares of a kind."""

    full = "share-2"

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        if self.full and self.full in path:
            raise OSError(28, os.strerror(28))
        with super().writing(path) as file:
            yield file


@pytest.mark.parametrize("full", ["share-1", "share-2", "description", "manifest"])
def test_a_full_disk_costs_a_checkpoint_and_nothing_else(tmp_path: Path, full: str) -> None:
    target = FullTarget(tmp_path / "place")
    target.full = full
    crew = Crew(tmp_path / "job", target, "ab", EVERY_4)
    for _ in range(4):
        crew.step()
    (failed,) = crew.told("checkpoint_failed")
    assert failed["step"] == 4
    assert "No space left on device" in failed["reason"]
    target.full = ""
    for _ in range(3):
        crew.step()
    assert [e["step"] for e in crew.told("checkpoint_saved")] == [8]
    assert load_newest(target, job=JOB, virtual_workers=N) is not None


def test_a_full_disk_at_a_stop_is_told(tmp_path: Path) -> None:
    target = FullTarget(tmp_path / "place")
    target.full = "manifest"
    crew = Crew(tmp_path / "job", target, "a", EVERY_4)
    with pytest.raises(StateFileError, match=r"cannot save the state of step 3 .* free some space"):
        crew.workers["a"].save(crew.replica.state.capture(), generation=2)


class PluginError(Exception):
    """What a client library raises, and no OSError."""


class BrokenTarget(LocalTarget):
    """Raises what it is told when files of a kind are written, listed or removed."""

    kind = ""
    error: BaseException = PluginError("403")

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        if self.kind and self.kind in path:
            raise self.error
        with super().writing(path) as file:
            yield file

    def files(self, folder: str) -> dict[str, int]:
        if self.kind == "listing":
            raise self.error
        return super().files(folder)

    def remove(self, folder: str) -> None:
        if self.kind == "removing":
            raise self.error
        super().remove(folder)


@pytest.mark.parametrize("error", [PluginError("403"), MemoryError(), ValueError("closed file")])
@pytest.mark.parametrize("kind", ["share-1", "share-2", "description", "manifest", "listing"])
def test_whatever_a_writing_thread_meets_costs_a_checkpoint_and_nothing_else(
    tmp_path: Path, kind: str, error: Exception
) -> None:
    target = BrokenTarget(tmp_path / "place")
    target.kind, target.error = kind, error
    crew = Crew(tmp_path / "job", target, "ab", EVERY_4)
    for _ in range(4):
        crew.step()
    (failed,) = crew.told("checkpoint_failed")
    assert failed["step"] == 4
    assert type(error).__name__ in failed["reason"]
    target.kind = ""
    for _ in range(3):
        crew.step()
    assert [e["step"] for e in crew.told("checkpoint_saved")] == [8]


def test_old_ones_that_cannot_be_removed_are_told_and_the_new_one_stands(tmp_path: Path) -> None:
    target = BrokenTarget(tmp_path / "place")
    target.kind = "removing"
    crew = Crew(tmp_path / "job", target, "ab", CheckpointPlan(every_steps=4, every_s=None, keep=1))
    for _ in range(7):
        crew.step()
    assert [e["step"] for e in crew.told("checkpoint_saved")] == [4, 8]
    assert [e["reason"] for e in crew.told("checkpoints_not_removed")] == ["PluginError: 403"]


class ScarceMemory(SnapshotBuffer):
    """Has no memory for the next copies."""

    def __init__(self, error: Exception, times: int = 1) -> None:
        super().__init__()
        self._error = error
        self._left = times

    def take(self, *arguments: Any, **named: Any) -> Snapshot:
        if self._left:
            self._left -= 1
            raise self._error
        return super().take(*arguments, **named)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
@pytest.mark.parametrize("poor", ["a", "b"])
def test_a_worker_without_memory_for_a_copy_skips_that_checkpoint_and_trains_on(
    tmp_path: Path, poor: str, error: Exception
) -> None:
    crew = Crew(tmp_path / "job", open_target(str(tmp_path / "place")), "ab", EVERY_4)
    crew.workers[poor]._buffer = ScarceMemory(error)
    for _ in range(3):
        crew.step()
    (failed,) = crew.told("checkpoint_failed")
    assert (failed["step"], failed["reason"]) == (4, f"{poor}: {type(error).__name__}: {error}".rstrip(": "))
    for _ in range(4):
        crew.step()
    assert [e["step"] for e in crew.told("checkpoint_saved")] == [8]


def test_a_lone_worker_without_memory_for_a_copy_that_stops_then_tells_the_failure(tmp_path: Path) -> None:
    crew = Crew(tmp_path / "job", open_target(str(tmp_path / "place")), "a", EVERY_4)
    crew.workers["a"]._buffer = ScarceMemory(MemoryError())
    crew.step()
    crew.workers["a"].close()
    assert [e["step"] for e in crew.told("checkpoint_failed")] == [4]


def test_no_memory_for_a_copy_at_a_stop_is_told(tmp_path: Path) -> None:
    crew = Crew(tmp_path / "job", open_target(str(tmp_path / "place")), "a", EVERY_4)
    crew.workers["a"]._buffer = ScarceMemory(MemoryError())
    with pytest.raises(StateFileError, match=r"cannot save the state of step 3 .*: MemoryError; free"):
        crew.workers["a"].save(crew.replica.state.capture(), generation=2)


@pytest.mark.parametrize("started", [0, 1, 2])
def test_a_thread_that_cannot_be_started_costs_a_checkpoint_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    crew = Crew(tmp_path / "job", open_target(str(tmp_path / "place")), "ab", EVERY_4)
    start = threading.Thread.start
    threads: list[threading.Thread] = []

    def start_some(thread: threading.Thread) -> None:
        threads.append(thread)
        if len(threads) == started + 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    for _ in range(4):
        crew.step()
    (failed,) = crew.told("checkpoint_failed")
    assert failed["step"] == 4
    assert "can't start new thread" in failed["reason"]
    for _ in range(3):
        crew.step()
    assert [e["step"] for e in crew.told("checkpoint_saved")] == [8]
    for worker in crew.workers.values():
        worker.close()


@pytest.mark.parametrize(
    ("entered", "saved"),
    [
        (topology("abc", 2), 1),
        (topology("a", 2), 0),
        (topology("ab", 2, Mode.RECOVERY), 0),
    ],
)
def test_a_change_in_the_middle_completes_or_drops_it(tmp_path: Path, entered: Topology, saved: int) -> None:
    target = open_target(str(tmp_path / "place"))
    crew = Crew(tmp_path / "job", target, "ab", EVERY_4)
    newcomer = Checkpointing(WorkerId("c"), EventLog(crew.folder, "c"))
    newcomer.open(CheckpointPlace(job=JOB, virtual_workers=N, target=target, plan=EVERY_4))
    crew.step()
    crew.workers["c"] = newcomer
    crew.enter(entered)
    crew.step()
    crew.step()
    assert len(crew.told("checkpoint_saved")) == saved
    assert len(crew.told("checkpoint_failed")) == 1 - saved
    for _ in range(4):
        crew.step()
    assert restored(target).state.step == 8


def test_a_damaged_one_is_passed_over_and_named(tmp_path: Path) -> None:
    target = open_target(str(tmp_path / "place"))
    crew = Crew(tmp_path / "job", target, "ab", EVERY_4)
    for _ in range(7):
        crew.step()
    newest = tmp_path / "place" / "g000001-step-000000008"
    content = bytearray((newest / "share-2-of-2.bin").read_bytes())
    content[100] ^= 1
    (newest / "share-2-of-2.bin").write_bytes(content)
    loaded = load_newest(target, job=JOB, virtual_workers=N)
    assert loaded is not None
    assert (loaded.manifest.step, list(loaded.refused)) == (4, ["g000001-step-000000008"])
    assert loaded.refused["g000001-step-000000008"].startswith("share-2-of-2.bin has sha256")


class ForgetfulFile(io.BytesIO):
    """An object whose later bytes the client library cannot fetch."""

    def read(self, size: int | None = -1) -> bytes:
        raise PluginError("503 Slow Down")

    def readinto(self, buffer: Any) -> int:
        raise PluginError("503 Slow Down")


@pytest.mark.parametrize("lost", ["share-2", "description", "manifest"])
def test_one_that_a_plug_in_cannot_read_is_passed_over_like_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    fsspec = pytest.importorskip("fsspec")
    target = open_target(f"memory://{tmp_path.name}-{lost}", "job-1")
    crew = Crew(tmp_path / "job", target, "ab", EVERY_4)
    for _ in range(7):
        crew.step()
    system = type(fsspec.filesystem("memory"))
    opened = system.open

    def open_some(self: Any, path: str, mode: str = "rb", **more: Any) -> Any:
        if "step-000000008" in path and lost in path and mode == "rb":
            return ForgetfulFile()
        return opened(self, path, mode, **more)

    monkeypatch.setattr(system, "open", open_some)
    loaded = load_newest(target, job=JOB, virtual_workers=N)
    assert loaded is not None
    assert (loaded.manifest.step, list(loaded.refused)) == (4, ["g000001-step-000000008"])
    assert "PluginError: 503 Slow Down" in loaded.refused["g000001-step-000000008"]


def test_a_foreign_one_is_refused_and_an_empty_place_holds_none(tmp_path: Path) -> None:
    target = open_target(str(tmp_path / "place"))
    assert load_newest(target, job=JOB, virtual_workers=N) is None
    crew = Crew(tmp_path / "job", target, "a", EVERY_4)
    crew.step()
    crew.step()
    with pytest.raises(StateRefusedError, match="not of 'job-2'"):
        load_newest(target, job=JobId("job-2"), virtual_workers=N)
    with pytest.raises(StateRefusedError, match="with 8 virtual workers, the script now asks for 4"):
        load_newest(target, job=JOB, virtual_workers=4)


def test_a_share_that_lies_elsewhere_makes_no_checkpoint(tmp_path: Path) -> None:
    crew = Crew(tmp_path / "job", open_target(str(tmp_path / "here")), "ab", EVERY_4)
    crew.workers["b"].open(
        CheckpointPlace(job=JOB, virtual_workers=N, target=open_target(str(tmp_path / "there")), plan=EVERY_4)
    )
    crew.step()
    crew.step()
    (failed,) = crew.told("checkpoint_failed")
    assert "share-2-of-2.bin is not in" in failed["reason"]


def test_a_snapshot_is_apart_from_the_live_tensors(tmp_path: Path) -> None:
    target = SlowTarget(tmp_path / "place")
    worker = Checkpointing(WorkerId("a"), EventLog(tmp_path, "a"))
    worker.open(CheckpointPlace(job=JOB, virtual_workers=N, target=target, plan=EVERY_4))
    worker.enter(topology("a"))
    replica = trained(3)
    replica.train(1)
    digest = replica.digest()
    worker.commit(4, {WorkerId("a"): worker.note(4)}, replica.state.capture)
    replica.train(1)
    target.go.set()
    assert worker._thread is not None
    worker._thread.join()
    worker.commit(5, {WorkerId("a"): worker.note(5)}, replica.state.capture)
    worker.close()
    assert restored(target).digest() == digest


def test_the_tensors_can_be_read_without_elastane_as_the_page_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "checkpoints.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    target = open_target(str(tmp_path / "checkpoints"))
    crew = Crew(tmp_path / "job", target, "ab", EVERY_4)
    crew.step()
    expected = {name: tensor.clone() for name, tensor in crew.replica.state.capture().tensors.items()}
    crew.step()
    folder = tmp_path / "checkpoints" / "g000001-step-000000004"
    scope: dict[str, Any] = {}
    exec(program.replace("checkpoints/g000001-step-000000500", str(folder)), scope)
    assert scope["tensors"].keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(scope["tensors"][name], tensor), name


def test_a_part_of_a_large_tensor_is_saved_alone(tmp_path: Path) -> None:
    large = torch.zeros(1 << 20)
    net = nn.Module()
    net.register_buffer("part", large[5:10])
    target = open_target(str(tmp_path))
    crew = Crew(tmp_path / "job", target, "a", EVERY_4)
    crew.workers["a"].save(JobState(device=CPU, models=[net]).capture(), generation=9)
    assert (tmp_path / "g000009-step-000000000" / "share-1-of-1.bin").stat().st_size == 20
