"""Two thousand seeded worlds keep all invariants; rules broken on purpose are noticed."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from elastane.core.duty import Errand, WriteDecision
from elastane.core.gate import ProposalId, StepGate
from elastane.core.leader import Decision, LeaderSettings, Sight
from elastane.core.member import Acknowledge, Action, Halt, LinkPhase, LocalState, Quit
from elastane.core.view import JobView
from elastane.model.ids import JobId, WorkerId
from elastane.model.records import Connected, Leave, Promised
from elastane.model.topology import Mode

from .faults import hang, kill_most, leave, lie_in_wait, scale, stop
from .run import describe_failure, run_seed, run_seeds
from .worker import Fate
from .world import Rules, World

WORLDS = 2000
CHUNK = 50
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("first", range(0, WORLDS, CHUNK))
def test_worlds_keep_all_invariants(first: int) -> None:
    assert run_seeds(range(first, first + CHUNK)) == []


def test_a_seed_gives_the_same_world_again() -> None:
    assert run_seed(11) == run_seed(11)


def test_a_world_does_not_depend_on_the_hash_seed() -> None:
    program = "from tests.simulation.run import run_seed; print([run_seed(s).digest for s in range(20, 32)])"

    def digests(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", program]
        return subprocess.run(
            command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert digests("1") == digests("2")


def test_a_failed_world_names_the_command_that_replays_it() -> None:
    outcome = replace(run_seed(3), violation="I1: broken")
    line = "I1: broken   [python -m tests.simulation.run --seed 3 --verbose]"
    assert describe_failure(outcome) == line


# --- rules broken on purpose -----------------------------------------------------------------------


class HastyLeader(Rules):
    """Do not wait for promises."""

    def decide(self, job: JobId, view: JobView, sight: Sight, settings: LeaderSettings) -> Decision:
        proposal, current = view.proposal, view.current
        if proposal is not None and current is not None and proposal.switch_step is not None:
            promises = {m.worker: Promised(step=proposal.switch_step) for m in current.members}
            view = replace(view, acks={**view.acks, **promises})
        return super().decide(job, view, sight, settings)


class DeafMember(Rules):
    """Do not halt before saying how many steps are committed."""

    def react(self, view: JobView, local: LocalState, gate: StepGate) -> tuple[Action, ...]:
        actions = tuple(a for a in super().react(view, local, gate) if not isinstance(a, Halt))
        candidate, proposal = local.candidate, view.proposal
        if proposal is None or candidate is None or proposal.mode is not Mode.RECOVERY:
            return actions
        reached = {"halted_at": gate.committed, "gathered": gate.gathered} if gate.has_state else {}
        ack = Connected(**reached)
        connected = candidate.phase is LinkPhase.CONNECTED and candidate.proposal == ProposalId.of(proposal)
        if connected and local.acked != (candidate.proposal, ack):
            return (Acknowledge(candidate.proposal, ack),)
        return tuple(a for a in actions if not isinstance(a, Acknowledge))


class HurriedLeaver(Rules):
    """Go as soon as the own seat is given up."""

    def react(self, view: JobView, local: LocalState, gate: StepGate) -> tuple[Action, ...]:
        if gate.generation and not gate.seated:
            return (Quit("left"),)
        return super().react(view, local, gate)


class UnfencedWorker(Rules):
    """Train on whatever has become of the lease."""

    fences = False


class Usurper(Rules):
    """Write without asking who leads."""

    def tamper(self, errand: Errand) -> Errand:
        return replace(errand, guards={}) if isinstance(errand, WriteDecision) else errand


class ForgetsEvaluations(Rules):
    """Compare survivors by their steps alone, not by what they have gathered since."""

    def decide(self, job: JobId, view: JobView, sight: Sight, settings: LeaderSettings) -> Decision:
        acks = {
            w: Connected(halted_at=a.halted_at) if isinstance(a, Connected) else a
            for w, a in view.acks.items()
        }
        return super().decide(job, replace(view, acks=acks), sight, settings)


class LenientLeader(Rules):
    """Wait for ever for a member that hangs."""

    settings = replace(Rules.settings, step_timeout_s=1e9)


class ImpatientLeader(Rules):
    """Begin a switch while somebody has yet to enter the generation before."""

    def decide(self, job: JobId, view: JobView, sight: Sight, settings: LeaderSettings) -> Decision:
        current = view.current
        if current is not None:
            members = {w: _entered(m, current.generation) for w, m in view.members.items()}
            view = replace(view, members=members)
        return super().decide(job, view, sight, settings)


class SeatsTheUnconnected(Rules):
    """Ask for promises before the newcomers have connected."""

    def decide(self, job: JobId, view: JobView, sight: Sight, settings: LeaderSettings) -> Decision:
        proposal = view.proposal
        if proposal is not None and proposal.mode is Mode.PLANNED:
            view = replace(view, acks={**dict.fromkeys(proposal.peers, Connected()), **view.acks})
        return super().decide(job, view, sight, settings)


class TakesAnybody(Rules):
    """Begin anew, when everybody was lost, with workers that have not loaded the newest checkpoint."""

    def decide(self, job: JobId, view: JobView, sight: Sight, settings: LeaderSettings) -> Decision:
        current = view.current
        if current is not None and view.is_lost:
            members = {w: _restored(m, current.generation) for w, m in view.members.items()}
            view = replace(view, members=members)
        return super().decide(job, view, sight, settings)

    def react(self, view: JobView, local: LocalState, gate: StepGate) -> tuple[Action, ...]:
        current = view.current
        if current is not None and view.is_lost:
            members = {w: _restored(m, current.generation) for w, m in view.members.items()}
            view = replace(view, members=members)
        return super().react(view, local, gate)


def _restored(member: object, generation: int) -> object:
    from msgspec import structs

    return structs.replace(member, restored_after=generation)


def _entered(member: object, generation: int) -> object:
    from msgspec import structs

    return structs.replace(member, generation=generation)


def keep(world: World) -> None:
    """Leave the world as its seed made it."""


def cut_one_way(world: World) -> None:
    """Let nothing that one worker sends reach another one any more."""
    living = [w for w, x in world.workers.items() if x.process.alive]
    if len(living) > 1:
        world.fabric.cut(living[0], living[1], world.loop.now_s + 60.0)


def cut_at_the_end(world: World) -> None:
    """Let one of two workers not hear the other just as training ends."""
    world.virtual_workers, world.wanted = 4, 2
    world.step_s, world.total_steps = 0.1, 20
    world.deeds = [(world.rng.uniform(1.5, 3.0), cut_one_way)]


def cut_at_a_stop(world: World) -> None:
    """Let one of two workers not hear the other just as the job is asked to stop."""
    world.virtual_workers, world.wanted, world.step_s = 4, 2, 0.1
    world.deeds = [(2.0, stop), (world.rng.uniform(2.0, 2.5), cut_one_way)]


def see_late(world: World) -> None:
    """Let all workers hear late of what changes, and many changes be asked for."""
    ask_much(world)
    late = Fate(start_s=0.1, prepare_s=0.1, lag_s=0.15)
    world.fates = {WorkerId(f"w{number}"): late for number in range(1, 40)}


def ask_much(world: World) -> None:
    """Let many changes be asked for at short intervals, and workers die among them."""
    world.deeds = [(0.5 * number, deed) for number in range(2, 40) for deed in (scale, lie_in_wait)]


def ask_much_of_the_patient(world: World) -> None:
    """As before, but nobody gives up a link that is silent: a recovery would put right what went wrong."""
    ask_much(world)
    world.silence_s = 1e9


def let_hang(world: World) -> None:
    """Let one of several workers hang."""
    world.virtual_workers, world.wanted, world.step_s, world.total_steps = 4, 2, 0.25, 200
    world.deeds = [(3.0, hang)]


def cut_for_long(world: World) -> None:
    """Let one of two workers not hear the other for the rest of the time, half of the time without a sign."""
    cut_at_the_end(world)
    world.total_steps = 200


def cut_the_patient(world: World) -> None:
    """As before, but nobody gives up a link that is silent."""
    cut_for_long(world)
    world.silence_s = 1e9


def lose_answers(world: World) -> None:
    """Let the store be away for a moment again and again while much is asked for."""
    ask_much(world)
    world.deeds += [(0.7 * number, blink) for number in range(2, 40)]
    world.deeds.sort(key=lambda item: item[0])


def blink(world: World) -> None:
    """Let the store be away for longer than a request waits."""
    world.storage.down_until_s = world.loop.now_s + 1.2


def crash_newcomers(world: World) -> None:
    """Let the only worker be replaced again and again, and every other newcomer die in the transfer."""
    world.wanted = 1
    world.deeds = [(3.0 * number, leave(Leave.SWAP)) for number in range(1, 8)]
    crash = Fate(start_s=0.1, prepare_s=0.1, crash_at="transfer")
    world.fates = {WorkerId(f"w{number}"): crash for number in range(2, 20, 2)}


def lose_everybody(world: World) -> None:
    """Let everybody be killed again and again while others come and go."""
    world.checkpoint_every, world.checkpoint_s = 5, 0.1
    world.deeds = [(1.5 * number, deed) for number in range(2, 20) for deed in (scale, kill_most)]


def tear_shares(world: World) -> None:
    """Let workers die when their share of an evaluation has reached one of several others."""
    world.virtual_workers, world.wanted, world.step_s, world.total_steps = 6, world.devices, 0.1, 300
    world.torn_shares, world.deeds = 0.1, []


HARD_TIMES = (
    tear_shares,
    lose_everybody,
    cut_at_the_end,
    cut_at_a_stop,
    see_late,
    ask_much,
    crash_newcomers,
    let_hang,
    lose_answers,
    cut_for_long,
)


@pytest.mark.parametrize(
    ("rules", "circumstances", "invariants"),
    [
        (HastyLeader, keep, {"I2", "I4", "hash", "I7"}),
        (DeafMember, ask_much, {"I2", "I3", "I4", "I7"}),
        (HurriedLeaver, crash_newcomers, {"I4"}),
        (UnfencedWorker, keep, {"I5"}),
        (Usurper, see_late, {"I4", "I9"}),
        (ImpatientLeader, ask_much_of_the_patient, {"I4", "I7"}),
        (SeatsTheUnconnected, keep, {"I8"}),
        (ForgetsEvaluations, tear_shares, {"I3", "I4", "I7"}),
        (LenientLeader, let_hang, {"I7"}),
        (Rules, cut_the_patient, {"I7"}),
        (TakesAnybody, lose_everybody, {"I10"}),
    ],
)
def test_the_simulation_notices_broken_rules(
    rules: Callable[[], Rules], circumstances: Callable[[World], None], invariants: set[str]
) -> None:
    noticed = "nothing"
    for seed in range(WORLDS):
        world = World(seed, rules())
        circumstances(world)
        noticed = world.run().violation
        if noticed:
            break
    assert noticed.partition(":")[0] in invariants


@pytest.mark.parametrize("circumstances", HARD_TIMES)
def test_the_right_rules_keep_the_invariants_in_these_circumstances(
    circumstances: Callable[[World], None],
) -> None:
    failures = []
    for seed in range(40):
        world = World(seed)
        circumstances(world)
        failures.append(world.run().violation)
    assert failures == [""] * 40
