"""Any sequence of calls gives the same answers on SQLite, and on etcd, as on the store in memory."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import hypothesis.strategies as st
from etcd_names import RenamedStore
from etcd_server import EtcdServer
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from store_backends import Backend, make_etcd, make_memory, make_sqlite

from elastane.model.errors import CompactedError, LeaseLostError, StoreRequestError
from elastane.store.base import (
    Absent,
    Compare,
    CreateRevisionIs,
    Delete,
    DeleteKey,
    DeletePrefix,
    Exists,
    LeaseId,
    LeaseIs,
    ModRevisionIs,
    Put,
    Store,
    ValueIs,
    Watch,
)
from elastane.store.history import HistoryLimits

KEYS = st.sampled_from(["a", "a/", "a/1", "a/é", "b", "\U0010ffff"])
PREFIXES = st.sampled_from(["", "a", "a/", "b", "c", "\U0010ffff"])
VALUES = st.binary(max_size=3)
REVISIONS = st.integers(min_value=0, max_value=30)
LEASES = st.one_of(st.none(), st.integers(min_value=1, max_value=6).map(LeaseId))
COMPARES: st.SearchStrategy[Compare] = st.one_of(
    st.builds(ModRevisionIs, key=KEYS, revision=REVISIONS),
    st.builds(CreateRevisionIs, key=KEYS, revision=REVISIONS),
    st.builds(ValueIs, key=KEYS, value=VALUES),
    st.builds(LeaseIs, key=KEYS, lease=LEASES),
    st.builds(Exists, key=KEYS),
    st.builds(Absent, key=KEYS),
)
PUTS = st.builds(Put, key=KEYS, value=VALUES, lease=LEASES)
DELETES: st.SearchStrategy[Delete] = st.one_of(
    st.builds(DeleteKey, key=KEYS), st.builds(DeletePrefix, prefix=PREFIXES)
)
HANDLES = st.integers(min_value=0, max_value=1)


class StoreComparison(RuleBasedStateMachine):
    """Drive both stores through two handles each and compare every answer, also the refusals."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.backends = self.make_backends(Path(self.folder.name))
        self.handles = [[backend.open() for _ in range(2)] for backend in self.backends]
        self.watches: list[tuple[Watch, Watch]] = []

    def make_backends(self, folder: Path) -> list[Backend]:
        limits = HistoryLimits(events=12, total_bytes=60)
        return [make_memory(folder, limits), make_sqlite(folder, limits)]

    def teardown(self) -> None:
        self.range(0, "")
        for backend in self.backends:
            backend.close()
        self.folder.cleanup()

    def compare(self, handle: int, call: Callable[[Store], object]) -> None:
        memory, real = (get_outcome(partial(call, handles[handle])) for handles in self.handles)
        assert real == memory

    @initialize()
    def watch_everything(self) -> None:
        self.open_watch(0, "", 0)

    @rule(
        handle=HANDLES,
        compares=st.lists(COMPARES, max_size=1),
        puts=st.lists(PUTS, max_size=3),
        deletes=st.lists(DELETES, max_size=2),
    )
    def transact(self, handle: int, compares: list[Compare], puts: list[Put], deletes: list[Delete]) -> None:
        self.compare(handle, lambda store: store.transact(compares, puts, deletes))

    @rule(handle=HANDLES, ttl_s=st.integers(min_value=1, max_value=5))
    def grant(self, handle: int, ttl_s: int) -> None:
        self.compare(handle, lambda store: store.grant(ttl_s))

    @rule(handle=HANDLES, lease=LEASES)
    def renew(self, handle: int, lease: LeaseId | None) -> None:
        self.compare(handle, lambda store: store.renew(lease or LeaseId(1)))

    @rule(handle=HANDLES, lease=LEASES)
    def revoke(self, handle: int, lease: LeaseId | None) -> None:
        self.compare(handle, lambda store: store.revoke(lease or LeaseId(1)))

    @rule(duration_s=st.integers(min_value=0, max_value=4))
    def pass_time(self, duration_s: int) -> None:
        for backend in self.backends:
            backend.clock.advance(duration_s)

    @rule(handle=HANDLES, key=KEYS)
    def get(self, handle: int, key: str) -> None:
        self.compare(handle, lambda store: store.get(key))

    @rule(handle=HANDLES, prefix=PREFIXES, after_revision=REVISIONS)
    def open_watch(self, handle: int, prefix: str, after_revision: int) -> None:
        memory, real = (handles[handle].watch(prefix, after_revision) for handles in self.handles)
        self.watches.append((memory, real))

    @rule(choice=st.integers(min_value=0), timeout_s=st.sampled_from([0, 2]))
    def follow_watch(self, choice: int, timeout_s: int) -> None:
        memory, real = self.watches[choice % len(self.watches)]
        expected = get_outcome(lambda: memory.wait(timeout_s))
        assert get_outcome(lambda: real.wait(timeout_s)) == expected

    @rule(handle=HANDLES, prefix=PREFIXES)
    def range(self, handle: int, prefix: str) -> None:
        self.compare(handle, lambda store: store.range(prefix))


def get_outcome(call: Callable[[], object]) -> object:
    """Return what a call returns, or the kind and words of its refusal; a lost lease has words of its own."""
    try:
        return call()
    except LeaseLostError:
        return LeaseLostError
    except (CompactedError, StoreRequestError) as error:
        return type(error), str(error)


class EtcdComparison(StoreComparison):
    """Compare etcd with the store in memory, both with a history that is long enough."""

    server: EtcdServer

    def make_backends(self, folder: Path) -> list[Backend]:
        etcd = make_etcd(self.server, HistoryLimits())
        renaming = Backend(RenamedStore.opener(etcd), etcd.clock)
        return [make_memory(folder, HistoryLimits()), renaming]


def test_any_sequence_of_calls_gives_the_same_answers_on_etcd(etcd_server: EtcdServer) -> None:
    EtcdComparison.server = etcd_server
    bounds = settings(max_examples=15, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(EtcdComparison, settings=bounds)  # type: ignore[no-untyped-call]


TestStoreComparison = StoreComparison.TestCase
TestStoreComparison.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
