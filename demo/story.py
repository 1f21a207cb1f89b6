"""What happens to the job of the demonstration, and when: acts in order, each begun at its step.

Pure: `Story.turn` is shown one snapshot after another and says which act is due; `stage` carries it out.
"""

from dataclasses import dataclass
from enum import StrEnum

from elastane.cli.act import is_settled
from elastane.model.topology import Mode
from elastane.observe.snapshot import Change, JobSnapshot, WorkerSnapshot


class Deed(StrEnum):
    """Name what is done to the job."""

    SCALE_OUT = "scale out"
    KILL = "kill"
    MIGRATE = "migrate"
    SCALE_IN = "scale in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Describe one act of the story.

    Attributes:
        deed: what is done.
        title: in a few words, for people.
        at: when, as a share of all steps of the training.
    """

    deed: Deed
    title: str
    at: float


ACTS = (
    Act(deed=Deed.SCALE_OUT, title="scale out from 1 worker to 2", at=0.12),
    Act(deed=Deed.KILL, title="SIGKILL the leader; a new worker takes its place", at=0.34),
    Act(deed=Deed.MIGRATE, title="migrate a worker to another device", at=0.58),
    Act(deed=Deed.SCALE_IN, title="scale in to 1 worker", at=0.80),
)
"""Spread over the training so that each can be told apart in the picture."""


@dataclass(slots=True, kw_only=True)
class Scene:
    """Hold how far an act has come."""

    act: Act
    command: str = ""
    """What was asked of the job, as one would type it; empty while the act has not begun."""
    who: str = ""
    """The worker it was done to, if it was done to one."""
    asked_at_s: float = 0.0
    """Wall clock of the request."""
    changes_before: int = 0
    changes: tuple[Change, ...] = ()
    """The changes of topology that came of it."""
    done: bool = False


class Story:
    """Follow the job and say what is to be done to it next.

    Args:
        total_steps: steps of the whole training.
        acts: what is to happen, in order.
    """

    def __init__(self, total_steps: int, acts: tuple[Act, ...] = ACTS) -> None:
        self.total_steps = total_steps
        self.scenes = tuple(Scene(act=act) for act in acts)

    @property
    def over(self) -> bool:
        """Tell whether all acts have come to their end."""
        return all(scene.done for scene in self.scenes)

    def turn(self, snapshot: JobSnapshot) -> Scene | None:
        """Take note of what the job looks like now; return the scene that is to begin, if one is due."""
        for scene in self.scenes:
            if scene.command and not scene.done:
                scene.changes = snapshot.changes[scene.changes_before :]
                scene.done = is_done(scene, snapshot)
            if not scene.done:
                return scene if not scene.command and self._is_due(scene, snapshot) else None
        return None

    def _is_due(self, scene: Scene, snapshot: JobSnapshot) -> bool:
        return (
            not snapshot.phase.ended
            and snapshot.step >= scene.act.at * self.total_steps
            and is_settled(snapshot)
        )


def begin_scene(scene: Scene, snapshot: JobSnapshot, command: str, now_s: float, who: str = "") -> None:
    """Mark a scene as begun by `command`, done to the worker `who`, at the wall clock `now_s`."""
    scene.command = command
    scene.who = who
    scene.asked_at_s = now_s
    scene.changes_before = len(snapshot.changes)


def is_done(scene: Scene, snapshot: JobSnapshot) -> bool:
    """Tell whether the job has changed as the act wants it, and come to rest."""
    needed = Mode.RECOVERY if scene.act.deed is Deed.KILL else Mode.PLANNED
    return any(change.mode == needed for change in scene.changes) and is_settled(snapshot)


def choose_victim(snapshot: JobSnapshot) -> WorkerSnapshot:
    """Return the leader, whose loss hurts most; without one the owner of virtual worker 0."""
    seated = [worker for worker in snapshot.workers if worker.vranks is not None]
    return next((worker for worker in seated if worker.leader), seated[0])


def choose_mover(snapshot: JobSnapshot) -> WorkerSnapshot:
    """Return the worker that is to move: the owner of the last virtual worker."""
    return [worker for worker in snapshot.workers if worker.vranks is not None][-1]


def choose_device(snapshot: JobSnapshot, devices: tuple[str, ...]) -> str:
    """Return the first of `devices` that no worker is on."""
    used = {worker.device for worker in snapshot.workers}
    return next(device for device in devices if device not in used)
