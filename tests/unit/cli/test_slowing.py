"""The drill that makes workers slow: what it refuses and warns of, and how its report reads.

Real slow workers: tests/process.
"""

import io
import subprocess
import sys
from collections.abc import Callable

import msgspec
import psutil
import pytest
from cli_world import A, B, World
from faulty_store import FaultyStore, Outage
from rich.console import Console

from elastane.cli import slowing
from elastane.cli.contention import Contention
from elastane.cli.parse import parse_slowness
from elastane.cli.slow_report import describe_order, render_slow_report, summarise_slow_report
from elastane.cli.slowing import SlowOrder, SlowSession, read_slow, warn
from elastane.jobs.requests import read_picture
from elastane.model.errors import ConfigError
from elastane.model.ids import NodeId, WorkerId
from elastane.model.records import AgentRecord, JobInfo, JobKeys, JobPhase, Launch
from elastane.observe.slowdowns import Pace, Slowed, SlowReport
from elastane.store.base import DeleteKey, LeaseId, Store

ORDER = SlowOrder(slow={B: 2.0}, processes=0, for_s=60.0)
FOUND = Slowed(
    worker=B,
    factor=2.0,
    steps=46,
    found_after=12,
    found_by="streak",
    answer="rebalance",
    answered_after=20,
    reason="virtual workers bbbb 4 -> 2",
)
REPORT = SlowReport(
    slowed=(FOUND,), accused=(), pace=Pace(before=16.0, slow=8.0, answered=12.0, afterwards=16.0), steps=46
)


@pytest.fixture
def info(world: World) -> JobInfo:
    return world.train()


def render(report: SlowReport) -> list[str]:
    console = Console(file=io.StringIO(), width=140)
    console.print(render_slow_report(report))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "expected"), [("w2=1.33", ("w2", 1.33)), ("0=2", ("0", 2.0)), (" a=b=100 ", ("a=b", 100.0))]
)
def test_slow_workers_are_read_with_their_factor(text: str, expected: tuple[str, float]) -> None:
    assert parse_slowness(text) == expected


@pytest.mark.parametrize("text", ["", "w2", "=2", "w2=", "w2=fast", "w2=-3", "w2=1e3"])
def test_what_is_no_slow_worker_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is no slow worker; write WORKER=TIMES, like w2=1\.33 or 0=2"):
        parse_slowness(text)


@pytest.mark.parametrize(
    ("text", "why"), [("w2=1", "is not slow"), ("w2=0.75", "is not slow"), ("w2=101", "as good as hung")]
)
def test_factors_that_make_nobody_slow_or_hang_somebody_are_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"{why}.*above 1 and at most 100"):
        parse_slowness(text)


def test_workers_are_named_by_their_id_or_by_their_place(world: World, info: JobInfo) -> None:
    with world.store() as store:
        view = read_picture(store, info.job).view
    assert read_slow(["aaaa=2", "1=1.5"], view) == {A: 2.0, B: 1.5}
    with pytest.raises(ConfigError, match=r"names 'w9', which .*; it has 0: aaaa, 1: bbbb"):
        read_slow(["w9=2"], view)
    with pytest.raises(ConfigError, match="names '2'"):
        read_slow(["2=2"], view)
    with pytest.raises(ConfigError, match="names bbbb twice"):
        read_slow(["bbbb=2", "1=3"], view)


def test_it_is_said_when_nothing_will_be_done_or_nobody_can_be_found(world: World, info: JobInfo) -> None:
    with world.store() as store:
        view = read_picture(store, info.job).view
    assert warn(ORDER, Launch(stragglers="auto"), view) == []
    assert warn(ORDER, Launch(), view) == [
        "nothing will be done about it: this job runs with --stragglers off"
    ]
    both = SlowOrder(slow={A: 2.0, B: 2.0}, processes=0, for_s=60.0)
    assert warn(both, Launch(stragglers="auto"), view) == [
        "nobody will be found: there is no worker of full speed to compare with"
    ]
    busy = SlowOrder(slow={}, processes=2, for_s=60.0)
    assert warn(busy, Launch(stragglers="auto"), view) == []


def test_the_command_refuses_unknown_workers_and_mixed_drills(world: World, info: JobInfo) -> None:
    unknown = world.elastane("chaos", "digits", "--slow", "w9=2")
    assert (unknown.code, unknown.out) == (2, "")
    assert "names 'w9'" in unknown.err
    for flags in (("--freeze",), ("--kill-every", "5s"), ("--seed", "1"), ("--yes",)):
        mixed = world.elastane("chaos", "digits", "--slow", "1=2", *flags)
        assert mixed.code == 2
        assert "give two commands" in mixed.err
    world.end(info, JobPhase.STOPPED)
    assert f"job {info.job} has ended" in world.elastane("chaos", "digits", "--slow", "1=2").err


