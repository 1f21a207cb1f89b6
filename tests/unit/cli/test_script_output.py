from pathlib import Path

from elastane.cli.script_output import ScriptOutput
from elastane.model.ids import WorkerId
from elastane.model.records import JobPhase
from elastane.observe.snapshot import WorkerSnapshot


class Snapshot:
    """The part of a job's snapshot that decides whose output is shown: who runs which virtual workers."""

    phase = JobPhase.TRAINING

    def __init__(self, *workers: tuple[str, tuple[int, int] | None]) -> None:
        self.workers = tuple(
            WorkerSnapshot(worker=WorkerId(name), phase="training", vranks=vranks) for name, vranks in workers
        )


def write(folder: Path, worker: str, text: str) -> None:
    (folder / "logs").mkdir(exist_ok=True)
    with (folder / "logs" / f"{worker}.log").open("a") as log:
        log.write(text)


def test_only_the_main_workers_lines_are_shown_and_a_successors_from_then_on(tmp_path: Path) -> None:
    shown: list[tuple[str, str]] = []
    output = ScriptOutput(tmp_path, lambda worker, line: shown.append((worker, line)))
    write(tmp_path, "w1", "hello\nfrom w1\n")
    write(tmp_path, "w2", "hello\nfrom w2\n")
    output.update(Snapshot(("w1", None), ("w2", None)))
    assert shown == []
    output.update(Snapshot(("w1", (0, 2)), ("w2", (2, 4))))
    assert shown == [("w1", "hello"), ("w1", "from w1")]
    output.update(Snapshot(("w2", (0, 4))))
    write(tmp_path, "w2", "the end\nwithout a line end")
    output.update(Snapshot())
    assert shown[2:] == [("w2", "the end")]
    output.update(Snapshot(), last=True)
    assert shown[3:] == [("w2", "without a line end")]


def test_a_main_worker_that_has_printed_nothing_yet_is_no_error(tmp_path: Path) -> None:
    ScriptOutput(tmp_path, lambda worker, line: None).update(Snapshot(("w1", (0, 1))), last=True)
