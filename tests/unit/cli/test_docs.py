"""The page about the command line says what the command line does."""

import dataclasses
import re
from pathlib import Path

import pytest

from elastane.cli.exits import Exit
from elastane.cli.main import main
from elastane.cli.outcome import Outcome
from elastane.observe.metrics import MetricsRecord
from elastane.observe.snapshot import Change, JobSnapshot, WorkerSnapshot

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()


def test_every_exit_code_is_documented_and_no_other() -> None:
    rows = re.findall(r"^\| (\d+) \| (?:`(\w+)`)?", PAGE, re.MULTILINE)
    assert {(int(code), kind) for code, kind in rows} == {
        (int(code), "" if code is Exit.DONE else code.name.lower()) for code in Exit
    }


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("A **job**", JobSnapshot),
        ("A **worker**", WorkerSnapshot),
        ("A **change**", Change),
        ("An **outcome**", Outcome),
    ],
)
def test_every_field_of_the_json_is_documented(title: str, kind: type) -> None:
    paragraph = PAGE[PAGE.index(title) :].split("\n\n")[0]
    names = {field.name for field in dataclasses.fields(kind)} - {"kind", "changes", "events"}
    assert names <= set(re.findall(r"`(\w+)`", paragraph))


def test_every_field_of_the_metrics_is_documented() -> None:
    row = next(line for line in PAGE.splitlines() if "metrics.jsonl" in line)
    assert set(MetricsRecord.__struct_fields__) <= set(re.findall(r"`(\w+)`", row))


def test_every_command_and_flag_of_run_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    commands = re.findall(r"^  (\w+)  ", capsys.readouterr().out.partition("Commands:")[2], re.MULTILINE)
    assert commands[:3] == ["run", "ps", "show"]
    assert [command for command in commands if f"`elastane {command}" not in PAGE] == []
    assert main(["run", "--help"]) == 0
    flags = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert {flag for flag in flags if flag not in PAGE} == set()
