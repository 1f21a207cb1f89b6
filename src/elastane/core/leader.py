"""The leader's decision: given all records of a job, what must be written next, and why.

Theory of operation. A job has one committed topology (`current`) and at most one proposal (`next`).
Whatever has to change (workers wanted, asked to leave, lost, ready to join) is folded into one proposed
generation. A proposal goes through these stages, each one write guarded by the leader key:

    none --propose--> connecting --all connected--> promising --all promised--> committed
                          \\____________ a peer is lost, fails or stalls: withdraw ____________/

A start and a recovery have nobody to wait for at a switch step, so they skip `promising`.
Nothing here remembers anything: the view holds it all, so a new leader goes on where the old one stopped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from msgspec import structs

from elastane.core.blame import find_culprits
from elastane.core.desired import Change, find_trouble, plan_change, ready_newcomers
from elastane.core.gate import ProposalId
from elastane.core.view import JobView, compute_needed, encode
from elastane.model.ids import JobId, WorkerId
from elastane.model.records import (
    Connected,
    Dismissal,
    Failed,
    JobKeys,
    JobPhase,
    Promised,
    Recovery,
    Refused,
    WorkerPhase,
)
from elastane.model.topology import Mode, Topology

FIRST_REST_S = 0.05
"""Rest after the second failure for one generation: longer than an exit notice takes to arrive."""
LONGEST_REST_S = 2.0
"""Longest rest: below the default lease, so that a change is tried soon after its obstacle is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    """Constants of the leader.

    Attributes:
        allowance_s: time left between choosing a switch step and reaching it, so that all promises
            arrive before it. EDL uses 0.5 s (section 4); here correctness does not hang on it, and a
            round through the embedded store takes some 20 ms.
        join_window_s: how long a ready worker waits for others that are about to be ready.
        start_window_s: how long the first workers wait for the rest before starting with the minimum.
        connect_timeout_s: after this long a worker that could not be connected is left out.
        step_timeout_s: after this long the job goes on without a member whose training loop keeps the others
            waiting. Generous, since the main worker may rightly evaluate or save for minutes.
    """

    allowance_s: float = 0.1
    join_window_s: float = 0.25
    start_window_s: float = 10.0
    connect_timeout_s: float = 10.0
    step_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Show what the leader knows beside the store: its own training loop and its own clock.

    Attributes:
        now_s: the leader's monotonic clock.
        newest_step: the newest step its own training loop has begun.
        step_time_s: recent time per step; 0 if not known.
        ready_since_s: when it first saw each worker ready.
        unchanged_since_s: when it first saw each worker's progress as it is.
        proposed_at_s: when it first saw the present proposal in its present stage.
        withdrawals: how many proposals for the next generation it has withdrawn so far.
        withdrawn_at_s: when it withdrew the last of them.
    """

    now_s: float
    newest_step: int = 0
    step_time_s: float = 0.0
    ready_since_s: Mapping[WorkerId, float] = field(default_factory=dict)
    unchanged_since_s: Mapping[WorkerId, float] = field(default_factory=dict)
    proposed_at_s: float = 0.0
    withdrawals: int = 0
    withdrawn_at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Say what to write and why.

    Attributes:
        puts: key -> value.
        deletes: keys or, where they end in "/", prefixes.
        unchanged: key -> value that must still stand there for the writes to take effect, beside the leader
            key: records that others may write too.
        wake_at_s: ask again by then, even if nothing changes.
        event: kind of the event to log; "" for none.
        reason: in plain words, shown by `elastane events`.
        fields: further fields of the event.
    """

    puts: Mapping[str, bytes] = field(default_factory=dict)
    deletes: tuple[str, ...] = ()
    unchanged: Mapping[str, bytes] = field(default_factory=dict)
    wake_at_s: float | None = None
    event: str = ""
    reason: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)


NOTHING = Decision()


def decide(job: JobId, view: JobView, sight: Sight, settings: LeaderSettings) -> Decision:
    """Return the leader's next step for `job`."""
    keys = JobKeys(job)
    if view.status.phase.ended:
        return NOTHING
    return _go_back(keys, view) or _close_difference(keys, view, sight, settings)


def _close_difference(keys: JobKeys, view: JobView, sight: Sight, settings: LeaderSettings) -> Decision:
    culprits = find_culprits(view, sight.unchanged_since_s, sight.now_s, settings.step_timeout_s)
    if culprits:
        return _dismiss_culprits(keys, view, culprits, settings.step_timeout_s)
    change = plan_change(view)
    if view.proposal is not None:
        return _pursue(keys, view, view.proposal, change, sight, settings)
    return _begin(keys, view, change, sight, settings)


