"""How long a put takes in the embedded store, how soon another process sees it, and what waiting costs.

Run: python benchmarks/store_latency.py [directory]. Prints one table; takes about 20 seconds. The watch is
timed by CLOCK_MONOTONIC, which all processes of a machine share: each value carries the time at which its put
began.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from elastane.store.base import Put, PutEvent, Store
from elastane.store.open import open_store

PUTS = 2000
PAYLOAD_BYTES = 400  # about one member's record
IDLE_S = 5.0


def compute_quantiles_ms(durations_s: list[float]) -> str:
    """Return median, 99th percentile and maximum in milliseconds."""
    ordered = sorted(durations_s)
    quantiles_s = (statistics.median(ordered), ordered[int(len(ordered) * 0.99)], ordered[-1])
    return "median {:7.3f}  p99 {:7.3f}  max {:7.3f} ms".format(*(value_s * 1e3 for value_s in quantiles_s))


def measure(call: Callable[[], object], repeats: int, pause_s: float = 0.0) -> list[float]:
    """Return how long each of `repeats` calls took."""
    durations_s = []
    for _ in range(repeats):
        begin_s = time.monotonic()
        call()
        durations_s.append(time.monotonic() - begin_s)
        time.sleep(pause_s)
    return durations_s


def put_time(store: Store, key: str = "bench") -> None:
    """Write the present time."""
    value = f"{time.monotonic():.9f}".encode().ljust(PAYLOAD_BYTES)
    store.transact(puts=[Put(key=key, value=value)])


def measure_calls(url: str) -> dict[str, list[float]]:
    """Return the durations of the calls of a lone process."""
    with open_store(url) as store:
        lease = store.grant(600)
        return {
            "put": measure(lambda: put_time(store, "own"), PUTS),
            "put, 5 ms apart": measure(lambda: put_time(store, "own"), 300, 0.005),
            "get": measure(lambda: store.get("own"), PUTS),
            "renew": measure(lambda: store.renew(lease), PUTS),
        }


def write_stamps(url: str, count: int, pause_s: float) -> None:
    """Be the other process: write `count` stamps, `pause_s` apart."""
    with open_store(url) as store:
        for _ in range(count):
            time.sleep(pause_s)
            put_time(store)


def measure_watch(url: str, count: int, pause_s: float) -> list[float]:
    """Return the delays from the beginning of another process's put until this one's watch tells it."""
    delays_s: list[float] = []
    command = [sys.executable, __file__, "--writer", url, str(count), str(pause_s)]
    with (
        open_store(url) as store,
        store.watch("bench", store.range("").revision) as watch,
        subprocess.Popen(command),
    ):
        while len(delays_s) < count:
            puts = [event for event in watch.wait(1.0) if isinstance(event, PutEvent)]
            now_s = time.monotonic()
            delays_s += [now_s - float(event.entry.value) for event in puts]
    return delays_s


def measure_idle_percent(url: str) -> float:
    """Return the share of one core that a quiet watch takes, in percent."""
    with open_store(url) as store, store.watch("bench", store.range("").revision) as watch:
        watch.wait(1.0)
        begin_s = time.process_time()
        watch.wait(IDLE_S)
        return (time.process_time() - begin_s) / IDLE_S * 100


def measure_beside_a_busy_thread(url: str) -> dict[str, list[float]]:
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
                "put, busy thread": measure(lambda: put_time(store, "own"), 40),
                "renew, busy thread": measure(lambda: store.renew(lease), 40),
            }
    finally:
        is_over.set()
        thread.join()


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--writer", nargs=3, metavar=("URL", "COUNT", "PAUSE_S"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.writer:
        url, count, pause_s = arguments.writer
        write_stamps(url, int(count), float(pause_s))
        return
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        url = f"sqlite://{folder}/store.db"
        durations = measure_calls(url)
        durations["watch, 10 ms apart"] = measure_watch(url, 300, 0.010)
        durations["watch, 1 s apart"] = measure_watch(url, 5, 1.0)
        durations |= measure_beside_a_busy_thread(url)
        for name, durations_s in durations.items():
            print(f"{name:20}", compute_quantiles_ms(durations_s))
        print(f"quiet watch          {measure_idle_percent(url):.2f} % of one core")
        print(f"file                 {Path(folder, 'store.db').stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
