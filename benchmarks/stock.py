"""Run stock PyTorch programs and read what they measured."""

import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.pairs import Turn, compute_steps_between
from benchmarks.processes import end_tree, find_free_port, start_python, wait_exit
from benchmarks.workloads import Workload


def train_ddp(workload: Workload, workers: int, warm_up: int, steps: int, folder: Path) -> Turn:
    """Train with DistributedDataParallel; return what the steps after the first `warm_up` ones took."""
    arguments = ("--workload", workload.name, "--steps", str(warm_up + steps + 1), "--out", str(folder))
    _run_ranks("stock_ddp", arguments, workers, folder)
    return read_turn([folder / f"rank{number}.json" for number in range(workers)], warm_up)


def train_accumulating(
    workload: Workload, micro_batches: int, warm_up: int, steps: int, folder: Path
) -> Turn:
    """Train in one process with gradient accumulation; return what the steps after the first ones took."""
    log = folder / "stock.log"
    process = start_python(
        [
            *("-m", "benchmarks.scripts.stock_accumulation", "--workload", workload.name),
            *("--micro-batches", str(micro_batches), "--steps", str(warm_up + steps + 1)),
            *("--out", str(folder)),
        ],
        log,
    )
    try:
        wait_exit(process, log)
    finally:
        end_tree(process)
    return read_turn([folder / "rank0.json"], warm_up)


def read_turn(paths: Sequence[Path], warm_up: int) -> Turn:
    """Return what the ranks wrote, without the first `warm_up` steps; the first rank tells the times."""
    ranks = [json.loads(path.read_text()) for path in paths]
    periods = compute_steps_between(ranks[0]["at_s"][warm_up:])
    cpu_s = sum(rank["cpu_s"][-1] - rank["cpu_s"][warm_up] for rank in ranks)
    return Turn(periods=periods, cpu_s=cpu_s / len(periods))


def move_bytes(count: int, repeats: int, folder: Path) -> list[float]:
    """Move so many bytes between two processes over gloo; return how long each time took, in seconds."""
    out = folder / "durations.json"
    arguments = ("--bytes", str(count), "--repeats", str(repeats), "--out", str(out))
    _run_ranks("gloo_move", arguments, 2, folder)
    return _read(out)


def _run_ranks(script: str, arguments: Sequence[str], workers: int, folder: Path) -> None:
    """Start the ranks as torchrun would, without its agent, and wait for them."""
    port = find_free_port()
    started: list[tuple[subprocess.Popen[bytes], Path]] = []
    with ExitStack() as stack:
        for number in range(workers):
            log = folder / f"rank{number}.log"
            place = {
                "RANK": str(number),
                "WORLD_SIZE": str(workers),
                "LOCAL_RANK": str(number),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            process = start_python(["-m", f"benchmarks.scripts.{script}", *arguments], log, place)
            stack.callback(end_tree, process)
            started.append((process, log))
        for process, log in started:
            wait_exit(process, log)


def _read(path: Path) -> list[float]:
    values: list[float] = json.loads(path.read_text())
    return values