def _begin(
    keys: JobKeys, view: JobView, change: Change | str | None, sight: Sight, settings: LeaderSettings
) -> Decision:
    """Propose the change that is due, if any, when it is time."""
    if isinstance(change, str):
        return _end(keys, view, JobPhase.STOPPED if view.current is None else JobPhase.FAILED, change)
    if change is None:
        return _dismiss_surplus(keys, view)
    wait_until = max(_worth_waiting(view, change, sight, settings) or 0.0, _rest_until_s(sight))
    if wait_until > sight.now_s:
        return Decision(wake_at_s=wait_until, reason="waiting for workers that are about to be ready")
    return _propose(keys, view, change)


def _go_back(keys: JobKeys, view: JobView) -> Decision | None:
    """Dismiss whoever could not take part in a restart from the newest checkpoint; None if there is nobody.

    With `Recovery.CHECKPOINT` these are all that have not been lost. If everybody was, they are the newcomers
    that were to be sent the state: those that begin from now on load the checkpoint.
    """
    current = view.current
    if current is None:
        return None
    living = [w for w in current.peers if view.alive(w)]
    stopping = view.spec.stop or current.mode is Mode.STOP
    if not living and not stopping:
        newcomers = ready_newcomers(view, current)
        why = "everybody that could have sent this worker the job's state was lost"
        return None if any(map(view.has_restored, newcomers)) else _send_away(keys, view, newcomers, why)
    # At the end of training nothing is worth repeating; and in a start nothing has been trained yet.
    finished = any(view.members[w].phase is WorkerPhase.FINISHED for w in living)
    exact = view.spec.recovery is Recovery.EXACT or finished or stopping
    starting = current.mode is Mode.START and not view.settled
    trouble = "" if exact or starting else find_trouble(view, current)
    return _send_away(keys, view, living if trouble else [], f"{trouble}: all go back to a checkpoint")


def _send_away(keys: JobKeys, view: JobView, workers: list[WorkerId], why: str) -> Decision | None:
    if not workers:
        return None
    return Decision(
        puts={keys.dismissal(w): encode(Dismissal(reason=why)) for w in workers},
        deletes=(keys.proposal, keys.acks) if view.proposal else (),
        event="dismissed",
        reason=why,
        fields={"workers": workers},
    )


def _dismiss_culprits(
    keys: JobKeys, view: JobView, culprits: tuple[WorkerId, ...], timeout_s: float
) -> Decision:
    """Let the job go on without members that keep the others waiting; a recovery follows from that."""
    does = {w: a.what for w in culprits if (a := view.members[w].activity) is not None}
    reasons = {w: f"kept the others waiting for {timeout_s:g} s in {what}" for w, what in does.items()}
    return Decision(
        puts={keys.dismissal(w): encode(Dismissal(reason=reason)) for w, reason in reasons.items()},
        event="dismissed",
        reason="; ".join(f"{w} {reason}" for w, reason in reasons.items()),
        fields={"workers": list(culprits)},
    )


def _dismiss_surplus(keys: JobKeys, view: JobView) -> Decision:
    """Send away who became ready when fewer workers were wanted than had been started for."""
    current = view.current
    if current is None or current.mode is Mode.STOP or not view.settled:
        return NOTHING
    reason = f"{compute_needed(view)} workers are wanted, and so many train"
    return _send_away(keys, view, ready_newcomers(view, current), reason) or NOTHING


def _rest_until_s(sight: Sight) -> float:
    """Return until when to rest after proposals for one generation have failed again and again."""
    if sight.withdrawals < 2:
        return 0.0  # one failure has a cause that is seen at once: somebody died
    rest_s: float = FIRST_REST_S * 2 ** (sight.withdrawals - 2)
    return sight.withdrawn_at_s + min(LONGEST_REST_S, rest_s)


def may_lead(view: JobView, worker: WorkerId) -> bool:
    """Tell whether `worker` may stand for election: members first, others only if no member is left."""
    record = view.members.get(worker)
    if view.status.phase.ended or record is None or not view.alive(worker):
        return False
    if record.phase is WorkerPhase.PREPARING:
        return False
    if view.current is None:
        return True
    members = [m.worker for m in view.current.members]
    return worker in members or not any(view.alive(w) for w in members)


def choose_switch_step(newest_step: int, step_time_s: float, allowance_s: float) -> int:
    """Return the step before which all switch: newest + k, k = max(1, ceil(T_a / T_b)) (EDL section 4.1).

    Args:
        newest_step: the newest step that is known to have begun.
        step_time_s: T_b; 0 if not known.
        allowance_s: T_a.
    """
    return newest_step + max(1, ceil(allowance_s / step_time_s) if step_time_s > 0 else 1)


