"""Sizes, habits and names that the house style sets, for all code that is shipped."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import DOCUMENTS, ROOT

import elastane

LIBRARY = sorted((ROOT / "src").rglob("*.py"))
SHIPPED = [*LIBRARY, *sorted((ROOT / "demo").glob("*.py")), *sorted((ROOT / "benchmarks").glob("*.py"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
UNDONE = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
SHARED_NAMES = ("__init__.py", "conftest.py")
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}

FILE_LINES = 500
FUNCTION_LINES = 50
EXAMPLE_LINES = 80


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def walk_functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_files_and_functions_are_short_enough_to_be_read() -> None:
    files = {name_of(path): len(path.read_text().splitlines()) for path in SHIPPED}
    assert {name: lines for name, lines in files.items() if lines > FILE_LINES} == {}
    # Counted from the first statement: the signature of a command declares its flags, a line or two each.
    functions = {
        f"{name_of(path)}:{function.name}": (function.end_lineno or 0) - function.body[0].lineno + 1
        for path in SHIPPED
        for function in walk_functions(path)
    }
    assert {name: lines for name, lines in functions.items() if lines > FUNCTION_LINES} == {}


def test_examples_are_short() -> None:
    files = {name_of(path): len(path.read_text().splitlines()) for path in EXAMPLES}
    assert {name: lines for name, lines in files.items() if lines > EXAMPLE_LINES} == {}


def test_the_library_does_not_print() -> None:
    calls = [
        f"{name_of(path)}:{node.lineno}"
        for path in LIBRARY
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert calls == []


def test_nothing_is_marked_as_left_to_be_done() -> None:
    marked = [name_of(path) for path in [*SHIPPED, *EXAMPLES] if UNDONE.search(path.read_text())]
    assert marked == []


def test_no_two_files_of_tests_have_one_name() -> None:
    # pytest imports them by their bare names.
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in SHARED_NAMES)
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_has_a_vague_name() -> None:
    vague = [name_of(path) for path in SHIPPED if VAGUE & set(path.relative_to(ROOT).with_suffix("").parts)]
    assert vague == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        name_of(path) for path in [*SHIPPED, *EXAMPLES] if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_every_exported_name_is_there_and_documented() -> None:
    pages = "\n".join(path.read_text() for path in DOCUMENTS)
    assert elastane.__all__ == sorted(elastane.__all__)
    for name in elastane.__all__:
        assert getattr(elastane, name).__doc__, name
        assert f"elastane.{name}" in pages, name


def test_every_method_of_a_job_is_documented_and_explained_on_a_page() -> None:
    pages = "\n".join(path.read_text() for path in DOCUMENTS)
    public = [name for name in vars(elastane.Job) if not name.startswith("_")]
    assert len(public) > 10
    for name in public:
        assert getattr(elastane.Job, name).__doc__, name
        assert re.search(rf"\bjob\.{name}\b", pages), name


def test_an_unknown_name_is_no_part_of_the_package() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Jobb'"):
        elastane.Jobb  # noqa: B018
