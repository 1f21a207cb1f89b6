"""A real etcd that is killed, frozen, replaced, locked up and guarded: what a handle then does."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from etcd_backend import compact
from etcd_server import EtcdServer, running_etcd
from etcd_setup import enable_users, make_certificates, running_cluster
from store_backends import put

from elastane.cli.examine import Verdict
from elastane.cli.examine_etcd import examine_etcd
from elastane.model.errors import (
    CompactedError,
    LeaseLostError,
    StoreAccessError,
    StoreAddressError,
    StoreError,
    StoreUnreachableError,
)
from elastane.store.base import Absent, DeleteEvent, Event, Put, PutEvent, Store, Watch
from elastane.store.etcd import EtcdStore
from elastane.store.etcd_address import PASSWORD_VARIABLE, USER_VARIABLE, parse_address
from elastane.store.open import open_store

pytestmark = pytest.mark.process

DEADLINE_S = 60.0  # what these tests wait for takes a second or two; only a hang reaches it
PATIENT = "timeout=10"  # for calls that are to succeed, however loaded the machine is
BRISK = "timeout=0.5"  # for calls that are to fail


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    """A server of the test's own."""
    with running_etcd(tmp_path / "etcd") as made:
        yield made


def retry(call: Callable[[], object]) -> object:
    """Return what a call returns as soon as it does; until then it may only find nobody."""
    until_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            return call()
        except StoreUnreachableError:
            assert time.monotonic() < until_s
            time.sleep(0.05)


def collect(watch: Watch, count: int) -> list[Event]:
    """Return the next `count` events, through outages."""
    events: list[Event] = []
    until_s = time.monotonic() + DEADLINE_S
    while len(events) < count:
        assert time.monotonic() < until_s, f"only {events} after {DEADLINE_S} s"
        with contextlib.suppress(StoreUnreachableError):
            events += watch.wait(0.5)
    return events


def values(events: list[Event]) -> list[bytes | None]:
    return [event.entry.value if isinstance(event, PutEvent) else None for event in events]


# --- time ---


def test_a_lease_lives_its_time_in_whole_seconds_and_no_less(server: EtcdServer) -> None:
    with open_store(f"etcd://{server.host}?{PATIENT}") as store:
        granted_at_s = time.monotonic()
        lease = store.grant(1.2)
        watch = store.watch("", put(store, "member", b"", lease))
        (event,) = collect(watch, 1)
        assert isinstance(event, DeleteEvent)
        assert time.monotonic() - granted_at_s >= 2
        with pytest.raises(LeaseLostError, match=f"lease {lease} has expired"):
            store.renew(lease)


def test_a_renewed_lease_outlives_its_time(server: EtcdServer) -> None:
    with open_store(f"etcd://{server.host}?{PATIENT}") as store, open_store(f"etcd://{server.host}") as other:
        lease = store.grant(4)
        watch = other.watch("", put(store, "member", b"", lease))
        until_s = time.monotonic() + 5
        while time.monotonic() < until_s:
            store.renew(lease)
            assert watch.wait(0.3) == []
        assert collect(watch, 1) == [DeleteEvent(key="member", revision=store.range("").revision)]


def test_a_watch_that_waits_is_woken_by_an_event_of_another_handle(server: EtcdServer) -> None:
    with open_store(f"etcd://{server.host}?{PATIENT}") as store, open_store(f"etcd://{server.host}") as other:
        watch = store.watch("job/", store.range("").revision)
        assert watch.poll() == []
        assert watch.wait(0.01) == []
        revision = put(other, "job/a", b"1")
        (event,) = watch.wait(DEADLINE_S)
        assert event.revision == revision


# --- killed and restarted ---


def test_a_handle_and_its_watch_go_on_by_themselves_after_a_restart(server: EtcdServer) -> None:
    with open_store(f"etcd://{server.host}?{PATIENT}") as store:
        watch = store.watch("", store.range("").revision)
        lease = store.grant(60)
        put(store, "before", b"1", lease)
        assert values(collect(watch, 1)) == [b"1"]
        server.restart()
        put(store, "after", b"2")  # the very first call, and a transaction: no error is due
        store.renew(lease)
        assert values(collect(watch, 1)) == [b"2"]


def test_a_watch_resumes_where_it_was_though_others_wrote_meanwhile(server: EtcdServer) -> None:
    with open_store(f"etcd://{server.host}?{PATIENT}") as store:
        watch = store.watch("", store.range("").revision)
        put(store, "a", b"1")
        assert values(collect(watch, 1)) == [b"1"]
        put(store, "a", b"2")
        server.restart()
        with open_store(f"etcd://{server.host}?{PATIENT}") as other:
            put(other, "a", b"3")
        assert values(collect(watch, 2)) == [b"2", b"3"]


