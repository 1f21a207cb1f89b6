"""The commands that ask something of a job: what they write, what they wait for, what they refuse."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import pytest
from cli_world import A, B, World

from elastane.cli import act
from elastane.cli.act import is_settled
from elastane.cli.watch import JobWatch
from elastane.model.ids import WorkerId
from elastane.model.records import JobInfo, JobKeys, JobPhase, Leave, Spec
from elastane.observe.snapshot import WorkerSnapshot


@contextmanager
def when_wanted(world: World, info: JobInfo, workers: int, act: Callable[[], object]) -> Iterator[None]:
    """Act beside the block, as soon as the job wants so many workers."""

    def watch() -> None:
        while world.read_spec(info).wanted != workers:
            threading.Event().wait(0.01)
        act()

    beside = threading.Thread(target=watch, daemon=True)
    beside.start()
    yield
    beside.join()


def test_scaling_writes_the_number_that_is_wanted(world: World) -> None:
    info = world.train()
    result = world.elastane("scale", "digits", "4")
    assert (result.code, result.out) == (0, f"job {info.job}: 4 workers wanted, 2 before\n")
    assert world.read_spec(info) == Spec(wanted=4)
    assert world.elastane("scale", "digits", "-1").out == f"job {info.job}: 3 workers wanted, 4 before\n"
    assert world.elastane("scale", "digits", "+1").out == f"job {info.job}: 4 workers wanted, 3 before\n"
    assert world.elastane("scale", "digits", "4").out == (
        f"job {info.job}: nothing to change, that is what was wanted already\n"
    )


def test_scaling_as_json_shows_the_wish_before_and_after(world: World) -> None:
    info = world.train()
    spec = {"minimum": 1, "leaving": {}, "targets": [], "nodes": 1, "vacating": [], "stop": False}
    spec |= {"abort": False, "recovery": "exact", "speeds": {}}
    assert world.elastane("scale", "digits", "3", "--json").json == {
        "job": info.job,
        "before": {"wanted": 2, **spec},
        "after": {"wanted": 3, **spec},
        "waited": False,
        "done": None,
        "changes": [],
    }


@pytest.mark.parametrize(
    ("amount", "code", "message"),
    [
        ("5", 2, "5 workers asked for; a number in 1..4 is possible (one per virtual worker)"),
        ("-2", 2, "0 workers asked for; a number in 1..4 is possible (one per virtual worker); "
         "to end the job use `elastane stop`"),
        ("0", 2, "a job cannot have 0 workers; ask for 1 up to its number of virtual workers, "
         "or end it with `elastane stop`"),
        ("1000000", 2, "a job cannot have 1000000 workers; ask for 1 up to its number of virtual workers"),
        ("--fast", 2, "'--fast' is no number of workers; write 8, +2 or -1"),
    ],
)  # fmt: skip
def test_scaling_to_an_impossible_number_changes_nothing(
    world: World, amount: str, code: int, message: str
) -> None:
    info = world.train()
    result = world.elastane("scale", "digits", amount)
    assert (result.code, result.out, result.err) == (code, "", f"elastane: {message}\n")
    assert world.read_spec(info) == Spec(wanted=2)


def test_an_ended_job_takes_no_requests(world: World) -> None:
    info = world.train()
    world.end(info, JobPhase.FINISHED)
    for arguments in (("scale", "digits", "3"), ("scale", "digits", "3", "--wait")):
        result = world.elastane(*arguments)
        assert (result.code, result.err) == (
            4,
            f"elastane: job {info.job} has ended: finished; it can no longer be scaled\n",
        )


def test_evicting_marks_the_worker_by_the_beginning_of_its_id(world: World) -> None:
    info = world.train()
    result = world.elastane("evict", "digits", "b")
    assert result.out == f"job {info.job}: 1 worker wanted, 2 before; bbbb goes at the next step\n"
    assert world.read_spec(info) == Spec(wanted=1, leaving={B: Leave.NOW})


def test_migrating_names_the_device(world: World) -> None:
    info = world.train()
    result = world.elastane("migrate", "digits", "--from", "aaaa", "--to", "n0:cpu:2")
    assert result.out == f"job {info.job}: aaaa goes as soon as its successor is ready, on n0/cpu:2\n"
    assert world.read_spec(info) == Spec(wanted=2, leaving={A: Leave.SWAP}, targets=("n0/cpu:2",))


def test_migrating_to_anywhere_is_a_replacement(world: World) -> None:
    info = world.train()
    assert world.elastane("migrate", "digits", "--from", "aaaa").code == 0
    assert world.read_spec(info) == Spec(wanted=2, leaving={A: Leave.SWAP})


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("evict", "digits", "zz"), 3, "job {job} has no worker 'zz'; present: aaaa, bbbb"),
        (("evict", "digits", ""), 3, "job {job} has no worker ''; present: aaaa, bbbb"),
        (("migrate", "digits", "--from", "zz"), 3, "job {job} has no worker 'zz'; present: aaaa, bbbb"),
        (
            ("migrate", "digits", "--from", "a", "--to", "cpu:7"),
            2,
            "the job has no device 'cpu:7'; present: n0/cpu:0, n0/cpu:1, n0/cpu:2",
        ),
        (
            ("migrate", "digits", "--from", "a", "--to", "cpu:1"),
            2,
            "device 'cpu:1' is in use by worker bbbb; free: n0/cpu:2",
        ),
    ],
)
def test_unknown_workers_and_devices_are_answered_with_those_that_exist(
    world: World, arguments: tuple[str, ...], code: int, message: str
) -> None:
    info = world.train()
    result = world.elastane(*arguments)
    assert (result.code, result.err) == (code, f"elastane: {message.format(job=info.job)}\n")
    assert world.read_spec(info) == Spec(wanted=2)


def test_waiting_ends_when_all_train_and_tells_what_it_cost(world: World) -> None:
    info = world.train()
    keys = JobKeys(info.job)

    def scale_in() -> None:
        with world.store() as store:
            entry = store.get(keys.current)
            assert entry is not None
            current = msgspec.json.decode(entry.value)
            member = store.get(keys.member(A))
            assert member is not None
            record = msgspec.json.decode(member.value)
        world.write_event(
            info, "committed", 1001.0, generation=3, switch_step=50, reason="1 worker is wanted"
        )
        world.put(
            (keys.current, {**current, "generation": 3, "members": [{"worker": A, "vranks": [0, 4]}]}),
            (keys.member(A), {**record, "generation": 3}),
            (keys.exit(B), {"worker": B, "code": 0}),
        )
        world.write_event(
            info,
            "switched",
            1002.0,
            generation=3,
            step=50,
            stop_s=0.004,
            workers=1,
            mode="planned",
            moved_bytes=0,
        )
        world.write_event(info, "left", 1002.0, generation=3, step=50, worker=B)

    with when_wanted(world, info, 1, scale_in):
        result = world.elastane("scale", "digits", "1", "--wait", "--timeout", "30")
    assert (result.code, result.out) == (
        0,
        f"job {info.job}: 1 worker wanted, 2 before\n"
        "generation 3 before step 50: 1 worker, stop time 4 ms, bbbb left\n",
    )


def test_a_change_whose_cost_is_told_on_another_node_is_not_waited_for_in_vain(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act, "TELL_LIMIT_S", 0.0)
    info = world.train()
    world.write_event(info, "committed", 1001.0, generation=2, mode="planned", members={"aaaa": [0, 4]})
    world.write_event(info, "committed", 1002.0, generation=3, mode="planned", members={"aaaa": [0, 4]})
    result = world.elastane("scale", "digits", "2", "--wait", "--timeout", "30", "--json")
    assert (result.code, result.json["done"]) == (0, True)


def test_waiting_in_vain_leaves_the_request_standing(world: World) -> None:
    info = world.train()
    result = world.elastane("scale", "digits", "3", "--wait", "--timeout", "0.1")
    assert (result.code, result.out) == (
        6,
        f"job {info.job}: 3 workers wanted, 2 before\n"
        f"not done after 0.1 s; the request stands: `elastane show {info.job}`\n",
    )
    assert world.read_spec(info) == Spec(wanted=3)


def test_waiting_for_a_job_that_ends_is_refused_with_how_it_ended(world: World) -> None:
    info = world.train()
    with when_wanted(world, info, 3, lambda: world.end(info, JobPhase.FINISHED)):
        result = world.elastane("scale", "digits", "3", "--wait", "--timeout", "30")
    assert (result.code, result.err) == (
        4,
        f"elastane: job {info.job} ended before the change was made: finished at step 41\n",
    )


def test_a_job_has_settled_when_all_is_as_wanted_and_the_last_change_has_told_its_cost(world: World) -> None:
    info = world.train()
    with world.store() as store:
        settled = JobWatch(store, info).look()
    assert is_settled(settled)
    change = replace(settled.changes[-1], stop_s=None)
    for unsettled in (
        replace(settled, wanted=3),
        replace(settled, activity=("a proposal",)),
        replace(settled, generation=3),
        replace(settled, changes=(change,)),
        replace(settled, workers=(*settled.workers, WorkerSnapshot(worker=WorkerId("c"), phase="ready"))),
    ):
        assert not is_settled(unsettled)
    assert is_settled(replace(settled, changes=(replace(change, mode="start"),)))
    assert is_settled(replace(settled, changes=()))
