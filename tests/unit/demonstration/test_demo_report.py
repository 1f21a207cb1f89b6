"""What is told at the end, and what the folder of the results may lose."""

from pathlib import Path

import msgspec
import pytest
from demo.compare import Cost, Run
from demo.folder import MARKER, clear_folder, prepare_folder
from demo.processes import DemoError, find_digest
from demo.report import render_costs, save_result, tell_verdict
from demo_jobs import make_record
from rich.console import Console

RUN = Run(digest="ab12", records=(make_record(0, 0.25),))


def test_costs_stand_beside_that_of_a_restart() -> None:
    console = Console(record=True, width=120)
    console.print(render_costs([Cost(what="scale in", step=7, stop_s=0.002, join_s=None)], 3.0, 0.01))
    row = console.export_text().splitlines()[1]
    assert row.split() == ["scale", "in", "7", "2", "ms", "at", "least", "3.0", "s"]


def test_equal_runs_show_both_digests_and_the_last_loss() -> None:
    console = Console(record=True, width=40)
    tell_verdict(console, RUN, RUN, [])
    assert console.export_text().splitlines() == [
        "state sha256 ab12  elastic",
        "state sha256 ab12  undisturbed",
        "EQUAL: state and loss curve, every bit of all 1 steps (last loss 0.25)",
    ]


def test_unequal_runs_show_where_they_differ() -> None:
    console = Console(record=True, width=40)
    tell_verdict(console, RUN, RUN, ["first unequal step: 3"])
    assert console.export_text().splitlines() == ["NOT EQUAL:", "first unequal step: 3"]


def test_the_result_can_be_read_by_machines(tmp_path: Path) -> None:
    cost = Cost(what="scale in", step=7, stop_s=0.5, join_s=None)
    save_result(tmp_path / "result.json", ["a", "b"], ["x"], [cost])
    assert msgspec.json.decode((tmp_path / "result.json").read_bytes()) == {
        "digests": ["a", "b"],
        "differences": ["x"],
        "costs": [{"what": "scale in", "step": 7, "stop_s": 0.5, "join_s": None}],
    }


def test_the_last_digest_that_a_script_printed_counts(tmp_path: Path) -> None:
    first, last = "1" * 64, "2" * 64
    assert find_digest(f"digest {first}\nx\ndigest {last}\n", tmp_path) == last
    with pytest.raises(DemoError, match="printed no digest"):
        find_digest("digest 12\n", tmp_path)


def test_a_new_folder_is_made_and_an_earlier_one_emptied(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare_folder(out)
    (out / "elastic").mkdir()
    (out / "demo.png").touch()
    (out / "notes.txt").touch()
    prepare_folder(out)
    assert sorted(path.name for path in out.iterdir()) == [MARKER, "notes.txt"]


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(DemoError, match="holds something that no demonstration made"):
        prepare_folder(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(DemoError, match="holds something"):
        prepare_folder(tmp_path / "file")
    assert (tmp_path / "plain").is_dir()


def test_clearing_a_folder_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    clear_folder(tmp_path / "nowhere")