def test_while_etcd_is_away_each_call_says_so_and_a_watch_soon_does(server: EtcdServer) -> None:
    with open_store(f"etcd://{server.host}?{BRISK}") as store:
        watch = store.watch("job/", store.range("").revision)
        server.kill()
        calls: list[Callable[[], object]] = [
            lambda: store.get("a"),
            lambda: store.range(""),
            lambda: put(store, "a"),
            lambda: store.grant(5),
            lambda: store.watch("", 0),
            lambda: open_store(f"etcd://{server.host}"),
        ]
        for call in calls:
            with pytest.raises(StoreUnreachableError, match=f"{server.host}: connection refused"):
                call()
        with pytest.raises(StoreUnreachableError, match="the watch on 'job/' has had no connection"):
            watch.wait(DEADLINE_S)
        with pytest.raises(StoreUnreachableError):
            watch.poll()
        server.start()
        retry(lambda: put(store, "job/a", b"back"))
        assert values(collect(watch, 1)) == [b"back"]


def test_a_watch_whose_history_was_compacted_while_it_was_cut_off_is_told(server: EtcdServer) -> None:
    url = f"etcd://{server.host}?{PATIENT}"
    with open_store(url) as store:
        watch = store.watch("a", put(store, "a", b"0"))
        server.restart()
        with open_store(url) as other:
            for number in range(5):
                revision = put(other, "a", b"%d" % number)
            compact(parse_address(url, {}), revision)
        with pytest.raises(CompactedError, match="read the range again"):
            collect(watch, 5)
        with pytest.raises(CompactedError, match="under 'a'"):
            watch.poll()
        fresh = store.watch("a", store.range("a").revision)
        put(store, "a", b"next")
        assert values(collect(fresh, 1)) == [b"next"]


def test_a_store_that_lost_its_past_is_not_taken_for_the_old_one(server: EtcdServer) -> None:
    with open_store(f"etcd://{server.host}?{PATIENT}") as store:
        for _ in range(5):
            revision = put(store, "a")
        watch = store.watch("", revision)
        assert watch.poll() == []
        server.kill()
        (server.folder / "data").rename(server.folder / "lost")
        server.start()
        with pytest.raises(CompactedError, match=r"the store went back from \d+ to 1: it was replaced"):
            collect(watch, 1)


# --- frozen ---


def test_a_frozen_etcd_fails_calls_in_bounded_time_and_all_goes_on_after_it(server: EtcdServer) -> None:
    with open_store(f"etcd://{server.host}?{BRISK}") as store:
        watch = store.watch("", store.range("").revision)
        with server.frozen():
            begun_s = time.monotonic()
            for call in (
                lambda: store.get("a"),
                lambda: store.grant(5),
                lambda: store.watch("", 0).wait(DEADLINE_S),
            ):
                with pytest.raises(
                    StoreUnreachableError, match=r"it did not (answer|accept the watch) in time"
                ):
                    call()
            with pytest.raises(StoreUnreachableError, match="may or may not have taken effect"):
                store.transact([Absent(key="once")], [Put(key="once", value=b"1")])
            assert time.monotonic() - begun_s < 20, "each has half a second"
        retry(lambda: put(store, "after", b"2"))
        events = collect(watch, 1)
        while b"2" not in values(
            events
        ):  # the transaction of unknown fate may come before it, after it, or never
            events += collect(watch, 1)
        assert [value for value in values(events) if value == b"2"] == [b"2"]


