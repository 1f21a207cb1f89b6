"""Which vacancy is whose: the one rule by which all agents of a job share out the missing workers.

Every agent computes the whole list from the records alone, so all that see the same records agree, and each
fills those of its own node. Records lag behind for moments; two agents then may want to fill one vacancy.
Worker ids are given out by compare-and-swap on one counter of the job, so the slower one fails, looks again
and sees.

Theory of operation. *Present* are living members that are not leaving, and workers that an agent has begun
to start.
Fewer than needed: wished devices come first. Then nodes are filled one after another, that which runs most
workers of the job first, then that with most free devices: few nodes mean short ways. A job that asks for
several nodes gets an equal share from each as long as there is a choice.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from elastane.core.view import JobView, compute_needed
from elastane.model.ids import DeviceId, NodeId, WorkerId
from elastane.model.records import AgentRecord, Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Name one device of one node."""

    node: NodeId
    device: DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacancies:
    """Say where the missing workers are to be started."""

    seats: tuple[Seat, ...] = ()
    unfilled: int = 0
    """Missing workers for which there is no device now."""


def find_present(view: JobView) -> dict[WorkerId, Seat]:
    """Return the workers that the job has or is about to have and that are to stay, and where they are."""
    coming = {
        worker: Seat(node=node, device=post.device)
        for node, roster in view.rosters.items()
        if node in view.agents
        for worker, post in roster.posts.items()
        if not post.registered and worker not in view.exits and worker not in view.dismissed
    }
    living = {
        worker: Seat(node=member.node, device=member.device)
        for worker, member in view.members.items()
        if view.alive(worker)
    }
    return {worker: seat for worker, seat in (coming | living).items() if worker not in view.spec.leaving}


def find_used(view: JobView) -> set[Seat]:
    """Return the devices on which a process is, whether or not it counts."""
    used = {
        Seat(node=member.node, device=member.device)
        for worker, member in view.members.items()
        if worker not in view.exits
    }
    for node, roster in view.rosters.items():
        if node in view.agents:
            used |= {Seat(node=node, device=post.device) for post in roster.posts.values()}
    return used


def plan_vacancies(view: JobView, gone: Collection[WorkerId] = ()) -> Vacancies:
    """Return where the job's missing workers are to be started, the most important first.

    Args:
        view: all records of the job.
        gone: workers that count no more, beside those of which the records tell.
    """
    staying = {worker: seat for worker, seat in find_present(view).items() if worker not in gone}
    needed = compute_needed(view)
    missing = needed - len(staying)
    if missing <= 0:
        return Vacancies()
    sites = _survey(view, Counter(seat.node for seat in staying.values()))
    seats = _take_wished(view, sites, missing)
    seats += _fill(sites, missing - len(seats), quota=-(-needed // view.spec.nodes))
    if view.current is not None or len(find_serving(view)) >= view.spec.nodes:
        # Not all nodes have room for their share, or some are gone: what matters is that the job goes on.
        seats += _fill(sites, missing - len(seats), quota=needed)
    return Vacancies(seats=tuple(seats), unfilled=missing - len(seats))


def find_serving(view: JobView) -> dict[NodeId, AgentRecord]:
    """Return the nodes that serve the job and are to stay."""
    return {node: agent for node, agent in view.agents.items() if node not in view.spec.vacating}


def count_free(view: JobView, *, without: NodeId) -> int:
    """Return on how many devices of all other nodes no process is; some may have to rest for a while yet."""
    used = find_used(view)
    seats = (Seat(node=node, device=d) for node, agent in find_serving(view).items() for d in agent.devices)
    return sum(seat.node != without and seat not in used for seat in seats)


@dataclass(slots=True, kw_only=True)
class _Site:
    node: NodeId
    workers: int
    free: list[DeviceId]


def _survey(view: JobView, workers: Mapping[NodeId, int]) -> list[_Site]:
    """Return the nodes in the order in which they are filled."""
    used = find_used(view)
    sites = []
    for node, agent in find_serving(view).items():
        roster = view.rosters.get(node) or Roster(node=node)
        shut = {seat.device for seat in used if seat.node == node} | set(roster.resting)
        failed = {device: past.in_a_row for device, past in roster.failures.items()}
        # Among the devices of a node those that failed least; else in its own order.
        order = sorted((failed.get(device, 0), index) for index, device in enumerate(agent.devices))
        free = [agent.devices[index] for _, index in order if agent.devices[index] not in shut]
        sites.append(_Site(node=node, workers=workers.get(node, 0), free=free))
    return sorted(sites, key=lambda site: (-site.workers, -len(site.free), site.node))


def _take_wished(view: JobView, sites: list[_Site], missing: int) -> list[Seat]:
    """Take the free devices that the spec names: "DEVICE" of any node, or "NODE/DEVICE"."""
    seats: list[Seat] = []
    for target in view.spec.targets:
        name, _, device = target.rpartition("/")
        site = next((s for s in sites if name in ("", s.node) and device in s.free), None)
        if site is not None and len(seats) < missing:
            seats.append(_take(site, DeviceId(device)))
    return seats


def _fill(sites: list[_Site], missing: int, *, quota: int) -> list[Seat]:
    """Take free devices, node after node, up to `quota` workers on each."""
    seats: list[Seat] = []
    for site in sites:
        while site.free and site.workers < quota and len(seats) < missing:
            seats.append(_take(site, site.free[0]))
    return seats


def _take(site: _Site, device: DeviceId) -> Seat:
    site.free.remove(device)
    site.workers += 1
    return Seat(node=site.node, device=device)
