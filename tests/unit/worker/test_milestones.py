"""The phases of a worker's way into its job follow each other without a gap."""

from elastane.observe.joins import JoinPhase
from elastane.worker.milestones import Milestones


def test_phases_last_from_one_milestone_to_the_next_and_add_up() -> None:
    moments = iter([11.0, 11.5, 14.0])
    milestones = Milestones(10.0, lambda: next(moments))
    milestones.reach(JoinPhase.SPAWN, 10.25)
    for phase in (JoinPhase.IMPORT, JoinPhase.DEVICE, JoinPhase.BUILD):
        milestones.reach(phase)
    durations = milestones.durations()
    assert durations == {"spawn": 0.25, "import": 0.75, "device": 0.5, "build": 2.5}
    assert sum(durations.values()) == 4.0


def test_a_phase_that_was_not_noted_adds_to_the_next() -> None:
    milestones = Milestones(10.0)
    milestones.reach(JoinPhase.SPAWN, 10.5)
    milestones.reach(JoinPhase.BUILD, 12.0)
    assert milestones.durations() == {"spawn": 0.5, "build": 1.5}


def test_what_is_done_again_ends_when_it_was_done_last() -> None:
    milestones = Milestones(10.0)
    for phase, at_s in ((JoinPhase.CONNECT, 11.0), (JoinPhase.AGREE, 12.0), (JoinPhase.CONNECT, 15.0)):
        milestones.reach(phase, at_s)
    assert milestones.durations() == {"connect": 5.0, "agree": 0.0}
    milestones.reach(JoinPhase.TRANSFER, 15.5)
    assert milestones.durations() == {"connect": 5.0, "agree": 0.0, "transfer": 0.5}
    milestones.reach(JoinPhase.TRANSFER, 17.0)
    milestones.reach(JoinPhase.AGREE, 16.0)
    assert milestones.durations() == {"connect": 5.0, "agree": 1.0, "transfer": 1.0}


def test_a_worker_for_which_nobody_asked_has_no_phases() -> None:
    milestones = Milestones(0.0)
    milestones.reach(JoinPhase.SPAWN)
    assert milestones.durations() == {}
