"""Set-up for tests that send signals to processes which they start."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from elastic_world import Outcome, run_alone
from nodes_world import SIZE


@pytest.fixture(autouse=True)
def _ctrl_c_means_what_it_does_in_a_terminal() -> Iterator[None]:
    # A shell starts its background jobs with SIGINT ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What the script of `nodes_world` comes to when nothing happens to it."""
    return run_alone(tmp_path_factory.mktemp("alone"), *SIZE)


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """A folder in which a script looks whether it may hurry."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder
