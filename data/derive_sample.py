"""Derive what the installed package carries: speed profiles and a small sample trace.

Reads data/profiles/ and data/traces/, writes three tables into src/elastane/sim/sample/. Run it again after
a change: `python data/derive_sample.py`. Columns and sources: data/README.md.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PROFILES = HERE / "profiles"
TARGET = HERE.parent / "src" / "elastane" / "sim" / "sample"

Point = tuple[str, str, str, int, int, float]
"""Set, profile, device type, devices, nodes, samples per second."""

POLLUX_EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
"""Epochs after which a Pollux application is done (from the artifact's application table)."""

POLLUX_DEVICES_PER_NODE = 4
SAMPLE_VC, SAMPLE_FIRST, SAMPLE_JOBS = "ee9e8c", 3800, 400
"""The sample: 400 jobs in a row of one virtual cluster, 6 days, 62 % of them on several GPUs. Chosen because
hardly any of its jobs outlives the window, so that plots show the window and not one job of 60 days."""

LARGEST_YOLOV3_LOCAL_BATCH = 8
"""The artifact caps yolov3 at 8 samples per GPU although 16 was measured."""


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file by column name."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def pcs_afs_points() -> Iterator[Point]:
    """Yield iterations per second of 11 models on 1 to 64 GPUs (fixed global batch)."""
    for row in read_rows(PROFILES / "pcs_afs" / "step_time_by_gpus.csv"):
        yield "pcs-afs", row["model"], "any", int(row["gpus"]), 1, 1.0 / float(row["seconds_per_iteration"])


def elasticflow_points(device_type: str) -> Iterator[Point]:
    """Yield samples per second for each model and global batch on 1 to 64 GPUs of 8-GPU nodes."""
    for path in sorted((PROFILES / "elasticflow" / f"throughputs_{device_type}").glob("*.csv")):
        for row in read_rows(path):
            batch = int(row.pop("global_batch_size"))
            for devices, iterations_per_s in row.items():
                value = float(iterations_per_s or 0)
                if value > 0:
                    name = f"{path.stem}@{batch}"
                    yield (
                        f"elasticflow-{device_type.lower()}",
                        name,
                        device_type,
                        int(devices),
                        1,
                        value * batch,
                    )


def gavel_points() -> Iterator[Point]:
    """Yield samples per second of 26 job types on V100, P100 and K80 (fixed batch per GPU, packed).

    The measured steps are those of all GPUs together: a job on 8 GPUs has up to 8 times the steps per second
    of one GPU, each of the job type's batch.
    """
    rows = read_rows(PROFILES / "gavel" / "gavel_simulation_isolated.csv")
    # The fastest type first: it is the one that "one device" means where a trace does not say.
    for row in sorted(rows, key=lambda row: ("v100", "p100", "k80").index(row["worker_type"].split("_")[0])):
        steps_per_s, devices = float(row["steps_per_sec"]), int(row["scale_factor"])
        if steps_per_s <= 0 or row["worker_type"].endswith("unconsolidated"):
            continue
        batch = re.search(r"batch size (\d+)", row["job_type"])
        samples = steps_per_s * (int(batch.group(1)) if batch else 1)
        yield "gavel", row["job_type"], row["worker_type"].upper(), devices, 1, samples


class PolluxApp:
    """Hold one application's measurements and answer what its papers' simulator asks of them."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.curves: dict[tuple[int, int], list[tuple[float, float, float]]] = defaultdict(list)
        balance: dict[tuple[int, int], int] = {}
        for row in read_rows(folder / "placements.csv"):
            digits = [int(digit) for digit in row["placement"]]
            key, spread = (sum(digits), len(digits)), max(digits) - min(digits)
            if spread < balance.get(key, 99):
                balance[key] = spread
                self.curves[key].clear()
            if spread == balance[key]:
                self._add(key, row)
        for row in read_rows(folder / "scalability.csv"):
            key = (int(row["num_replicas"]), int(row["num_nodes"]))
            if key not in balance:
                self._add(key, row)
        self.validations = {
            int(path.stem.removeprefix("validation-")): read_rows(path)
            for path in folder.glob("validation-*.csv")
        }

    def _add(self, key: tuple[int, int], row: dict[str, str]) -> None:
        local = int(row["local_bsz"])
        if self.name == "yolov3" and local > LARGEST_YOLOV3_LOCAL_BATCH:
            return
        self.curves[key].append((local, float(row["step_time"]), float(row["sync_time"])))

    def samples_per_s(self, devices: int, nodes: int, batch: int) -> float | None:
        """Return the speed at a fixed global batch, or None where the batch per GPU was not measured."""
        curve = sorted(set(self.curves[devices, nodes]))
        sizes = [size for size, _, _ in curve]
        local = batch / devices
        if local < sizes[0]:
            return None
        extra_steps = max(0, int(np.ceil(local / sizes[-1])) - 1)
        local /= extra_steps + 1
        step_s = float(np.interp(local, sizes, [step for _, step, _ in curve]))
        sync_s = float(np.interp(local, sizes, [sync for _, _, sync in curve]))
        return batch / (step_s + extra_steps * (step_s - sync_s))

    def work_samples(self, batch: int) -> float:
        """Return the samples of a whole training run at `batch`: iterations to the last epoch x batch."""
        epoch = POLLUX_EPOCHS[self.name] - 1
        goal = min(float(rows[epoch]["progress"]) for rows in self.validations.values() if len(rows) > epoch)
        rows = self.validations[batch]
        progress = [0.0] + [float(row["progress"]) for row in rows]
        iterations = [0.0] + [float(row["iteration"]) for row in rows]
        return float(np.interp(goal, progress, iterations)) * batch


def pollux_tables() -> tuple[list[Point], list[tuple[str, float]]]:
    """Return speeds and works of every application at every batch with a recorded training run."""
    points: list[Point] = []
    works: list[tuple[str, float]] = []
    for folder in sorted((PROFILES / "pollux").iterdir()):
        app = PolluxApp(folder)
        for batch in sorted(app.validations):
            name = f"{app.name}@{batch}"
            works.append((name, app.work_samples(batch)))
            for devices, nodes in sorted(app.curves):
                speed = app.samples_per_s(devices, nodes, batch)
                if speed is not None:
                    points.append(("pollux", name, "T4", devices, nodes, speed))
    return points, works


def sample_rows() -> list[dict[str, str]]:
    """Return the sample's rows, as they stand in the 109k Philly trace."""
    with gzip.open(HERE / "traces" / "philly" / "philly_109k.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["vc"] == SAMPLE_VC]
    rows.sort(key=lambda row: float(row["submit_time"]))
    return rows[SAMPLE_FIRST : SAMPLE_FIRST + SAMPLE_JOBS]


def main() -> None:
    """Write the three tables."""
    pollux, works = pollux_tables()
    points = [
        *pcs_afs_points(),
        *elasticflow_points("A100"),
        *elasticflow_points("T4"),
        *gavel_points(),
        *pollux,
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("set", "profile", "device_type", "devices", "nodes", "samples_per_s"))
    writer.writerows((*point[:5], f"{point[5]:.6g}") for point in points)
    packed = gzip.compress(text.getvalue().encode(), mtime=0)
    (TARGET / "profiles.csv.gz").write_bytes(packed)
    with (TARGET / "works.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("set", "profile", "work_samples"))
        writer.writerows(("pollux", name, f"{work:.8g}") for name, work in works)
    rows = sample_rows()
    with (TARGET / "philly_sample.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
