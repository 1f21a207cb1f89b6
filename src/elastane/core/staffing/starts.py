"""Which workers an agent starts: its own part of the job's vacancies, and what is said while some stay
open."""

from dataclasses import dataclass

from elastane.core.staffing.history import find_resting
from elastane.core.staffing.nouns import NodeState, StaffingSettings, Start
from elastane.core.staffing.vacancies import Vacancies, find_present, find_serving
from elastane.core.view import JobView, compute_needed
from elastane.model.ids import DeviceId
from elastane.model.records import Leave, WorkerPhase
from elastane.model.topology import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Openings:
    """Say what this node does about the job's vacancies."""

    starts: tuple[Start, ...] = ()
    waiting: str = ""
    """For what the rest waits; said by the first node only."""
    rested_at_s: tuple[float, ...] = ()
    """When a device of this node has rested, if the job could use it."""


def plan_starts(
    view: JobView, node: NodeState, vacancies: Vacancies, now_s: float, settings: StaffingSettings
) -> Openings:
    """Return the starts on this node, and for what the other missing workers wait."""
    if is_closing(view, node):
        return Openings()
    own = [seat.device for seat in vacancies.seats if seat.node == node.node]
    starts = tuple(Start(device=device, reason=_explain_start(view, node, device)) for device in own)
    if not vacancies.unfilled:
        return Openings(starts=starts)
    speaks = node.node == min(view.agents)
    return Openings(
        starts=starts,
        waiting=_explain_waiting(view, vacancies.unfilled) if speaks else "",
        rested_at_s=tuple(find_resting(node.history, now_s, settings).values()),
    )


def find_served_wishes(view: JobView, node: NodeState) -> tuple[DeviceId, ...]:
    """Return the wished devices of this node on which a worker is ready or trains, as the spec names them.

    A wish stands until then: a worker that is started for it and dies early is started there again. When
    nobody is missing or on his way, what is still wished for is of no use any more; the first node says so.
    """
    if not view.spec.targets:
        return ()
    arrived = {
        str(name)
        for worker, seat in find_present(view).items()
        if seat.node == node.node and _has_arrived(view, worker)
        for name in (seat.device, f"{seat.node}/{seat.device}")
    }
    speaks = node.node == min(view.agents)
    idle = speaks and _is_complete(view)
    return tuple(target for target in view.spec.targets if idle or target in arrived)


def is_closing(view: JobView, node: NodeState) -> bool:
    """Tell whether the job is coming to its end, so that nobody new is needed."""
    stops = [t for t in (view.current, view.proposal) if t is not None and t.mode is Mode.STOP]
    # A stop whose workers were all lost will never be completed: the job needs somebody who says so.
    stopping = view.spec.stop or any(view.alive(worker) for stop in stops for worker in stop.peers)
    return stopping or node.finished or any(m.phase is WorkerPhase.FINISHED for m in view.members.values())


def _has_arrived(view: JobView, worker: str) -> bool:
    member = next((m for m in view.members.values() if m.worker == worker), None)
    return member is not None and member.phase is not WorkerPhase.PREPARING


def _is_complete(view: JobView) -> bool:
    present = find_present(view)
    replaced = any(view.alive(w) and how is Leave.SWAP for w, how in view.spec.leaving.items())
    complete = len(present) >= compute_needed(view) and all(_has_arrived(view, w) for w in present)
    return complete and not replaced


def _explain_waiting(view: JobView, unfilled: int) -> str:
    serving = find_serving(view)
    here, names = len(serving), ", ".join(sorted(serving))
    who = "1 worker waits" if unfilled == 1 else f"{unfilled} workers wait"
    if view.current is None and here < view.spec.nodes:
        return (
            f"{who} for more nodes: {here} of {view.spec.nodes} are here ({names}); "
            "start the others with `elastane agent`"
        )
    if not serving:
        return f"{who} for a node: all that are here leave"
    if any(roster.resting for node, roster in view.rosters.items() if node in view.agents):
        return f"{who} for devices that rest after failures"
    devices = sum(len(agent.devices) for agent in serving.values())
    return f"{who} for a free device: all {devices} of {names} are in use"


def _explain_start(view: JobView, node: NodeState, device: DeviceId) -> str:
    swapped = sorted(w for w, how in view.spec.leaving.items() if how is Leave.SWAP and view.alive(w))
    if swapped:
        return f"to take the place of {', '.join(swapped)}"
    needed = compute_needed(view)
    if any(target in (device, f"{node.node}/{device}") for target in view.spec.targets):
        return f"the job wants {needed} workers, one of them on this device"
    past = node.history.get(device)
    if past is not None and past.failures:
        return f"the job wants {needed} workers and one was lost"
    return f"the job wants {needed} workers"
