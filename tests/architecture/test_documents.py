"""Documents: links lead somewhere, examples run, commands exist."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import DOCUMENTS, ROOT, find_anchors, find_blocks, find_links

from elastane.cli.main import main

GUIDE = ROOT / "docs" / "make-your-script-elastic.md"
BEGINNING, *EXAMPLES = find_blocks(GUIDE, "python")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    broken = []
    for link in find_links(path):
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        if not file.exists() or (anchor and anchor not in find_anchors(file)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_of_the_guide_runs_after_its_beginning(number: int) -> None:
    script = compile(f"{BEGINNING}\n\n{EXAMPLES[number]}", f"{GUIDE.name}, example {number + 1}", "exec")
    exec(script, {"__name__": "__main__"})


@pytest.mark.parametrize("number", range(2))
def test_every_example_of_the_page_on_batch_policies_runs(number: int) -> None:
    page = ROOT / "docs" / "batch-policies.md"
    exec(compile(find_blocks(page, "python")[number], page.name, "exec"), {"__name__": "__main__"})


def test_the_script_of_the_readme_runs(tmp_path: Path) -> None:
    (script,) = find_blocks(ROOT / "README.md", "python")
    (tmp_path / "train.py").write_text(script.replace("job.epochs(10)", "job.epochs(1)"))
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model.pt").exists()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_python_block_is_python(path: Path) -> None:
    for block in find_blocks(path, "python"):
        ast.parse(block)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_source_file_and_name_in_it_that_a_document_points_at_exists(path: Path) -> None:
    missing = []
    for file, name in re.findall(r"`([a-z_]+/[a-z_/]+\.py)(?::(\w+))?`", path.read_text()):
        found = next((f for f in (ROOT / file, ROOT / "src" / "elastane" / file) if f.exists()), None)
        if found is None or (
            name and not re.search(rf"^ *(?:def|class) {name}\b", found.read_text(), re.MULTILINE)
        ):
            missing.append((file, name))
    assert missing == []


def test_every_make_target_that_documents_name_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for path in DOCUMENTS
        for target in re.findall(r"(?:`|^)make ([a-z]+)", path.read_text(), re.MULTILINE)
    }
    assert named <= targets
    assert {"demo", "test"} <= named


def test_every_command_that_documents_name_exists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    commands = set(re.findall(r"^  (\w+)  ", capsys.readouterr().out.partition("Commands:")[2], re.MULTILINE))
    for path in DOCUMENTS:
        named = set(re.findall(r"^elastane ([a-z]+)", "\n".join(find_blocks(path, "")), re.MULTILINE))
        assert named <= commands, path
