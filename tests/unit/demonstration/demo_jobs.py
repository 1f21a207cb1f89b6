"""Snapshots, changes and records of jobs that never ran."""

from elastane.model.ids import DeviceId, JobId, WorkerId
from elastane.model.records import JobPhase
from elastane.observe.metrics import MetricsRecord
from elastane.observe.snapshot import Change, JobSnapshot, Join, WorkerSnapshot


def make_worker(name: str, vranks: tuple[int, int] | None, **fields: object) -> WorkerSnapshot:
    place = DeviceId("cpu:0")
    return WorkerSnapshot(
        worker=WorkerId(name), phase="training", vranks=vranks, generation=1, device=place, **fields
    )


def make_snapshot(*workers: WorkerSnapshot, step: int = 0, **fields: object) -> JobSnapshot:
    """Return a job at rest that runs `workers`, unless fields say otherwise."""
    known: dict[str, object] = {
        "job": JobId("j"), "name": "demo", "script": "train.py", "arguments": (), "directory": "/tmp/j",
        "created_at_s": 0.0, "phase": JobPhase.TRAINING, "message": "", "wanted": len(workers), "minimum": 1,
        "stopping": False, "virtual_workers": 4, "generation": 1, "training": len(workers), "step": step,
        "epoch": 0, "values": {}, "rates": None, "workers": workers, "activity": (),
    }  # fmt: skip
    return JobSnapshot(**{**known, **fields})


def make_change(generation: int, mode: str, **fields: object) -> Change:
    return Change(generation=generation, at_s=0.0, mode=mode, **{"stop_s": 0.01, **fields})


def make_join(name: str, latency_s: float) -> Join:
    return Join(worker=WorkerId(name), latency_s=latency_s)


def make_record(step: int, loss: float = 0.5, **fields: object) -> MetricsRecord:
    known: dict[str, object] = {
        "step": step, "epoch": step // 12, "at_s": 100.0 + step, "generation": 1, "workers": 1,
        "step_time_s": 0.01, "samples": 128, "values": {"loss": loss},
    }  # fmt: skip
    return MetricsRecord(**{**known, **fields})