def test_a_worker_that_has_not_seen_the_order_is_told_and_nothing_stays_in_the_store(
    world: World, info: JobInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slowing, "AFTER_S", 0.1)
    # No worker process stands behind these records.
    result = world.elastane("chaos", "digits", "--slow", "1=2", "--for", "100ms", "--json")
    assert result.code == 1
    assert result.json["trouble"] == ["bbbb was never slow: it has not seen the order"]
    assert "--stragglers off" in result.err
    with world.store() as store:
        assert store.range(f"{JobKeys(info.job).prefix}slowdowns/").entries == ()
    events = world.elastane("events", "digits").out
    assert "a drill makes bbbb 2 times as slow: asked for by a person" in events


def test_busy_processes_alone_harm_nobody_and_are_gone_afterwards(
    world: World, info: JobInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slowing, "AFTER_S", 0.1)
    before = set(psutil.Process().children())
    result = world.elastane("chaos", "digits", "--contend", "1", "--for", "100ms", "--json")
    assert (result.code, result.json["harm"], result.json["processes"]) == (0, "contend", 1)
    assert set(psutil.Process().children()) == before
    assert "1 busy process" in result.err


def test_a_worker_of_another_node_that_keeps_its_own_files_is_taken_at_its_order(
    world: World, info: JobInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slowing, "AFTER_S", 0.1)
    keys, far = JobKeys(info.job), NodeId("far")
    agent = AgentRecord(node=far, pid=1, devices=(), directory="/far/jobs/x")
    with world.store() as store:
        member = read_picture(store, info.job).view.members[B]
    world.put((keys.agent(far), agent), (keys.member(B), msgspec.structs.replace(member, node=far)))
    result = world.elastane("chaos", "digits", "--slow", "1=2", "--for", "100ms", "--json")
    assert (result.code, result.json["slowed"][0]["worker"]) == (0, "bbbb")


