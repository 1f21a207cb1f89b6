"""A home in which tests make it look as if jobs ran."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_world import World


@pytest.fixture
def world(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("ELASTANE_HOME", raising=False)
    time.tzset()
    yield World(tmp_path, capsys)
    monkeypatch.undo()
    time.tzset()
