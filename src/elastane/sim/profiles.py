"""Load speed profiles: the published ones that the package carries, or a user's own CSV.

A set of profiles comes from one source and is measured alike; a trace without models draws from one set.
Works are the lengths of whole training runs, for traces that name a run and not its duration.
Knows files and nouns, no jobs.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from elastane.model.cluster import LINEAR, Profile, SpeedPoint
from elastane.model.errors import ConfigError
from elastane.observe.profiles import load_profile
from elastane.perf.measured import make_speed_profile
from elastane.sim.readers.fields import BadCell, parse_devices, parse_number
from elastane.sim.readers.lines import read_lines

SAMPLE_PACKAGE = "elastane.sim.sample"

SOURCES: dict[str, str] = {
    "pcs-afs": "AFS authors' measurements, as shipped with PCS (MIT)",
    "elasticflow-a100": "ElasticFlow, A100, 8 per node (Apache-2.0)",
    "elasticflow-t4": "ElasticFlow, T4 (Apache-2.0)",
    "gavel": "Gavel, V100/P100/K80, packed (MIT)",
    "pollux": "Pollux OSDI'21 artifact, T4, 4 per node (Apache-2.0)",
    "linear": LINEAR.source,
}
"""The sets of profiles by name, with where each was measured."""

DEFAULT_SET = "elasticflow-a100"
"""Drawn from when a trace names no models: the most recent devices, measured up to 64 of them."""

_OWN_COLUMNS = ("profile", "devices", "samples_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSet:
    """Hold the profiles of one source by name, and the works of whole training runs in samples."""

    name: str
    profiles: Mapping[str, Profile]
    works: Mapping[str, float]


def load_profile_set(name: str) -> ProfileSet:
    """Return the set called `name`, or the user's own.

    That is a CSV file, one that `elastane profile` has written, or a folder of those.

    Raises ConfigError with the known names for any other name.
    """
    if name == "linear":
        return ProfileSet(name=name, profiles={LINEAR.name: LINEAR}, works={})
    if name in SOURCES:
        return _load_published(name)
    path = Path(name)
    if path.suffix == ".json" or path.is_dir():
        return _load_measured(path)
    if path.suffix in (".csv", ".gz") or path.exists():
        return _load_own(path)
    raise ConfigError(
        f"unknown set of profiles {name!r}. Known: {', '.join(SOURCES)}; or a CSV file with columns "
        f"{', '.join(_OWN_COLUMNS)}; or what `elastane profile` has written: a file, or a folder of them."
    )


def _load_published(name: str) -> ProfileSet:
    """Return a set from the package's own table."""
    folder = resources.files(SAMPLE_PACKAGE)
    text = gzip.decompress((folder / "profiles.csv.gz").read_bytes()).decode()
    points: dict[str, list[SpeedPoint]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if row["set"] == name:
            points.setdefault(row["profile"], []).append(
                SpeedPoint(
                    devices=int(row["devices"]),
                    samples_per_s=float(row["samples_per_s"]),
                    device_type=row["device_type"],
                    nodes=int(row["nodes"]),
                )
            )
    profiles = {key: _make(key, found, SOURCES[name]) for key, found in points.items()}
    rows = csv.DictReader(io.StringIO((folder / "works.csv").read_text()))
    works = {row["profile"]: float(row["work_samples"]) for row in rows if row["set"] == name}
    return ProfileSet(name=name, profiles=profiles, works=works)


def _load_measured(path: Path) -> ProfileSet:
    """Return the profiles in a file of `elastane profile`, or in all JSON files of a folder."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"the folder {path} holds no profile that `elastane profile` has written.")
    profiles: dict[str, Profile] = {}
    for file in files:
        profile = make_speed_profile(load_profile(file))
        if profile.name in profiles:
            raise ConfigError(
                f"{file}: another file of the folder has a profile called {profile.name!r}; measure one of "
                "them under another --name."
            )
        profiles[profile.name] = profile
    return ProfileSet(name=path.name, profiles=profiles, works={})


def _load_own(path: Path) -> ProfileSet:
    """Return the set in a user's CSV file, one line for each measurement."""
    points: dict[str, list[SpeedPoint]] = {}
    for line, cells in _own_rows(path, read_lines(path)):
        try:
            point = SpeedPoint(
                devices=parse_devices(cells["devices"], "devices"),
                samples_per_s=parse_number(cells["samples_per_s"], "samples_per_s"),
            )
        except BadCell as bad:
            raise ConfigError(f"{path}: line {line}: {bad}.") from bad
        points.setdefault(cells["profile"].strip(), []).append(point)
    if not points:
        raise ConfigError(f"{path}: the file holds no profile.")
    profiles = {key: _make(key, found, str(path)) for key, found in points.items()}
    return ProfileSet(name=path.name, profiles=profiles, works={})


def _own_rows(path: Path, lines: Iterable[str]) -> Iterable[tuple[int, dict[str, str]]]:
    """Yield line number and cells of each row; raise ConfigError if a column or a cell is missing."""
    columns: list[str] | None = None
    for number, cells in enumerate(csv.reader(lines), start=1):
        if columns is None:
            columns = [cell.strip().lower() for cell in cells]
            lacking = [name for name in _OWN_COLUMNS if name not in columns]
            if lacking:
                raise ConfigError(f"{path}: line 1 lacks column(s) {', '.join(lacking)} of a profile file.")
        elif len(cells) == len(columns):
            yield number, dict(zip(columns, cells, strict=True))
        elif cells:
            raise ConfigError(f"{path}: line {number} has {len(cells)} cells; line 1 names {len(columns)}.")


def _make(name: str, points: list[SpeedPoint], source: str) -> Profile:
    ordered = sorted(points, key=lambda point: (point.devices, point.nodes))
    return Profile(name=name, points=tuple(ordered), source=source)