def test_the_report_of_a_finished_drill_is_given_even_if_the_store_is_away_by_then(
    world: World, info: JobInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(FaultyStore):
        """A store that goes away when the orders are to be taken back."""

        def revoke(self, lease: LeaseId) -> None:
            self._outage.away = True
            super().revoke(lease)

    monkeypatch.setattr(slowing, "AFTER_S", 0.05)
    order = SlowOrder(slow={B: 2.0}, processes=0, for_s=0.05)
    with world.store() as store:
        report = SlowSession(
            store=Failing(store, Outage()), info=info, launch=Launch(lease_s=3.0), order=order
        ).run()
    assert report.trouble == ("bbbb was never slow: it has not seen the order",)
    assert "workers may stay slow for 3 s more: the store does not answer" in caplog.text
    assert "what followed the drill is not in the report" in caplog.text


def test_an_interruption_before_the_workers_are_slow_ends_the_drill_all_the_same(
    world: World, info: JobInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(_: float) -> None:
        raise AssertionError("the drill goes on")

    monkeypatch.setattr(slowing, "AFTER_S", 0.0)
    monkeypatch.setattr(slowing.time, "sleep", wait)
    with world.store() as store:
        session = SlowSession(store=store, info=info, launch=Launch(), order=ORDER)
        session.interrupted = True
        session.run()
        assert store.range(f"{JobKeys(info.job).prefix}slowdowns/").entries == ()


def test_a_job_that_ends_during_the_drill_is_noticed(
    world: World, info: JobInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slowing.time, "sleep", lambda _: world.end(info, JobPhase.FINISHED))
    with world.store() as store:
        session = SlowSession(store=store, info=info, launch=Launch(), order=ORDER)
        session.run()
    assert session.ended


def test_the_report_shows_who_was_found_how_and_what_it_cost() -> None:
    assert render(REPORT) == [
        "WORKER  TIMES AS SLOW  FOR       FOUND           BY                                       "
        "ANSWER     CHANGED",
        "bbbb    2              46 steps  after 12 steps  slower than the median, step after step  "
        "rebalance  after 20 steps",
        "THROUGHPUT  BEFORE  SLOW  ANSWERED  AFTERWARDS",
        "samples/s   16      8     12        16",
        "of before   100%    50%   75%       100%",
        "bbbb: virtual workers bbbb 4 -> 2",
        "every step is there, 46 of them during the drill; nobody else was called slow",
    ]


def test_the_report_says_what_went_wrong_and_who_was_accused() -> None:
    missed = SlowReport(
        slowed=(Slowed(worker=B, factor=1.25, steps=60),),
        accused=("aaaa",),
        pace=Pace(),
        steps=60,
        trouble=("bbbb was 1.25 times as slow for 60 steps, and not found",),
    )
    lines = render(missed)
    assert lines[1].split() == ["bbbb", "1.25", "60", "steps", "not", "none"]
    assert lines[-1] == (
        "not as it should be: bbbb was 1.25 times as slow for 60 steps, and not found; "
        "called slow without a drill: aaaa"
    )


def test_the_report_is_data_too(info: JobInfo) -> None:
    data = summarise_slow_report(info, REPORT, ORDER)
    assert data["throughput"] == {"before": 16.0, "slow": 8.0, "answered": 12.0, "afterwards": 16.0}
    assert (data["harm"], data["passed"], data["slowed"]) == ("slow", True, [FOUND])


def test_an_order_is_described_in_few_words() -> None:
    assert describe_order(ORDER) == "bbbb 2 times as slow"
    order = SlowOrder(slow={WorkerId("w1"): 1.33}, processes=2, for_s=1.0)
    assert describe_order(order) == "w1 1.33 times as slow, 2 busy processes"
    assert describe_order(SlowOrder(slow={}, processes=1, for_s=1.0)) == "1 busy process"


def test_busy_processes_end_with_the_block() -> None:
    with Contention(1, 60.0) as contention:
        (pid,) = contention.pids
        assert psutil.Process(pid).ppid() == psutil.Process().pid
    assert contention.pids == []
    assert not psutil.pid_exists(pid)


def test_busy_processes_end_when_the_one_that_started_them_is_killed() -> None:
    source = (
        "from elastane.cli.contention import Contention\n"
        "import time\n"
        "with Contention(1, 60.0) as c:\n"
        "    print(c.pids[0], flush=True)\n"
        "    time.sleep(60)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    busy = psutil.Process(int(starter.stdout.readline()))
    starter.kill()
    starter.wait(30)
    starter.stdout.close()
    busy.wait(30)


# --- a drill from beginning to end, with a clock that only its pauses move -----------------------------


class Clock:
    """Stands in for the module `time`; `at` says what happens in which pause."""

    def __init__(self, at: dict[int, Callable[[], object]]) -> None:
        self.now_s = 5000.0
        self.pauses = 0
        self.at = at

    def time(self) -> float:
        return self.now_s

    monotonic = time

    def sleep(self, for_s: float) -> None:
        self.now_s += for_s
        self.pauses += 1
        self.at.get(self.pauses, int)()


def hold(
    world: World,
    info: JobInfo,
    monkeypatch: pytest.MonkeyPatch,
    at: dict[int, Callable[[Store], object]],
    lease_s: float = 600.0,
) -> tuple[SlowReport, Clock]:
    with world.store() as store:
        clock = Clock({pause: (lambda act=act: act(store)) for pause, act in at.items()})
        monkeypatch.setattr(slowing, "time", clock)
        launch = Launch(lease_s=lease_s, stragglers="auto")
        report = SlowSession(store=store, info=info, launch=launch, order=ORDER).run()
        assert store.range(f"{JobKeys(info.job).prefix}slowdowns/").entries == ()
        return report, clock


def test_the_drill_ends_at_its_time_and_the_job_is_watched_for_a_while(
    world: World, info: JobInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[bytes] = []

    def look(store: Store) -> None:
        entry = store.get(JobKeys(info.job).slowdown(B))
        assert entry is not None
        orders.append(entry.value)

    report, clock = hold(world, info, monkeypatch, {1: look})
    assert b'"factor":2.0,"for_s":60.0' in orders[0]
    assert report.trouble == ("bbbb was never slow: it has not seen the order",)
    assert clock.now_s == pytest.approx(5000.0 + 60.0 + slowing.AFTER_S, abs=1.0)


def test_the_drill_ends_some_steps_after_the_slow_worker_has_gone(
    world: World, info: JobInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = JobKeys(info.job)
    at: dict[int, Callable[[Store], object]] = {
        2: lambda store: store.transact(deletes=[DeleteKey(key=keys.member(B))]),
        9: lambda _store: world.write_metrics(info, slowing.AFTER_STEPS + 41),
    }
    _, clock = hold(world, info, monkeypatch, at)
    # In the pause after it the steps have been seen; then nothing more is trained.
    assert clock.now_s == pytest.approx(5000.0 + 9 * slowing.LOOK_S + slowing.AFTER_S, abs=0.2)


def test_a_drill_that_was_held_up_for_longer_than_its_lease_ends_and_says_so(
    world: World, info: JobInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(store: Store) -> None:
        entry = store.get(JobKeys(info.job).slowdown(B))
        assert entry is not None
        assert entry.lease is not None
        store.revoke(entry.lease)  # as it runs out by itself

    report, clock = hold(world, info, monkeypatch, {1: lose}, lease_s=30.0)
    assert report.trouble[0] == "this command was held up for longer than its lease: the drill ended early"
    assert clock.now_s == pytest.approx(5000.0 + 10.0 + slowing.AFTER_S, abs=0.2)


def test_a_job_that_ends_ends_the_drill(world: World, info: JobInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    _, clock = hold(world, info, monkeypatch, {3: lambda _store: world.end(info, JobPhase.FINISHED)})
    assert clock.pauses == 3
