"""Which modules a preloaded parent imports for a script."""

import sys
from pathlib import Path

import pytest

from elastane.agent.preload import find_imports, find_preloads, preload

SCRIPT = """
import os, numpy as np
import torch.nn.functional as F
from torch.optim import lr_scheduler, SGD
from . import sibling
from own import thing
from collections import *
try:
    import msgspec
except ImportError:
    import fallback

def later():
    import lazily

if __name__ == "__main__":
    import guarded
"""


def test_top_level_imports_are_found_in_order_and_others_are_left_alone() -> None:
    assert find_imports(SCRIPT) == (
        "os",
        "numpy",
        "torch.nn.functional",
        "torch.optim",
        "torch.optim.lr_scheduler",
        "torch.optim.SGD",
        "own",
        "own.thing",
        "collections",
        "msgspec",
    )


@pytest.mark.parametrize("source", ["def broken(:", "a\0b"])
def test_a_script_that_cannot_be_parsed_has_no_imports(source: str) -> None:
    assert find_imports(source) == ()


def test_modules_of_the_scripts_own_folder_are_not_preloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    script = tmp_path / "train.py"
    script.write_text("import own, json, elastane, sys, numpy, no_such_package\n")
    assert find_preloads(script) == ("json", "elastane", "sys", "numpy")


def test_a_script_that_cannot_be_read_preloads_nothing(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    assert find_preloads(script) == ()
    script.write_bytes(b"\xff\xfe\xff")
    assert find_preloads(script) == ()


def test_imports_that_fail_are_reported_and_names_that_are_no_modules_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "breaks_badly.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    done, failed = preload(["json", "json.JSONDecoder", "json.nothing", "breaks_badly", "breaks_badly.part"])
    assert done == ["json"]
    assert failed == {
        "json.nothing": "ModuleNotFoundError: No module named 'json.nothing'",
        "breaks_badly": "SystemExit: 3",
    }
    assert "breaks_badly" not in sys.modules


def test_the_standard_library_counts_as_installed_wherever_it_lies(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import math, xml.dom\nfrom email import message\n")
    assert find_preloads(script) == ("math", "xml.dom", "email", "email.message")
