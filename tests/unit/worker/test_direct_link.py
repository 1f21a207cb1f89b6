"""Large tensors are read from the peer's memory, everything else travels below; and who is lost breaks it."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from fake_link import FakeLink, FakeNetwork
from reduction import Job, Worker, run_workers
from torch import Tensor

from elastane.model.errors import LinkBrokenError
from elastane.model.topology import VrankRange
from elastane.worker import direct
from elastane.worker.courier import Courier
from elastane.worker.direct import DirectLink, connect_direct
from elastane.worker.link import Link
from elastane.worker.peer_memory import PeerMemory

LARGE = 64


@pytest.fixture(autouse=True)
def low_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "LARGE_BYTES", LARGE)


def in_threads(works: Sequence[Callable[[], object]]) -> list[object]:
    """Run all at once; return what each returned or raised."""
    outcomes: list[object] = [None] * len(works)

    def run(number: int) -> None:
        try:
            outcomes[number] = works[number]()
        except Exception as error:  # noqa: BLE001 - the test judges
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def connect(network: FakeNetwork) -> list[Link]:
    links = in_threads([lambda link=link: connect_direct(link) for link in network.links()])
    assert all(isinstance(link, DirectLink | FakeLink) for link in links), links
    return links  # type: ignore[return-value]


def close(links: Sequence[Link]) -> None:
    for link in links:
        link.close()


def swap(link: Link, lengths: Sequence[int], seed: int) -> dict[int, list[Tensor]]:
    """Send tensors of these lengths to all others, and return theirs; values tell sender and place."""
    others = [peer for peer in range(link.peers) if peer != link.own]
    own = [torch.full((length,), float(100 * seed + 10 * link.own + i)) for i, length in enumerate(lengths)]
    theirs = {peer: [torch.zeros(length) for length in lengths] for peer in others}
    link.exchange(
        [(peer, tensor) for peer in others for tensor in own],
        [(peer, tensor) for peer in others for tensor in theirs[peer]],
    )
    return theirs


@pytest.mark.parametrize("peers", [2, 3, 4])
@pytest.mark.parametrize("lengths", [(1000,), (1000, 3, 500, 0, 16, 15), (2, 3), (3, 700, 900)])
def test_whatever_is_sent_arrives_in_its_place(peers: int, lengths: tuple[int, ...]) -> None:
    network = FakeNetwork(peers)
    links = connect(network)
    assert [type(link) for link in links] == [DirectLink] * peers
    before = sum(network.sent_bytes.values())
    for seed in range(3):
        outcomes = in_threads([lambda link=link, seed=seed: swap(link, lengths, seed) for link in links])
        for own, theirs in enumerate(outcomes):
            assert isinstance(theirs, dict), theirs
            assert {peer: [t.tolist() for t in tensors] for peer, tensors in theirs.items()} == {
                peer: [[100.0 * seed + 10 * peer + i] * n for i, n in enumerate(lengths)]
                for peer in range(peers)
                if peer != own
            }
    large = [length for length in lengths if 4 * length >= LARGE]
    small_bytes = 4 * (sum(lengths) - sum(large))
    note_bytes = 8 * len(large) + 1 if large else 0
    sent_bytes = sum(network.sent_bytes.values()) - before
    assert sent_bytes == 3 * peers * (peers - 1) * (small_bytes + note_bytes)
    close(links)


def test_one_way_is_enough() -> None:
    links = connect(FakeNetwork(2))
    source, target = torch.arange(100.0), torch.zeros(50)
    outcomes = in_threads(
        [
            lambda: links[0].exchange([(1, source[10:60]), (1, torch.tensor([7.0]))], []),
            lambda: links[1].exchange([], [(0, target), (0, target[:1])]),
        ]
    )
    assert outcomes == [None, None]
    assert target.tolist() == [7.0, *range(11, 60)]
    close(links)


def test_who_cannot_be_read_is_sent_to(monkeypatch: pytest.MonkeyPatch) -> None:
    # Peers 0 and 1 are on one machine, peer 2 on another.
    machines = (0, 0, 1)
    whose = threading.local()
    find = direct._find_token

    def find_on_own_machine(pid: int, address: int, token: bytes) -> PeerMemory | None:
        return find(pid, address, token if machines[next(whose.others)] == machines[whose.own] else b"x" * 32)

    def connect_one(link: FakeLink) -> Link:
        whose.own = link.own
        whose.others = iter([peer for peer in range(3) if peer != link.own])
        return connect_direct(link)

    monkeypatch.setattr(direct, "_find_token", find_on_own_machine)
    network = FakeNetwork(3)
    links = in_threads([lambda link=link: connect_one(link) for link in network.links()])
    assert [type(link) for link in links] == [DirectLink, DirectLink, FakeLink]
    before = dict(network.sent_bytes)
    outcomes = in_threads([lambda link=link: swap(link, (1000, 2), 1) for link in links])
    for own, theirs in enumerate(outcomes):
        assert isinstance(theirs, dict), theirs
        assert {peer: [t.tolist() for t in tensors] for peer, tensors in theirs.items()} == {
            peer: [[100.0 + 10 * peer] * 1000, [100.0 + 10 * peer + 1] * 2]
            for peer in range(3)
            if peer != own
        }
    sent = {peer: network.sent_bytes[peer] - before[peer] for peer in range(3)}
    assert sent == {0: 4000 + 16 + 9, 1: 4000 + 16 + 9, 2: 8000 + 16}
    close(links)  # type: ignore[arg-type]


def test_the_owner_waits_until_it_has_been_read() -> None:
    links = connect(FakeNetwork(2))
    reading, go_on, returned = threading.Event(), threading.Event(), threading.Event()

    class Slow(PeerMemory):
        def read(self, address: int, into: int, length: int) -> None:
            reading.set()
            assert go_on.wait(20)
            super().read(address, into, length)

    receiver = links[1]
    assert isinstance(receiver, DirectLink)
    receiver._sources[0].close()
    receiver._sources[0] = Slow(receiver._sources[0]._pid)
    source, target = torch.arange(100.0), torch.zeros(100)

    def own() -> None:
        links[0].exchange([(1, source)], [])
        returned.set()
        source.zero_()

    def look() -> bool:
        assert reading.wait(20)
        early = returned.is_set()
        go_on.set()
        return early

    outcomes = in_threads([own, lambda: receiver.exchange([], [(0, target)]), look])
    assert outcomes == [None, None, False]
    assert target.tolist() == list(range(100))
    close(links)


@pytest.mark.parametrize("break_at", [2, 3], ids=["before it tells", "before it is read"])
def test_a_peer_that_dies_in_any_part_of_an_exchange_breaks_it_for_those_who_wait(break_at: int) -> None:
    network = FakeNetwork(3, victim=1, break_at=break_at)
    links = connect(network)

    def work(link: Link) -> dict[int, list[Tensor]]:
        try:
            return swap(link, (1000, 1), 1)
        except LinkBrokenError:
            link.close()
            raise

    outcomes = in_threads([lambda link=link: work(link) for link in links])
    assert [type(outcome) for outcome in outcomes] == [LinkBrokenError] * 3
    close(links)


@pytest.mark.parametrize("break_at", [0, 1], ids=["before it shows itself", "before it tells what it found"])
def test_a_peer_that_dies_while_they_get_acquainted_leaves_no_descriptor(break_at: int) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    network = FakeNetwork(2, victim=1, break_at=break_at)

    def work(link: FakeLink) -> Link:
        try:
            return connect_direct(link)
        except LinkBrokenError:
            link.close()
            raise

    outcomes = in_threads([lambda link=link: work(link) for link in network.links()])
    assert [type(outcome) for outcome in outcomes] == [LinkBrokenError] * 2
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_memory_that_is_gone_is_a_lost_peer() -> None:
    links = connect(FakeNetwork(2))
    receiver = links[1]
    assert isinstance(receiver, DirectLink)
    receiver._sources[0]._pid = (1 << 22) + 1  # nobody's number

    def receive() -> None:
        try:
            receiver.exchange([], [(0, torch.zeros(100))])
        except LinkBrokenError:
            receiver.close()
            raise

    outcomes = in_threads([lambda: links[0].exchange([(1, torch.ones(100))], []), receive])
    assert [type(outcome) for outcome in outcomes] == [LinkBrokenError] * 2
    assert str(outcomes[1]) == (
        "peer 0 of 2 died while its memory was read ([Errno 3] No such process); "
        "the step in flight is repeated without it"
    )
    close(links)


def test_abort_and_close_reach_the_link_below_and_leave_no_descriptor() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    network = FakeNetwork(2)
    links = connect(network)
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 2
    links[0].abort()
    close(links)
    close(links)
    assert [(link.aborted, link.closed) for link in network.links()] == [(True, True), (False, True)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    "ranges",
    [
        (VrankRange(0, 2), VrankRange(2, 4)),
        (VrankRange(0, 1), VrankRange(1, 4)),
        (VrankRange(0, 1), VrankRange(1, 3), VrankRange(3, 4)),
    ],
)
def test_gradients_have_the_same_bits_by_whatever_way(
    ranges: tuple[VrankRange, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastane.worker.reducer.SMALL_BYTES", 0)
    job = Job(virtual_workers=4)
    alone = Worker(job)
    alone.reducer.enter((VrankRange(0, 4),), 0, None)
    for _ in range(job.steps):
        alone.train_step(VrankRange(0, 4))
    digests: dict[int, str] = {}

    class Direct(FakeNetwork):
        def links(self) -> list[Link]:  # type: ignore[override]
            return connected

    network = Direct(len(ranges))
    connected = in_threads([lambda link=link: connect_direct(link) for link in network._links])

    def work(own: int, courier: Courier) -> None:
        worker = Worker(job)
        worker.reducer.enter(ranges, own, courier)
        for _ in range(job.steps):
            worker.train_step(ranges[own])
        digests[own] = worker.digest()

    assert run_workers(network, work) == {}
    assert digests == dict.fromkeys(range(len(ranges)), alone.digest())