def test_a_watch_that_only_watches_notices_a_frozen_etcd(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastane.store.etcd_watch.ASK_AFTER_S", 0.2)
    with open_store(f"etcd://{server.host}?{BRISK}") as store:
        watch = store.watch("", store.range("").revision)
        assert watch.wait(0.5) == []
        with server.frozen(), pytest.raises(StoreUnreachableError):
            watch.wait(DEADLINE_S)
        put_event = retry(lambda: put(store, "a", b"1"))
        assert [event.revision for event in collect(watch, 1)] == [put_event]


# --- several members ---


def test_any_member_may_die_or_freeze_while_the_others_serve(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as members:
        hosts = ",".join(member.host for member in members)
        with open_store(f"etcd://{hosts}?timeout=3") as store:
            watch = store.watch("", store.range("").revision)
            lease = store.grant(60)
            retry(lambda: put(store, "a", b"0", lease))
            collect(watch, 1)
            for number, member in enumerate(members):
                member.freeze() if number % 2 else member.kill()
                retry(lambda: store.renew(lease))
                retry(lambda value=b"%d" % number: put(store, "b", value))
                events = collect(watch, 1)
                while b"%d" % number not in values(events):
                    events += collect(watch, 1)
                member.thaw() if number % 2 else member.start()
            assert store.get("b") is not None


def test_a_member_without_the_others_does_not_answer_for_them(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as members:
        with open_store(f"etcd://{members[0].host}?{PATIENT}") as store:
            retry(lambda: put(store, "a"))
        with open_store(f"etcd://{members[0].host}?{BRISK}") as store:
            for member in members[1:]:
                member.kill()
            with pytest.raises(StoreUnreachableError):
                store.get("a")
            for member in members[1:]:
                member.start()
            assert retry(lambda: store.get("a")) is not None


# --- TLS ---


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EtcdServer, Path]]:
    """A server that speaks TLS with clients that show a certificate, and the folder of all files."""
    folder = tmp_path_factory.mktemp("guarded")
    files = make_certificates(folder / "own")
    make_certificates(folder / "foreign")
    arguments = [
        *("--cert-file", str(files.server), "--key-file", str(files.server)),
        *("--client-cert-auth", "--trusted-ca-file", str(files.ca)),
    ]
    with running_etcd(folder / "etcd", scheme="https", arguments=arguments) as server:
        yield server, folder


def make_url(host: str, folder: Path, ca: str, client: str | None) -> str:
    shown = f"&cert={folder}/{client}/client.pem&key={folder}/{client}/client.pem" if client else ""
    return f"etcds://{host}/job?ca={folder}/{ca}/ca.pem{shown}&{PATIENT}"


def test_calls_and_watches_work_over_tls_with_a_client_certificate(guarded: tuple[EtcdServer, Path]) -> None:
    server, folder = guarded
    with open_store(make_url(server.host, folder, "own", "own")) as store:
        watch = store.watch("", store.range("").revision)
        put(store, "a", b"1" * 100_000)
        assert values(collect(watch, 1)) == [b"1" * 100_000]
        assert watch.poll() == []
        store.renew(store.grant(5))


@pytest.mark.parametrize(
    ("ca", "client", "kind", "message"),
    [
        ("foreign", "own", StoreAccessError, r"is not to be trusted: .*name its authority with \?ca=FILE"),
        ("own", None, StoreAccessError, "does not accept our TLS client certificate"),
        ("own", "foreign", StoreAccessError, "does not accept our TLS client certificate"),
        ("absent", "own", StoreAccessError, r"absent/ca.pem: no such file or directory; give readable PEM"),
    ],
)
def test_wrong_tls_files_are_told_with_what_to_do(
    guarded: tuple[EtcdServer, Path], ca: str, client: str | None, kind: type[StoreError], message: str
) -> None:
    server, folder = guarded
    with pytest.raises(kind, match=message):
        open_store(make_url(server.host, folder, ca, client))


def test_a_host_that_its_certificate_does_not_name_is_not_trusted(guarded: tuple[EtcdServer, Path]) -> None:
    server, folder = guarded
    with pytest.raises(StoreAccessError, match="certificate is not valid for 'localhost'"):
        open_store(make_url(f"localhost:{server.port}", folder, "own", "own"))


def test_tls_on_one_side_only_is_told(guarded: tuple[EtcdServer, Path], etcd_server: EtcdServer) -> None:
    server, folder = guarded
    with pytest.raises(StoreUnreachableError, match="write etcds:// if it wants TLS"):
        open_store(f"etcd://{server.host}")
    with pytest.raises(StoreUnreachableError, match="write etcd:// if it speaks no TLS"):
        open_store(make_url(etcd_server.host, folder, "own", None))


# --- users ---


@pytest.fixture(scope="module")
def members_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A server that knows users; see `enable_users`."""
    arguments = ["--bcrypt-cost", "4"]
    with running_etcd(tmp_path_factory.mktemp("users"), arguments=arguments) as server:
        enable_users(server)
        yield server


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    def set_login(user: str, password: str) -> None:
        monkeypatch.setenv(USER_VARIABLE, user)
        monkeypatch.setenv(PASSWORD_VARIABLE, password)

    return set_login


def test_user_and_password_come_from_the_environment(
    members_only: EtcdServer, login: Callable[[str, str], None]
) -> None:
    login("worker", "worker-secret")
    with open_store(f"etcd://{members_only.host}/team/a?{PATIENT}") as store:
        watch = store.watch("", store.range("").revision)
        lease = store.grant(60)
        put(store, "member", b"1", lease)
        store.renew(lease)
        assert values(collect(watch, 1)) == [b"1"]


def test_user_and_password_may_stand_in_the_url(members_only: EtcdServer) -> None:
    with open_store(f"etcd://worker:worker-secret@{members_only.host}/team?{PATIENT}") as store:
        put(store, "a")


@pytest.mark.parametrize(
    ("user", "password", "namespace", "message"),
    [
        ("", "", "team", f"it wants a user and a password; set {USER_VARIABLE}"),
        ("worker", "guessed-secret", "team", "user or password is wrong"),
        ("nobody", "guessed-secret", "team", "user or password is wrong"),
        ("worker", "worker-secret", "other", "the user may not read and write here"),
    ],
)
def test_whoever_is_not_let_in_is_told_why_but_no_secret(
    members_only: EtcdServer,
    login: Callable[[str, str], None],
    user: str,
    password: str,
    namespace: str,
    message: str,
) -> None:
    login(user, password)
    with pytest.raises(StoreAccessError, match=message) as caught:
        open_store(f"etcd://{members_only.host}/{namespace}?{PATIENT}")
    assert "secret" not in str(caught.value)


def test_a_login_that_ended_with_a_restart_is_made_anew(members_only: EtcdServer) -> None:
    with open_store(f"etcd://worker:worker-secret@{members_only.host}/team?{PATIENT}") as store:
        watch = store.watch("b", store.range("").revision)
        put(store, "b", b"1")
        assert values(collect(watch, 1)) == [b"1"]
        members_only.restart()
        put(store, "b", b"2")
        assert values(collect(watch, 1)) == [b"2"]


def test_users_that_etcd_does_not_know_do_not_matter(
    etcd_server: EtcdServer, login: Callable[[str, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    login("worker", "worker-secret")
    with open_store(f"etcd://{etcd_server.host}/unknown-users?{PATIENT}") as store:
        put(store, "a")
        store.watch("", 0).close()
    assert [record.message for record in caplog.records] == [
        f"etcds://{etcd_server.host}/unknown-users".replace("etcds", "etcd")
        + "?timeout=10 knows no users; its user and password are not used"
    ]


# --- what else a wrong address may lead to ---


def test_a_port_of_etcd_that_is_not_for_clients_is_told(server: EtcdServer) -> None:
    with pytest.raises(StoreAddressError, match="check the port: it must be that of clients"):
        open_store(f"etcd://127.0.0.1:{server.peer_port}")


def test_a_store_in_one_namespace_neither_sees_nor_deletes_what_is_in_another(server: EtcdServer) -> None:
    from elastane.store.base import DeletePrefix

    with (
        open_store(f"etcd://{server.host}/team?{PATIENT}") as team,
        open_store(f"etcd://{server.host}/team2?{PATIENT}") as other,
    ):
        put(other, "kept")
        put(team, "deleted")
        team.transact(deletes=[DeletePrefix(prefix="")])
        assert [entry.key for entry in other.range("").entries] == ["kept"]


# --- resources ---


def count_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_handles_watches_and_reconnections_leave_no_file_open(server: EtcdServer) -> None:
    def use() -> None:
        with open_store(f"etcd://{server.host}?{PATIENT}") as store:
            for _ in range(3):
                store.watch("", 0).poll()
            watch = store.watch("", 0)
            put(store, "a")
            watch.wait(1)

    use()
    before = count_open_files()
    for _ in range(10):
        use()
    assert count_open_files() == before


def test_status_and_shortest_lease_are_told(server: EtcdServer) -> None:
    store: Store = open_store(f"etcd://{server.host}?{PATIENT}")
    assert isinstance(store, EtcdStore)
    with store:
        status = store.read_status()
        assert (status.version[:2], status.errors, status.leader != 0) == ("3.", (), True)
        assert store.measure_shortest_lease() == 1  # three halves of an election time-out of 0.1 s


def test_the_doctor_finds_out_all_about_an_etcd_and_leaves_nothing(server: EtcdServer) -> None:
    url = f"etcd://{server.host}?{PATIENT}"
    status, writes, leases = examine_etcd(url)
    assert (status.name, status.found[:7]) == ("store", "etcd 3.")
    assert (writes.name, writes.verdict is Verdict.FAIL) == ("store writes", False)
    assert (leases.name, leases.found) == ("store leases", "from 30 s (the cluster's shortest: 1 s)")
    with open_store(url) as store:
        assert store.range("").entries == ()
