"""Who keeps whom waiting: judge from what the members say of themselves, and from how long they have said it.

A worker whose control loop lives but whose training loop does not go on holds up all others. To blame is
who runs (the script, the data loading) while others wait for it; never who waits himself. If all wait and
nobody runs, what they wait for is lost on the way: the link is silent, and nobody is to blame.
Knows no clock: since when each activity has been seen is handed in.
"""

from collections.abc import Mapping

from elastane.core.view import JobView
from elastane.model.ids import WorkerId
from elastane.model.records import Activity, ActivityKind, MemberRecord
from elastane.model.topology import Mode

Progress = tuple[int, int, Activity | None]
"""Generation, committed steps and activity of a member: it has gone on when this changes."""


def progress_of(record: MemberRecord) -> Progress:
    """Return what changes whenever a member goes on."""
    return record.generation, record.committed_step, record.activity


def find_late(view: JobView, worker: WorkerId) -> tuple[WorkerId, ...]:
    """Return for whom `worker` waits as far as the records tell: its living peers that run."""
    return tuple(w for w, kind in _activities(view).items() if w != worker and kind is ActivityKind.RUNS)


def find_culprits(
    view: JobView, unchanged_since_s: Mapping[WorkerId, float], now_s: float, timeout_s: float
) -> tuple[WorkerId, ...]:
    """Return the peers of the current generation that have run for too long while others waited as long.

    Args:
        view: the job.
        unchanged_since_s: since when each member has shown the progress that it shows now.
        now_s: the same clock.
        timeout_s: how long a member may keep the others waiting.

    Returns:
        Nobody if somebody may still go on, or if nobody who holds the job's state waits: then the job
        would lose with them what it cannot do without.
    """
    activities = _activities(view)
    fresh = [w for w in activities if now_s - unchanged_since_s.get(w, now_s) < timeout_s]
    if fresh or None in activities.values() or view.current is None or view.current.mode is Mode.STOP:
        return ()
    running = tuple(w for w, kind in activities.items() if kind is ActivityKind.RUNS)
    waits = any(w not in running and view.members[w].generation > 0 for w in activities)
    return running if waits else ()


def is_silent(view: JobView, worker: WorkerId) -> bool:
    """Tell whether `worker` waits for data while none of its peers runs: nothing more will be sent."""
    activities = _activities(view)
    if len(activities) < 2 or activities.get(worker) is not ActivityKind.EXCHANGES:
        return False
    return not {None, ActivityKind.RUNS} & set(activities.values())


def _activities(view: JobView) -> dict[WorkerId, ActivityKind | None]:
    """Return what the living peers of the current generation have been doing; None for who goes on."""
    peers = view.current.peers if view.current is not None else ()
    living = {w: view.members[w].activity for w in peers if view.alive(w)}
    return {w: activity.kind if activity is not None else None for w, activity in living.items()}
