"""The entry point: commands that come with other parts, and errors that must not become tracebacks."""

import re
import sys
import types
from pathlib import Path

import pytest

from elastane.cli import look
from elastane.cli import main as entry
from elastane.cli.main import HeavyCommand, main
from elastane.model.errors import ElastaneError, StoreFullError
from elastane.store.open import open_store


def listed(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["--help"]) == 0
    return capsys.readouterr().out


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Usage: elastane" in "".join(capsys.readouterr())


def test_a_heavy_command_is_listed_unloaded_and_loaded_when_called(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy = HeavyCommand(module="this", function="weigh", help="Weigh a lot.")  # any module of the library
    monkeypatch.setattr(entry, "HEAVY_COMMANDS", {"weigh": heavy})
    monkeypatch.delitem(sys.modules, "this", raising=False)
    assert re.search(r"weigh +Weigh a lot\.", listed(capsys))
    assert "this" not in sys.modules
    monkeypatch.setitem(sys.modules, "this", types.SimpleNamespace(weigh=lambda: 7))  # type: ignore[arg-type]
    monkeypatch.setattr(entry.importlib.util, "find_spec", lambda _name: object())
    assert main(["weigh"]) == 7


def test_a_heavy_command_that_is_not_installed_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy = HeavyCommand(module="elastane.cli.absent", function="weigh", help="Weigh a lot.")
    monkeypatch.setattr(entry, "HEAVY_COMMANDS", {"weigh": heavy})
    assert "weigh" not in listed(capsys)
    assert main(["weigh"]) == 2


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (StoreFullError("the disk is full"), 5, "elastane: the disk is full\n"),
        (ElastaneError("something else"), 1, "elastane: something else\n"),
        (
            OSError(28, "No space left on device", "/x"),
            5,
            "elastane: /x: No space left on device; free some space, or choose another home with --home\n",
        ),
        (OSError(71, "Protocol error"), 5, "elastane: Protocol error\n"),
        (OSError("unknown"), 5, "elastane: unknown\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_end_in_one_message_and_their_code(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    message: str,
    tmp_path: Path,
) -> None:
    def fail(*_arguments: object) -> None:
        raise error

    with open_store(f"sqlite://{tmp_path}/store.db"):
        pass

    monkeypatch.setattr(look, "look_at_all", fail)
    assert main(["ps", "--home", str(tmp_path)]) == code
    assert capsys.readouterr().err == message
