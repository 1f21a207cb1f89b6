"""The simulator's pages say what is true: commands run, options exist, the example is the repository's."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from elastane.cli.sim import sim
from elastane.perf.overhead import PRESETS
from elastane.policy.registry import POLICIES
from elastane.sim.policy_choice import make_policy
from elastane.sim.readers import SACCT_COMMAND
from elastane.sim.report.files import JOB_COLUMNS

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in (
    "simulate-your-cluster", "policies", "write-your-own-policy",
)}  # fmt: skip
EXAMPLE = ROOT / "examples" / "fair_share_policy.py"

HISTORY = (
    "JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|State|NNodes|AllocTRES|ReqTRES\n"
    + "".join(
        f"{i}|u{i % 3}|vision|gpu|2026-01-{1 + i % 28:02d}T{i % 24:02d}:00:00"
        f"|2026-01-{1 + i % 28:02d}T{i % 24:02d}:10:00"
        f"|x|{3600 * (1 + i % 9)}|COMPLETED|1|gres/gpu={(1, 2, 4, 8)[i % 4]}|\n"
        for i in range(60)
    )
)


def commands() -> list[str]:
    """Return every `elastane sim` command in the pages' shell blocks."""
    blocks = (block for page in PAGES.values() for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL))
    return sorted(
        {line for block in blocks for line in block.splitlines() if line.startswith("elastane sim")}
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_every_command_in_the_pages_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "history.txt").write_text(HISTORY)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / EXAMPLE.name).write_text(EXAMPLE.read_text())
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(sim)
    result = CliRunner().invoke(app, [*shlex.split(command)[2:], "--jobs", "1"])
    assert result.exit_code == 0, result.output
    assert "Report: " in result.stdout


@pytest.mark.slow
def test_the_python_code_in_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGES["simulate-your-cluster"], re.DOTALL)
    (tmp_path / "history.txt").write_text(HISTORY)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "simulate-your-cluster.md", "exec"), {})
    printed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert printed == ["fifo-skip", "elastane"]
    assert (tmp_path / "report" / "report.html").exists()


def test_the_pages_have_commands_to_run() -> None:
    assert len(commands()) >= 6


def test_the_export_command_is_the_one_that_messages_give() -> None:
    assert SACCT_COMMAND in PAGES["simulate-your-cluster"]


def test_every_column_of_the_job_table_is_explained() -> None:
    assert [name for name in JOB_COLUMNS if f"`{name}`" not in PAGES["simulate-your-cluster"]] == []


def test_presets_named_in_the_pages_exist() -> None:
    named = set(re.findall(r"--overhead ([\w-]+)", PAGES["simulate-your-cluster"]))
    assert named <= set(PRESETS)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_described_with_its_options_and_defaults(name: str) -> None:
    page = PAGES["policies"]
    assert f"`{name}`" in page
    known = (
        {f.name for f in fields(POLICIES[name])} if hasattr(POLICIES[name], "__dataclass_fields__") else set()
    )
    table = _options_of(name)
    assert set(table) - {"quantum"} <= known
    assert known <= set(table)
    for option, default in table.items():
        value = getattr(make_policy(name), option, None)
        if isinstance(value, tuple):
            value = "+".join(f"{item:g}" for item in value) if len(value) < 9 else default
        assert value is None or default == (f"{value:g}" if isinstance(value, float) else str(value))


def _options_of(name: str) -> dict[str, str]:
    """Return option and default from the table that follows the paragraph on a policy, if one does."""
    paragraphs = PAGES["policies"].split("\n\n")
    for place, paragraph in enumerate(paragraphs):
        if paragraph.startswith("**") and f"**`{name}`**" in paragraph.split(":")[0]:
            following = paragraphs[place + 1] if place + 1 < len(paragraphs) else ""
            return dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", following, re.MULTILINE))
    raise AssertionError(f"no paragraph on {name}")


def test_the_example_in_the_page_is_the_file_and_is_short() -> None:
    text = EXAMPLE.read_text()
    assert text in PAGES["write-your-own-policy"]
    assert len(text.splitlines()) < 60


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in PAGES.values():
        for target in re.findall(r"\]\(([\w./-]+\.(?:md|png))\)", page):
            assert (ROOT / "docs" / target).exists(), target
