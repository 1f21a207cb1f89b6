"""Set-up for tests that send signals to processes which they start."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _ctrl_c_means_what_it_does_in_a_terminal() -> Iterator[None]:
    # A shell starts its background jobs with SIGINT ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