def _propose(keys: JobKeys, view: JobView, change: Change, *, replaces: bool = False) -> Decision:
    # The store's revision makes the attempt unique, so an acknowledgement of an older one never counts.
    topology = Topology(
        generation=(view.current.generation if view.current else view.status.earlier_generations) + 1,
        attempt=view.revision,
        mode=change.mode,
        members=change.members,
        leaving=change.leaving,
        reason=change.reason,
    )
    # Addresses of earlier attempts are of no use to anybody: all links in use stand already.
    return Decision(
        puts={keys.proposal: encode(topology)},
        deletes=(keys.all_rendezvous, *((keys.acks,) if replaces else ())),
        event="proposed",
        reason=change.reason,
        fields=_describe(topology),
    )


def _describe(topology: Topology) -> dict[str, object]:
    return {
        "generation": topology.generation,
        "mode": topology.mode.value,
        "members": {m.worker: list(m.vranks) for m in topology.members},
        "leaving": list(topology.leaving),
    }


def _end(keys: JobKeys, view: JobView, phase: JobPhase, why: str) -> Decision:
    return Decision(
        puts={keys.status: encode(structs.replace(view.status, phase=phase, message=why))},
        unchanged={keys.status: encode(view.status)},
        event="stopped" if phase is JobPhase.STOPPED else "failed",
        reason=why,
    )


def _worth_waiting(view: JobView, change: Change, sight: Sight, settings: LeaderSettings) -> float | None:
    """Return until when it pays to wait for more workers before proposing `change`; None = not at all."""
    repairs = view.current is not None and change.mode in (Mode.START, Mode.RECOVERY)
    if repairs or change.mode is Mode.STOP or not change.joining:
        return None
    wanted = compute_needed(view)
    if len(change.members) >= wanted:
        return None
    first_ready = min(sight.ready_since_s.get(w, sight.now_s) for w in change.joining)
    if change.mode is Mode.START:
        if len(change.members) < view.spec.minimum:
            return float("inf")
        return first_ready + settings.start_window_s
    others_coming = any(m.phase is WorkerPhase.PREPARING and view.alive(w) for w, m in view.members.items())
    return first_ready + settings.join_window_s if others_coming else None


def _pursue(
    keys: JobKeys,
    view: JobView,
    proposal: Topology,
    change: Change | str | None,
    sight: Sight,
    settings: LeaderSettings,
) -> Decision:
    urgent = view.current is not None and isinstance(change, Change) and change.mode.repairs
    if urgent and isinstance(change, Change) and not proposal.mode.repairs:
        return _propose(keys, view, change, replaces=True)
    gone = [w for w in proposal.peers if not view.alive(w)]
    if gone:
        return _withdraw(keys, view, f"{', '.join(gone)} went away before the change was complete")
    failed = {w: a.why for w, a in view.acks.items() if isinstance(a, Failed)}
    if failed:
        return _leave_out(keys, view, proposal, failed)
    missing = [w for w in proposal.peers if w not in view.acks]
    if missing and proposal.mode is not Mode.STOP:
        return _await_links(keys, view, proposal, missing, sight, settings)
    if proposal.mode.repairs:
        return _commit_at_once(keys, view, proposal)
    return _agree_on_step(keys, view, proposal, sight, settings)


def _await_links(
    keys: JobKeys,
    view: JobView,
    proposal: Topology,
    missing: list[WorkerId],
    sight: Sight,
    settings: LeaderSettings,
) -> Decision:
    deadline = sight.proposed_at_s + settings.connect_timeout_s
    if sight.now_s < deadline:
        return Decision(wake_at_s=deadline, reason=f"waiting for {', '.join(missing)} to connect")
    faults = dict.fromkeys(missing, f"not connected after {settings.connect_timeout_s:g} s")
    repairs = view.current is not None and proposal.mode.repairs
    if repairs and not any(w in faults for w in _newcomers(view, proposal)):
        return _part(keys, view, proposal, faults)
    return _leave_out(keys, view, proposal, faults)


def _newcomers(view: JobView, proposal: Topology) -> list[WorkerId]:
    old = view.current.peers if view.current else ()
    return [w for w in proposal.peers if w not in old]


def _part(keys: JobKeys, view: JobView, proposal: Topology, faults: Mapping[WorkerId, str]) -> Decision:
    """Deal with survivors that cannot reach each other: try once more, then go on without some of them."""
    why = "; ".join(f"{w}: {text}" for w, text in faults.items())
    if proposal.asked == 0:
        again = structs.replace(proposal, attempt=view.revision, asked=1)
        return Decision(
            puts={keys.proposal: encode(again)},
            deletes=(keys.all_rendezvous, keys.acks),
            event="proposed",
            reason=f"{proposal.reason}; once more ({why})",
            fields=_describe(again),
        )
    # Of two that are cut off from each other both are at fault: one can stay, who must hold the newest state.
    keeper = max(proposal.peers, key=lambda w: (view.members[w].generation, w not in faults))
    given_up = [w for w in faults if w != keeper] or [w for w in proposal.peers if w != keeper]
    return _dismiss(keys, view, given_up, why)


