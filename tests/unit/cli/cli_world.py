"""A home with one job whose records the tests write by hand, and the command line run against it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from elastane.checkpoint.catalog import write_file, write_manifest
from elastane.checkpoint.manifest import Manifest
from elastane.checkpoint.target import open_target
from elastane.cli.home import Home
from elastane.cli.main import main
from elastane.core.checkpoints import CheckpointName
from elastane.core.view import encode
from elastane.jobs.registry import NewJob, create_job, log_path
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import (
    AgentRecord,
    JobInfo,
    JobKeys,
    JobPhase,
    JobStatus,
    MemberRecord,
    ModelSignature,
    Spec,
    WorkerPhase,
)
from elastane.model.topology import Member, Mode, Topology, VrankRange
from elastane.observe.events import EVENTS_FILE, Event
from elastane.observe.metrics import METRICS_FILE, MetricsRecord, encode_record
from elastane.store.base import Put, Store
from elastane.store.open import open_store

A, B = WorkerId("aaaa"), WorkerId("bbbb")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class World:
    """A home folder, and hands to make it look as if jobs ran in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = Home(path=folder / "home")
        self.folder = folder
        self.capsys = capsys
        self.script = folder / "train.py"
        self.script.write_text("print('hello')\n")

    def elastane(self, *arguments: str) -> Result:
        self.capsys.readouterr()
        code = main([*arguments, "--home", str(self.home.path)])
        out, err = self.capsys.readouterr()
        return Result(code=int(code), out=out, err=err)

    def store(self) -> Store:
        return open_store(self.home.store_url)

    def create(self, name: str = "digits", wanted: int = 2) -> JobInfo:
        with self.store() as store:
            new = NewJob(
                name=name, script=str(self.script), arguments=("--lr", "0.1"), spec=Spec(wanted=wanted)
            )
            return create_job(store, self.home.path, new)

    def put(self, *records: tuple[str, Any]) -> None:
        with self.store() as store:
            store.transact(puts=[Put(key=key, value=encode(record)) for key, record in records])

    def train(self, name: str = "digits") -> JobInfo:
        """A job with two workers in steady training at step 41."""
        info = self.create(name)
        keys = JobKeys(info.job)
        node = NodeId("n0")
        members = tuple(
            Member(worker=worker, vranks=vranks)
            for worker, vranks in ((A, VrankRange(0, 2)), (B, VrankRange(2, 4)))
        )
        self.put(
            (keys.status, JobStatus(phase=JobPhase.TRAINING)),
            (keys.signature, ModelSignature(virtual_workers=4, entries=())),
            (keys.current, Topology(generation=2, mode=Mode.PLANNED, members=members)),
            (
                f"{keys.prefix}agents/n0",
                AgentRecord(node=node, pid=1, devices=tuple(DeviceId(f"cpu:{i}") for i in range(3))),
            ),
            *(
                (
                    keys.member(worker),
                    MemberRecord(
                        worker=worker,
                        node=node,
                        device=DeviceId(f"cpu:{index}"),
                        pid=100 + index,
                        phase=WorkerPhase.TRAINING,
                        virtual_workers=4,
                        generation=2,
                        committed_step=41,
                        step_time_s=0.02,
                    ),
                )
                for index, worker in enumerate((A, B))
            ),
        )
        with self.store() as store:
            store.transact(puts=[Put(key=keys.leader, value=A.encode())])
        self.write_metrics(info, 41)
        self.write_event(
            info,
            "switched",
            1000.0,
            generation=2,
            step=30,
            stop_s=0.012,
            workers=2,
            mode="planned",
            moved_bytes=5_000,
        )
        self.write_event(info, "joined", 1000.5, worker=B, generation=2, step=30, latency_s=0.75)
        return info

    def end(self, info: JobInfo, phase: JobPhase, message: str = "", **more: Any) -> None:
        self.put((JobKeys(info.job).status, JobStatus(phase=phase, message=message, **more)))

    def write_metrics(self, info: JobInfo, steps: int) -> None:
        with (Path(info.directory) / METRICS_FILE).open("ab") as file:
            for step in range(steps):
                one = MetricsRecord(
                    step=step,
                    epoch=1,
                    at_s=1000.0,
                    generation=2,
                    workers=2,
                    step_time_s=0.02,
                    samples=64,
                    values={"lr": 0.1, "loss": 0.25},
                )
                file.write(encode_record(one))

    def write_event(self, info: JobInfo, kind: str, at_s: float, **fields: Any) -> None:
        event = Event(at_s=at_s, kind=kind, source=str(A), fields=fields)
        with (Path(info.directory) / EVENTS_FILE).open("ab") as file:
            file.write(encode(event) + b"\n")

    def save_checkpoint(self, info: JobInfo, step: int) -> Path:
        """Write a checkpoint of one share; return its folder."""
        target = open_target(info.directory, "checkpoints")
        name = CheckpointName(1, step)
        description = write_file(target, name.folder, "description.msgpack", memoryview(b"d"))
        share = write_file(target, name.folder, "share-1-of-1.bin", memoryview(b"s" * 99))
        write_manifest(
            target,
            Manifest(
                job=info.job,
                virtual_workers=4,
                generation=1,
                step=step,
                epoch=0,
                state_bytes=99,
                device_type="cpu",
                torch_version="2.13.0",
                written_at_s=0.0,
                description=description,
                shares=(share,),
            ),
        )
        return Path(target.url, name.folder)

    def write_log(self, info: JobInfo, worker: str, text: str) -> None:
        with log_path(Path(info.directory), worker).open("a") as file:
            file.write(text)

    def read_spec(self, info: JobInfo) -> Spec:
        with self.store() as store:
            entry = store.get(JobKeys(info.job).spec)
        assert entry is not None
        return msgspec.json.decode(entry.value, type=Spec)
