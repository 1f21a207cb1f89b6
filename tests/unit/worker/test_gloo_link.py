"""A gloo link moves bytes, reports lost peers, and leaves nothing behind. Both ends live in threads here."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from elastane.model.errors import LinkBrokenError
from elastane.store.clock import MonotonicClock
from elastane.store.memory import MemoryStore, MemoryWorld
from elastane.worker.courier import Courier
from elastane.worker.direct import DirectLink, connect_direct
from elastane.worker.gloo import GlooLink, connect_gloo
from elastane.worker.rendezvous import Rendezvous

DEADLINE_S = 20.0


def in_threads(work: Callable[[int], None], peers: int) -> None:
    errors: list[BaseException] = []

    def run(own: int) -> None:
        try:
            work(own)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(own,)) for own in range(peers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def connected(peers: int) -> list[GlooLink]:
    world = MemoryWorld(MonotonicClock())
    links: dict[int, GlooLink] = {}

    def connect(own: int) -> None:
        rendezvous = Rendezvous(MemoryStore(world), "link/", timeout_s=DEADLINE_S)
        links[own] = connect_gloo(rendezvous, own, peers, "127.0.0.1", DEADLINE_S)

    in_threads(connect, peers)
    return [links[own] for own in range(peers)]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.complex64, torch.int64])
def test_tensors_of_any_dtype_and_length_arrive_in_order(dtype: torch.dtype) -> None:
    links = connected(3)

    def work(own: int) -> None:
        others = [peer for peer in range(3) if peer != own]
        for length in (0, 1, 100_000):
            first, second = torch.full((length,), own, dtype=dtype), torch.full((3,), 10 + own, dtype=dtype)
            received = {peer: (torch.zeros_like(first), torch.zeros_like(second)) for peer in others}
            links[own].exchange(
                [(peer, tensor) for peer in others for tensor in (first, second)],
                [(peer, tensor) for peer in others for tensor in received[peer]],
            )
            for peer in others:
                assert torch.equal(received[peer][0], torch.full((length,), peer, dtype=dtype))
                assert torch.equal(received[peer][1], torch.full((3,), 10 + peer, dtype=dtype))

    in_threads(work, 3)


def test_views_are_sent_and_filled_in_place() -> None:
    links = connected(2)
    blocks = [torch.arange(10.0), torch.zeros(10)]

    def work(own: int) -> None:
        if own == 0:
            links[0].exchange([(1, blocks[0][3:5])], [])
        else:
            links[1].exchange([], [(0, blocks[1][7:9])])

    in_threads(work, 2)
    assert blocks[1].tolist() == [0, 0, 0, 0, 0, 0, 0, 3, 4, 0]


def test_over_gloo_large_tensors_are_read_where_they_are() -> None:
    links = connected(3)
    lengths = (1_200_000, 3, 1_100_000)

    def work(own: int) -> None:
        link = connect_direct(links[own])
        assert type(link) is DirectLink
        others = [peer for peer in range(3) if peer != own]
        for _ in range(2):
            sent = [torch.full((length,), float(own)) for length in lengths]
            received = {peer: [torch.full((length,), -1.0) for length in lengths] for peer in others}
            link.exchange(
                [(peer, tensor) for peer in others for tensor in sent],
                [(peer, tensor) for peer in others for tensor in received[peer]],
            )
            for peer in others:
                assert [(t.min().item(), t.max().item()) for t in received[peer]] == [(peer, peer)] * 3
        link.close()

    before = used()["descriptors"]
    in_threads(work, 3)
    assert used()["descriptors"] <= before


def test_a_peer_that_closes_breaks_the_exchange_of_those_who_wait_for_it() -> None:
    links = connected(2)

    def work(own: int) -> None:
        if own == 1:
            links[1].close()
            return
        with pytest.raises(LinkBrokenError, match="peer 1 of 2 closed the connection or died"):
            links[0].exchange([], [(1, torch.zeros(4))])

    in_threads(work, 2)


def test_a_leaver_that_closes_does_not_disturb_those_who_stay() -> None:
    links = connected(3)
    links[2].close()

    def work(own: int) -> None:
        if own < 2:
            for _ in range(3):
                received = torch.zeros(1000)
                links[own].exchange([(1 - own, torch.full((1000,), float(own)))], [(1 - own, received)])
                assert torch.equal(received, torch.full((1000,), float(1 - own)))

    in_threads(work, 3)


def test_a_closed_link_refuses_exchanges() -> None:
    link = connected(2)[0]
    link.close()
    link.close()
    with pytest.raises(LinkBrokenError, match="the link was closed"):
        link.exchange([], [])


def test_connecting_ends_when_the_proposal_is_dropped() -> None:
    dropped = threading.Event()
    dropped.set()
    store = MemoryStore(MemoryWorld(MonotonicClock()))
    rendezvous = Rendezvous(store, "p/", timeout_s=DEADLINE_S, cancelled=dropped)
    with pytest.raises(LinkBrokenError, match="peer 0 of 2 could not connect: the proposal was dropped"):
        connect_gloo(rendezvous, 0, 2, "127.0.0.1", DEADLINE_S)


def test_a_hundred_generations_leave_no_threads_sockets_or_memory() -> None:
    def generation() -> None:
        couriers = [Courier(link) for link in connected(2)]
        received = [torch.zeros(1000), torch.zeros(1000)]
        tickets = [
            courier.submit(
                lambda link, own=own: link.exchange([(1 - own, torch.ones(1000))], [(1 - own, received[own])])
            )
            for own, courier in enumerate(couriers)
        ]
        for ticket in tickets:
            ticket.wait()
        for courier in couriers:
            courier.close()
        for courier in couriers:
            assert courier.join(DEADLINE_S)

    for _ in range(10):
        generation()
    before = used()
    for _ in range(100):
        generation()
    after = wait_until_no_more_than(before)
    assert after["memory_kb"] - before["memory_kb"] < 20_000  # a group of 2 takes about 1 MB


def test_abandoned_generations_are_gone_once_their_peers_are() -> None:
    # The frozen peer's socket closes when it is killed; then the threads left behind end by themselves.
    before = used()
    for _ in range(5):
        links = connected(2)
        courier = Courier(links[0])
        ticket = courier.submit(lambda link: link.exchange([], [(1, torch.zeros(10))]))
        courier.abandon("peer 1 is frozen")
        with pytest.raises(LinkBrokenError, match="peer 1 is frozen"):
            ticket.wait()
        links[1].close()
        assert courier.join(DEADLINE_S)
        del links
    wait_until_no_more_than(before)


def wait_until_no_more_than(before: dict[str, int]) -> dict[str, int]:
    """Wait until descriptors and threads are back: native threads end a moment after their group."""
    deadline_s = time.monotonic() + DEADLINE_S
    while any((after := used())[what] > before[what] for what in ("descriptors", "threads")):
        assert time.monotonic() < deadline_s, (before, after)
        time.sleep(0.01)
    return after


def used() -> dict[str, int]:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": int(status["Threads"]),
        "memory_kb": int(status["VmRSS"].split()[0]),
    }