def _leave_out(keys: JobKeys, view: JobView, proposal: Topology, faults: Mapping[WorkerId, str]) -> Decision:
    """Withdraw a proposal; newcomers that caused the fault are dismissed, so that it does not recur."""
    newcomers = _newcomers(view, proposal)
    blamed = [w for w in newcomers if w in faults] or newcomers
    if view.current is None:
        blamed = [w for w in blamed if w in faults]
    return _dismiss(keys, view, blamed, "; ".join(f"{w}: {text}" for w, text in faults.items()))


def _dismiss(keys: JobKeys, view: JobView, workers: list[WorkerId], why: str) -> Decision:
    order = Dismissal(reason=f"could not be connected to the others ({why})", unreachable=True)
    dismissals = {keys.dismissal(w): encode(order) for w in workers}
    return _withdraw(keys, view, f"the change was given up ({why})", dismissals)


def _withdraw(keys: JobKeys, view: JobView, why: str, puts: Mapping[str, bytes] | None = None) -> Decision:
    return Decision(
        puts=puts or {},
        deletes=(keys.proposal, keys.acks),
        event="withdrawn",
        reason=why,
        fields={"generation": view.proposal.generation if view.proposal else 0},
    )


def _commit_at_once(keys: JobKeys, view: JobView, proposal: Topology) -> Decision:
    """Commit a start or a recovery: who is furthest supplies the state to all others.

    Furthest in steps, and in what was gathered since then: who went on with the result of an evaluation does
    not come back to it.

    If none of them holds it, they make room for others that begin with the newest checkpoint.
    """
    reached = {
        w: (ack.halted_at, ack.gathered)
        for w, ack in view.acks.items()
        if isinstance(ack, Connected) and ack.halted_at is not None
    }
    if not reached:
        why = "no worker that holds the job's state is left"
        return _send_away(keys, view, list(proposal.peers), why) or NOTHING
    step, gathered = furthest = max(reached.values())
    suppliers = tuple(w for w in proposal.peers if reached.get(w) == furthest)
    if proposal.mode.begins:
        suppliers = suppliers[:1]  # they hold the same numbers only once one of them has sent its own
    return _commit(keys, view, structs.replace(proposal, gathered=gathered), step, suppliers)


def _agree_on_step(
    keys: JobKeys, view: JobView, proposal: Topology, sight: Sight, settings: LeaderSettings
) -> Decision:
    """Move a planned change or a stop from `connected` through `promised` to its commit."""
    old = [m.worker for m in view.current.members] if view.current else []
    step = proposal.switch_step
    refused = [a.at for w in old if isinstance(a := view.acks.get(w), Refused)]
    if step is None or (refused and max(refused) >= step):
        known = [view.members[w] for w in old if w in view.members]
        newest = max([sight.newest_step, *(m.committed_step for m in known), *refused])
        step_time_s = sight.step_time_s or max((m.step_time_s for m in known), default=0.0)
        allowance_s = settings.allowance_s * 2**proposal.asked
        target = choose_switch_step(newest, step_time_s, allowance_s)
        asked = structs.replace(proposal, switch_step=target, asked=proposal.asked + 1)
        return Decision(
            puts={keys.proposal: encode(asked)}, reason=f"all connected: switch before step {target}"
        )
    if all(view.acks.get(w) == Promised(step=step) for w in old):
        suppliers = tuple(w for w in proposal.peers if w in old)
        return _commit(keys, view, proposal, step, suppliers)
    return Decision(reason=f"waiting for promises for step {step}")


def _commit(
    keys: JobKeys, view: JobView, proposal: Topology, step: int, suppliers: tuple[WorkerId, ...]
) -> Decision:
    topology = structs.replace(proposal, switch_step=step, suppliers=suppliers)
    # A job that an agent or a user has ended in the same moment must not come to life again.
    status = structs.replace(view.status, phase=JobPhase.TRAINING)
    return Decision(
        puts={keys.current: encode(topology), keys.status: encode(status)},
        deletes=(keys.proposal, keys.acks),
        unchanged={keys.status: encode(view.status)},
        event="committed",
        reason=proposal.reason,
        fields={**_describe(topology), "switch_step": step},
    )


def proposal_stage(view: JobView) -> tuple[ProposalId, bool] | None:
    """Return what tells the present stage of the proposal from another one, to time how long it lasts."""
    if view.proposal is None:
        return None
    return ProposalId.of(view.proposal), view.proposal.switch_step is not None
