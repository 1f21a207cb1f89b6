"""Who keeps whom waiting, judged from what the members say of themselves."""

import pytest
from protocol_records import JOB, KEYS, READY, exited, record, sight, topology, view

from elastane.core.blame import find_culprits, find_late, is_silent
from elastane.core.leader import Decision, LeaderSettings, decide
from elastane.core.lookout import Lookout
from elastane.core.view import JobView, encode
from elastane.model.records import Activity, ActivityKind, Dismissal
from elastane.model.topology import Mode

RUNS = Activity(kind=ActivityKind.RUNS, what="step 7", serial=3)
EXCHANGES = Activity(kind=ActivityKind.EXCHANGES, what="the gradients of step 7", serial=3)
STANDS = Activity(kind=ActivityKind.STANDS, what="a decision", serial=3)


def busy(**activities: Activity | None) -> JobView:
    """Return a job whose members do what is said."""
    records = [record(name, activity=activity) for name, activity in activities.items()]
    return view(*records, current=topology(*activities))


def blamed(picture: JobView, seen_s: float = 0.0, now_s: float = 10.0) -> tuple[str, ...]:
    return find_culprits(picture, dict.fromkeys(picture.members, seen_s), now_s, timeout_s=10.0)


def test_who_runs_while_all_others_wait_for_as_long_is_to_blame() -> None:
    assert blamed(busy(a=EXCHANGES, b=RUNS, c=STANDS)) == ("b",)
    assert blamed(busy(a=RUNS, b=RUNS, c=EXCHANGES)) == ("a", "b")


@pytest.mark.parametrize(
    "picture",
    [
        busy(a=EXCHANGES, b=None),  # it may just have gone on
        busy(a=RUNS, b=RUNS),  # nobody waits
        busy(a=EXCHANGES, b=STANDS),  # nobody runs
        busy(a=RUNS),
        view(record("a", activity=RUNS), current=None),
        view(record("a", activity=RUNS), record("b", activity=STANDS), current=topology(mode=Mode.STOP)),
    ],
)
def test_nobody_is_to_blame_while_it_is_not_certain(picture: JobView) -> None:
    assert blamed(picture) == ()


def test_nobody_is_to_blame_before_the_time_is_up_for_all() -> None:
    picture = busy(a=EXCHANGES, b=RUNS)
    assert find_culprits(picture, {"a": 0.0, "b": 0.1}, 10.0, 10.0) == ()
    assert find_culprits(picture, {"a": 0.0}, 10.0, 10.0) == ()


def test_the_only_one_that_holds_the_state_is_not_let_go_for_newcomers_that_wait() -> None:
    newcomer = record("b", READY, activity=EXCHANGES)
    assert blamed(view(record("a", activity=RUNS), newcomer, current=topology("a", "b"))) == ()


def test_a_worker_waits_for_its_living_peers_that_run() -> None:
    picture = busy(a=EXCHANGES, b=RUNS, c=RUNS)
    assert find_late(picture, "a") == ("b", "c")
    gone = view(*picture.members.values(), current=picture.current, exits=exited("b"))
    assert find_late(gone, "a") == ("c",)


@pytest.mark.parametrize(
    ("picture", "silent"),
    [
        (busy(a=EXCHANGES, b=EXCHANGES), True),
        (busy(a=EXCHANGES, b=STANDS), True),
        (busy(a=STANDS, b=EXCHANGES), False),  # b will say so
        (busy(a=EXCHANGES, b=RUNS), False),
        (busy(a=EXCHANGES, b=None), False),
        (busy(a=EXCHANGES), False),
    ],
)
def test_a_link_is_silent_when_a_worker_waits_for_data_and_nobody_runs(
    picture: JobView, silent: bool
) -> None:
    assert is_silent(picture, "a") is silent


def test_the_leader_lets_go_who_has_kept_the_others_waiting_for_the_step_timeout() -> None:
    picture, lookout = busy(a=EXCHANGES, b=RUNS), Lookout()
    settings = LeaderSettings(step_timeout_s=20.0)
    first = decide(JOB, picture, lookout.look(picture, 100.0, 7, 0.1), settings)
    assert not first.puts
    later = decide(JOB, picture, lookout.look(picture, 120.0, 7, 0.1), settings)
    reason = "kept the others waiting for 20 s in step 7"
    assert later == Decision(
        puts={KEYS.dismissal("b"): encode(Dismissal(reason=reason))},
        event="dismissed",
        reason=f"b {reason}",
        fields={"workers": ["b"]},
    )


def test_a_member_that_goes_on_is_timed_anew() -> None:
    lookout = Lookout()
    lookout.look(busy(a=EXCHANGES, b=RUNS), 0.0, 7, 0.1)
    again = Activity(kind=ActivityKind.RUNS, what="step 7", serial=5)
    seen = lookout.look(busy(a=EXCHANGES, b=again), 8.0, 7, 0.1).unchanged_since_s
    assert seen == {"a": 0.0, "b": 8.0}


def test_withdrawn_proposals_are_counted_for_one_generation() -> None:
    lookout, picture = Lookout(), view(record("a"), current=topology("a"))
    lookout.look(picture, 1.0, 0, 0.0)
    for number in (1, 2):
        lookout.wrote(Decision(event="withdrawn"), revision=20 + number, now_s=5.0)
        seen = lookout.look(picture, 6.0, 0, 0.0)
        assert (seen.withdrawals, seen.withdrawn_at_s) == (number, 5.0)
    newer = view(record("a", generation=2), current=topology("a", generation=2))
    assert lookout.look(newer, 7.0, 0, 0.0).withdrawals == 0
    assert lookout.written_at == 22


def test_a_leader_without_a_memory_sees_the_job_as_it_is() -> None:
    assert Lookout().look(view(current=topology()), 100.0, 0, 0.0) == sight(100.0)
