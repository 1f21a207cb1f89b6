"""The back ends of the store contract as fixtures."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_backends import BACKENDS, Backend

from elastane.store.base import Store
from elastane.store.history import HistoryLimits


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    made = BACKENDS[request.param](tmp_path, HistoryLimits())
    yield made
    made.close()


@pytest.fixture(params=BACKENDS)
def forgetful(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """A back end that keeps at most 8 events, and 1,000 bytes of them."""
    made = BACKENDS[request.param](tmp_path, HistoryLimits(events=8, total_bytes=1000))
    yield made
    made.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.open()


@pytest.fixture
def other(backend: Backend, store: Store) -> Store:
    """Another process's handle on the same store."""
    return backend.open()
