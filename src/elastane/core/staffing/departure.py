"""How the workers of a node leave when the node does, while the job goes on elsewhere.

Who can be replaced on another node stays until his successor takes over in one switch; the others go at the
next boundary. How many workers the job wants does not change: a node that comes later is used. Should nobody
be left anywhere the leader makes a graceful stop of it (`core/desired.py`).
"""

from elastane.core.staffing.vacancies import count_free, find_present
from elastane.core.view import JobView
from elastane.model.ids import NodeId, WorkerId
from elastane.model.records import Leave


def plan_departure(view: JobView, node: NodeId, *, patient: bool = True) -> dict[WorkerId, Leave]:
    """Return how those workers of `node` go that have not been asked to; {} if there is nothing to ask.

    Without `patient` nobody waits for a successor any more, and who does is asked to go at once.
    """
    present = find_present(view)
    members = {m.worker for m in view.current.members} if view.current is not None else set()
    waiting = () if patient else find_waiting(view, node)
    coming = sum(seat.node != node and worker not in members for worker, seat in present.items())
    successors = coming + count_free(view, without=node) if patient else 0
    leaving: dict[WorkerId, Leave] = {}
    for worker in (*waiting, *(w for w, seat in present.items() if seat.node == node)):
        swapped = worker in members and successors > 0
        successors -= swapped
        leaving[worker] = Leave.SWAP if swapped else Leave.NOW
    return leaving


def find_waiting(view: JobView, node: NodeId) -> tuple[WorkerId, ...]:
    """Return the workers of `node` that train on until a successor is ready."""
    return tuple(
        worker
        for worker, how in view.spec.leaving.items()
        if how is Leave.SWAP and view.alive(worker) and view.members[worker].node == node
    )
