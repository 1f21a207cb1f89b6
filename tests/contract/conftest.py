"""The back ends of the store contract as fixtures."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from etcd_server import EtcdServer, running_etcd
from store_backends import BACKENDS, LOCAL_BACKENDS, Backend, make_etcd

from elastane.store.base import Store
from elastane.store.history import HistoryLimits

FORGETFUL = HistoryLimits(events=8, total_bytes=1000)


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One server for all tests of this process; every test has a namespace of its own."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server


def make_backend(request: pytest.FixtureRequest, folder: Path, limits: HistoryLimits) -> Backend:
    if request.param in LOCAL_BACKENDS:
        return LOCAL_BACKENDS[request.param](folder, limits)
    return make_etcd(request.getfixturevalue("etcd_server"), limits)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    made = make_backend(request, tmp_path, HistoryLimits())
    yield made
    made.close()


@pytest.fixture(params=BACKENDS)
def forgetful(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """A back end that keeps at most 8 events, and 1,000 bytes of them."""
    made = make_backend(request, tmp_path, FORGETFUL)
    yield made
    made.close()


@pytest.fixture(params=LOCAL_BACKENDS)
def forgetful_local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """One of those whose open watches can fall behind; in etcd only one that begins too early can."""
    made = make_backend(request, tmp_path, FORGETFUL)
    yield made
    made.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.open()


@pytest.fixture
def other(backend: Backend, store: Store) -> Store:
    """Another process's handle on the same store."""
    return backend.open()
