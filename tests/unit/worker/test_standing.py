"""The lock around a worker's stance: who waits, who is told to go, and what is said of waits."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elastane.core.gate import ProposalId
from elastane.core.member import Accept, Quit
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import ActivityKind, MemberRecord, WorkerPhase
from elastane.model.topology import Member, Mode, Topology, VrankRange
from elastane.worker.standing import EXIT_FENCED, SILENCE_S, SLOWEST_LINK, Left, Standing

PATIENCE_S = 20.0
ME = WorkerId("w1")


@pytest.fixture
def standing() -> Standing:
    record = MemberRecord(
        worker=ME, node=NodeId("n"), device=DeviceId("cpu:0"), pid=1, phase=WorkerPhase.PREPARING
    )
    return Standing(record, lambda: None)


def generation(number: int, mode: Mode = Mode.START) -> Topology:
    member = Member(worker=ME, vranks=VrankRange(0, 1))
    return Topology(generation=number, mode=mode, members=(member,), switch_step=0, suppliers=(ME,))


def tell(standing: Standing, action: object) -> None:
    with standing.changed:
        standing.stance.carry_out(action, 0.0)  # type: ignore[arg-type]


def test_a_thread_that_waits_at_the_boundary_is_told_the_generation_to_enter(standing: Standing) -> None:
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(standing.await_turn(0)), daemon=True)
    thread.start()
    tell(standing, Accept(generation(1)))
    thread.join(PATIENCE_S)
    assert answers == [generation(1)]
    standing.entered(answers[0])  # type: ignore[arg-type]
    assert standing.await_turn(0) is None


def test_after_the_last_step_only_generations_are_waited_for(standing: Standing) -> None:
    assert standing.await_switch(5, 0.0) is None
    tell(standing, Accept(generation(1)))
    assert standing.await_switch(5, 0.0) == generation(1)


@pytest.mark.parametrize(("clean", "code"), [(True, 0), (False, EXIT_FENCED)])
def test_who_is_told_to_quit_leaves_at_the_next_question(standing: Standing, clean: bool, code: int) -> None:
    tell(standing, Quit("enough", clean=clean))
    for ask in (standing.begin_commit, lambda: standing.await_turn(0), lambda: standing.await_switch(0, 0.0)):
        with pytest.raises(Left) as left:
            ask()
        assert (left.value.reason, left.value.code) == ("enough", code)
    assert standing.leaving


def test_the_patience_with_an_exchange_grows_with_its_bytes(standing: Standing) -> None:
    standing.note_exchange("the gradients of step 1", 5 * SLOWEST_LINK)
    assert standing.stance.doing.patience_s == SILENCE_S + 5.0
    assert standing.stance.doing.activity.kind is ActivityKind.EXCHANGES
    standing.note_stand("a decision")
    assert standing.stance.doing.activity.kind is ActivityKind.STANDS
    standing.note_run("step 2")
    assert standing.stance.doing.activity.kind is ActivityKind.RUNS
    assert standing.waits_since_s == standing.stance.doing.since_s


def test_failures_name_the_generation_that_cannot_go_on(standing: Standing) -> None:
    tell(standing, Accept(generation(1)))
    first = standing.await_turn(0)
    assert first is not None
    assert standing.link_of(first) is None
    standing.entered(first)
    assert standing.begin_commit()
    assert standing.commit_failed("a peer is gone") == 1
    tell(standing, Accept(generation(2, Mode.RECOVERY)))
    standing.await_turn(0)
    assert standing.switch_failed(generation(2, Mode.RECOVERY), "gone too", has_state=True) == 2
    assert standing.record.broken == 2


def test_a_link_for_a_proposal_that_is_gone_is_not_kept(standing: Standing, tmp_path: Path) -> None:
    standing.keep_link(ProposalId(3, 1), None, "")
    assert standing.stance.links == {}


@pytest.mark.parametrize(
    "note",
    [
        lambda standing: standing.note_run("the script"),
        lambda standing: standing.note_stand("a decision"),
        lambda standing: standing.note_exchange("gradients", 9),
    ],
)
def test_what_the_training_thread_does_is_noted_under_the_lock(
    standing: Standing, monkeypatch: pytest.MonkeyPatch, note: Callable[[Standing], None]
) -> None:
    """Else the control thread could judge how long one activity lasts, and publish another."""
    owned: list[bool] = []
    noting = standing.stance.note

    def spy(*arguments: Any) -> None:
        owned.append(standing.changed._is_owned())  # type: ignore[attr-defined]
        noting(*arguments)

    monkeypatch.setattr(standing.stance, "note", spy)
    note(standing)
    assert owned == [True]
