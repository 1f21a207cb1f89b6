"""Write down what changes in the records of a job, one line a change."""

from elastane.core.view import JobView
from elastane.model.records import Ack, Connected, Failed, MemberRecord, Promised, Refused
from elastane.model.topology import Topology
from simulation.world import World


class Recorder:
    """Write down one world's records from now on."""

    def __init__(self, world: World) -> None:
        self.lines: list[str] = []
        self._world = world
        self._before: JobView | None = None
        self._check = world.checker.records_changed
        world.checker.records_changed = self._look  # type: ignore[method-assign]

    def _look(self, author: str) -> None:
        self._check(author)
        after = self._world.storage.newest
        if after is None:
            return  # there is no job yet
        for line in describe(self._before, after):
            self.lines.append(f"{self._world.loop.now_s:7.3f}  {author:8}  {line}")
        self._before = after


def describe(before: JobView | None, after: JobView) -> list[str]:
    """Return a line for each record that has changed."""
    lines = []
    if before is None or before.spec != after.spec:
        leaving = ", ".join(f"{w} {how.value}" for w, how in after.spec.leaving.items())
        stop = ", stop" if after.spec.stop else ""
        lines.append(f"spec      {after.spec.wanted} wanted, leaving: {leaving or '-'}{stop}")
    if before is None or before.status != after.status:
        lines.append(f"status    {after.status.phase.value} {after.status.message}".rstrip())
    if before is None:
        return lines
    if before.leader != after.leader:
        lines.append(f"leader    {after.leader or '-'}")
    lines += _describe_members(before, after)
    lines += [f"exit      {w} {after.exits[w].code}" for w in after.exits if w not in before.exits]
    lines += [f"dismissed {w}" for w in after.dismissed if w not in before.dismissed]
    lines += [f"ack       {w} {_say(a)}" for w, a in after.acks.items() if before.acks.get(w) != a]
    if before.current != after.current and after.current is not None:
        lines.append(f"current   {_draw(after.current)}")
    if before.proposal != after.proposal:
        lines.append(f"next      {_draw(after.proposal) if after.proposal else '-'}")
    return lines


def _describe_members(before: JobView, after: JobView) -> list[str]:
    lines = []
    for worker in sorted({*before.members, *after.members}):
        old, new = before.members.get(worker), after.members.get(worker)
        if new is None:
            lines.append(f"member    {worker} -")
        elif old is None or _face(old) != _face(new):
            broken = f", generation {new.broken} broken" if new.broken else ""
            lines.append(f"member    {worker} {new.phase.value}, in generation {new.generation}{broken}")
    return lines


def _face(record: MemberRecord) -> tuple[object, ...]:
    return record.phase, record.generation, record.broken


def _say(ack: Ack) -> str:
    match ack:
        case Connected(halted_at=None):
            return "connected"
        case Connected(halted_at=step):
            return f"connected, stands at {step}"
        case Promised(step=step):
            return f"promised {step}"
        case Refused(at=step):
            return f"refused at {step}"
        case Failed(why=why):
            return f"failed: {why}"


def _draw(topology: Topology) -> str:
    seats = " ".join(f"{m.worker}[{m.vranks.start}-{m.vranks.stop - 1}]" for m in topology.members)
    leavers = f", leaving {' '.join(topology.leaving)}" if topology.leaving else ""
    step = f", before step {topology.switch_step}" if topology.switch_step is not None else ""
    moves = topology.suppliers and topology.receivers
    supply = f", state from {' '.join(topology.suppliers)}" if moves else ""
    return f"{topology.generation} {topology.mode.value}: {seats or 'nobody'}{leavers}{step}{supply}"
