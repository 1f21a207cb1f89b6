"""What the package carries is what the published files give, and every file has its source written down."""

from __future__ import annotations

import csv
import gzip
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DATA = Path(__file__).parents[2] / "data"
SAMPLE = Path(__file__).parents[2] / "src" / "elastane" / "sim" / "sample"


def load_script(target: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("derive_sample", DATA / "derive_sample.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.TARGET = target  # type: ignore[attr-defined]
    return module


def test_deriving_the_tables_again_gives_the_same_tables(tmp_path: Path) -> None:
    load_script(tmp_path).main()
    for name in ("works.csv", "philly_sample.csv"):
        assert (tmp_path / name).read_text() == (SAMPLE / name).read_text()
    fresh, kept = (
        gzip.decompress((folder / "profiles.csv.gz").read_bytes()) for folder in (tmp_path, SAMPLE)
    )
    assert fresh == kept


def test_the_sample_is_a_piece_of_the_published_trace() -> None:
    with gzip.open(DATA / "traces" / "philly" / "philly_109k.csv.gz", "rt", newline="") as file:
        published = {tuple(row) for row in csv.reader(file)}
    with (SAMPLE / "philly_sample.csv").open(newline="") as file:
        assert {tuple(row) for row in csv.reader(file)} <= published


@pytest.mark.parametrize(
    "folder", sorted(path for path in DATA.glob("*/*") if path.is_dir()), ids=lambda p: p.name
)
def test_every_folder_of_data_has_its_source_in_the_readme(folder: Path) -> None:
    assert f"`{folder.relative_to(DATA).as_posix()}/" in (DATA / "README.md").read_text()


def test_the_data_stay_small() -> None:
    total = sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file())
    assert total < 4_000_000
