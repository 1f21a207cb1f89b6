"""How long a call takes in the embedded store, how soon another process sees it, and what waiting costs."""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.command import Findings, run_row
from benchmarks.figures import Figure, Row, make_figure
from benchmarks.pairs import measure_call_s
from benchmarks.processes import end_tree, start_python, wait_exit
from elastane.store.base import Put, PutEvent, Store
from elastane.store.open import open_store

ROW = Row(
    id="Store",
    name="store_latency",
    title="Calls of the embedded store",
    method=(
        "One process calls, a second one writes for the watch. The watch is timed by the monotonic clock, "
        "which all processes of a machine share: each value carries the time at which its put began. "
        "`beside a busy thread`: another thread of the caller keeps the interpreter busy, as training "
        "does. A quiet watch is one that nothing happens on."
    ),
)

PAYLOAD_BYTES = 400  # about one member's record
IDLE_S = 5.0
WRITER = "--writer"
"""First argument of the second process."""


def measure(quick: bool) -> Findings:
    """Measure everything."""
    share = 10 if quick else 1
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite://{folder}/store.db"
        durations = measure_calls(url, 2000 // share)
        log = Path(folder, "writer.log")
        durations["watch, puts 10 ms apart"] = measure_watch(url, 300 // share, 0.010, log)
        durations["watch, puts 1 s apart"] = measure_watch(url, 5, 1.0, log)
        durations |= measure_beside_a_busy_thread(url, 40)
        figures = [_in_ms(name, values_s) for name, values_s in durations.items()]
        idle_percents = [measure_idle_percent(url) for _ in range(1 if quick else 3)]
        figures.append(make_figure("quiet watch, share of a core", "store", idle_percents, "%"))
        kibibytes = Path(folder, "store.db").stat().st_size / 1024
        figures.append(make_figure("file", "store", [kibibytes], "KiB"))
    return Findings(figures=figures)


def _in_ms(name: str, durations_s: list[float]) -> Figure:
    return make_figure(name, "store", [duration_s * 1e3 for duration_s in durations_s], "ms")


def measure_often(call: Callable[[], object], repeats: int, pause_s: float = 0.0) -> list[float]:
    """Return how long each of `repeats` calls took, in seconds."""
    durations_s = []
    for _ in range(repeats):
        durations_s.append(measure_call_s(call))
        time.sleep(pause_s)
    return durations_s


def put_time(store: Store, key: str = "bench") -> None:
    """Write the present time."""
    value = f"{time.monotonic():.9f}".encode().ljust(PAYLOAD_BYTES)
    store.transact(puts=[Put(key=key, value=value)])


def measure_calls(url: str, repeats: int) -> dict[str, list[float]]:
    """Return the durations of the calls of a lone process."""
    with open_store(url) as store:
        lease = store.grant(600)
        return {
            "put": measure_often(lambda: put_time(store, "own"), repeats),
            "put, 5 ms apart": measure_often(lambda: put_time(store, "own"), repeats // 7, 0.005),
            "get": measure_often(lambda: store.get("own"), repeats),
            "renew": measure_often(lambda: store.renew(lease), repeats),
        }


def write_stamps(url: str, count: int, pause_s: float) -> None:
    """Be the other process: write `count` stamps, `pause_s` apart."""
    with open_store(url) as store:
        for _ in range(count):
            time.sleep(pause_s)
            put_time(store)


def measure_watch(url: str, count: int, pause_s: float, log: Path) -> list[float]:
    """Return the delays from the beginning of another process's put until this one's watch tells it.

    What the other process says goes to `log`.
    """
    delays_s: list[float] = []
    with open_store(url) as store, store.watch("bench", store.range("").revision) as watch:
        arguments = ["-m", "benchmarks.store_latency", WRITER, url, str(count), str(pause_s)]
        writer: subprocess.Popen[bytes] = start_python(arguments, log)
        try:
            while len(delays_s) < count:
                puts = [event for event in watch.wait(1.0) if isinstance(event, PutEvent)]
                now_s = time.monotonic()
                delays_s += [now_s - float(event.entry.value) for event in puts]
            wait_exit(writer, log)
        finally:
            end_tree(writer)
    return delays_s


def measure_idle_percent(url: str) -> float:
    """Return the share of one core that a quiet watch takes, in percent."""
    with open_store(url) as store, store.watch("bench", store.range("").revision) as watch:
        watch.wait(1.0)
        begin_s = time.process_time()
        watch.wait(IDLE_S)
        return (time.process_time() - begin_s) / IDLE_S * 100


def measure_beside_a_busy_thread(url: str, repeats: int) -> dict[str, list[float]]:
    """Return the durations of puts and renewals while another thread keeps the interpreter busy."""
    is_over = threading.Event()

    def keep_busy() -> None:
        while not is_over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=keep_busy)
    thread.start()
    try:
        with open_store(url) as store:
            lease = store.grant(60)
            return {
                "put beside a busy thread": measure_often(lambda: put_time(store, "own"), repeats),
                "renew beside a busy thread": measure_often(lambda: store.renew(lease), repeats),
            }
    finally:
        is_over.set()
        thread.join()


if __name__ == "__main__":
    if sys.argv[1:2] == [WRITER]:
        write_stamps(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        run_row(ROW, measure)
