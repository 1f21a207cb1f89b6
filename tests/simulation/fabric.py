"""Links between simulated workers: what is sent arrives later, or never.

A link of a generation has one end per peer. An exchange is complete at one end as soon as everybody's
part has arrived there, whatever the others have by then. An end that is abandoned takes nothing any more;
its peers may hear of that, or just nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from elastane.core.gate import ProposalId
from elastane.model.ids import WorkerId

from .loop import Loop, Process, Signal

SILENCE_S = 10.0
"""A connection over which nothing comes for longer breaks; a shorter cut is bridged by sending again."""


@dataclass(slots=True)
class End:
    """Be one worker's end of a link."""

    worker: WorkerId
    process: Process
    link: "Link"
    inbox: dict[tuple[WorkerId, int], object] = field(default_factory=dict)
    news: Signal = field(default_factory=Signal)
    broken: str = ""
    lost: dict[WorkerId, str] = field(default_factory=dict)
    exchanges: int = 0
    last_arrival_s: float = 0.0

    def abandon(self, why: str) -> None:
        """Take and give nothing any more."""
        if not self.broken:
            self.broken = why
            self.link.fabric.part(self, clean=False)
            self.news.fire()

    def close(self) -> None:
        """Give the end back after what was sent."""
        if not self.broken:
            self.broken = "the link was closed"
            self.link.fabric.part(self, clean=True)
            self.news.fire()

    def cut(self, peer: WorkerId, why: str) -> None:
        """Learn that the connection to a peer is gone; the others can still be reached."""
        self.lost.setdefault(peer, why)
        self.news.fire()

    def missing(self, number: int, senders: tuple[WorkerId, ...]) -> list[WorkerId]:
        """Return whose parts of an exchange are not here."""
        return [sender for sender in senders if (sender, number) not in self.inbox]


@dataclass(slots=True)
class Link:
    """Join the peers of one proposal."""

    fabric: "Fabric"
    peers: tuple[WorkerId, ...]
    waiting: dict[WorkerId, Callable[[End | None], None]] = field(default_factory=dict)
    ends: dict[WorkerId, End] = field(default_factory=dict)
    connected: set[WorkerId] = field(default_factory=set)


class Fabric:
    """Hold all links, and which workers cannot reach each other."""

    def __init__(self, loop: Loop, rng: Random) -> None:
        self._loop = loop
        self._rng = rng
        self._links: dict[ProposalId, Link] = {}
        self._ends: dict[WorkerId, list[End]] = {}
        self._cuts: dict[tuple[WorkerId, WorkerId], tuple[float, bool]] = {}
        self.latency_s = 0.003

    def cut(self, one: WorkerId, other: WorkerId, until_s: float) -> None:
        """Hold back all that one sends to the other; half of the time no error will ever tell of it."""
        self._cuts[one, other] = (until_s, self._rng.random() < 0.5)

    def _blocked_s(self, sender: WorkerId, receiver: WorkerId) -> float:
        return max(0.0, self._cuts.get((sender, receiver), (0.0, False))[0] - self._loop.now_s)

    def connect(
        self,
        proposal: ProposalId,
        peers: tuple[WorkerId, ...],
        process: Process,
        done: Callable[[End | None], None],
    ) -> None:
        """Have `done` called with an end when all peers have come; perhaps never."""
        me = WorkerId(process.name)
        link = self._links.setdefault(proposal, Link(self, peers))
        link.waiting[me] = done
        end = End(me, process, link)
        link.ends[me] = end
        self._ends.setdefault(me, []).append(end)
        if len(link.ends) == len(peers):
            for peer in peers:
                self._finish(link, peer)

    def _finish(self, link: Link, peer: WorkerId) -> None:
        end = link.ends[peer]
        blocked_s = max(
            (max(self._blocked_s(o, peer), self._blocked_s(peer, o)) for o in link.peers if o != peer),
            default=0.0,
        )

        def tell() -> None:
            dead = any(not other.process.alive for other in link.ends.values())
            if dead and self._rng.random() < 0.5:
                return  # it waits for an answer that never comes
            if not (dead or end.broken):
                link.connected.add(peer)
            link.waiting[peer](None if dead or end.broken else end)

        delay_s = blocked_s + self.latency_s + self._rng.random() * 0.03
        self._loop.call_after(delay_s, tell, end.process)

    def all_connected(self, proposal: ProposalId) -> bool:
        """Tell whether every peer of a proposal has had its link, if it needs one."""
        link = self._links.get(proposal)
        return link is None or len(link.connected) == len(link.peers)

    def send(
        self,
        end: End,
        number: int,
        part: object,
        delay_s: float = 0.0,
        to: tuple[WorkerId, ...] | None = None,
    ) -> None:
        """Send a part of an exchange to all other peers; or to some, by one that dies in the middle."""
        for peer in end.link.peers if to is None else to:
            if peer != end.worker:
                self._deliver(end, end.link.ends[peer], number, part, delay_s)

    def _deliver(self, sender: End, target: End, number: int, part: object, delay_s: float) -> None:
        if sender.broken:
            return
        blocked_s = self._blocked_s(sender.worker, target.worker)
        silent = self._cuts.get((sender.worker, target.worker), (0.0, False))[1]
        if not silent and (blocked_s > SILENCE_S or (blocked_s and self._rng.random() < 0.3)):
            why = f"no answer from {sender.worker}"
            self._loop.call_after(1.0, lambda: target.cut(sender.worker, why), target.process)
            return
        delay_s += blocked_s + self._rng.random() * self.latency_s
        sender.last_arrival_s = max(sender.last_arrival_s, self._loop.now_s + delay_s)

        def arrive() -> None:
            if not target.broken:
                target.inbox[sender.worker, number] = part
                target.news.fire()

        self._loop.call_after(delay_s, arrive, target.process)

    def part(self, end: End, *, clean: bool) -> None:
        """Let the peers of an end that is no longer there know, perhaps, and after what it sent if clean."""
        if not clean and end.process.alive and self._rng.random() < 0.5:
            return  # the thread that holds the connection hangs in it
        waits_s = max(0.0, end.last_arrival_s - self._loop.now_s) if clean else 0.0
        for peer in end.link.peers:
            other = end.link.ends.get(peer)
            if other is not None and other is not end:
                delay_s = waits_s + 0.0001 + self._rng.random() * (self.latency_s if clean else 0.05)
                delay_s += self._blocked_s(end.worker, peer)
                self._loop.call_after(delay_s, _cutter(other, end.worker), other.process)

    def bury(self, worker: WorkerId) -> None:
        """Close all connections of a process that has ended."""
        for end in self._ends.pop(worker, []):
            if not end.broken:
                end.broken = "the process has ended"
                self.part(end, clean=False)


def _cutter(end: End, peer: WorkerId) -> Callable[[], None]:
    return lambda: end.cut(peer, f"{peer} closed the connection")
