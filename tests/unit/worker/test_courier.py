"""A courier runs exchanges in order, tells failures to those who wait, and can be left behind."""

import threading

import pytest
from fake_link import FakeNetwork

from elastane.model.errors import LinkBrokenError
from elastane.worker.courier import Courier
from elastane.worker.link import Link

DEADLINE_S = 20.0


def started(on_broken: list[str] | None = None) -> Courier:
    return Courier(FakeNetwork(2).links()[0], None if on_broken is None else on_broken.append)


def test_exchanges_run_in_the_order_of_submission_in_one_thread() -> None:
    courier = started()
    seen: list[tuple[int, int]] = []

    def exchange(number: int, link: Link) -> None:
        assert link.own == 0
        seen.append((number, threading.get_ident()))

    for number in range(5):
        ticket = courier.submit(lambda link, number=number: exchange(number, link))
    ticket.wait()
    ticket.wait()
    assert ticket.done
    assert [number for number, _ in seen] == [0, 1, 2, 3, 4]
    assert {thread for _, thread in seen}.isdisjoint({threading.get_ident()})
    assert len({thread for _, thread in seen}) == 1
    courier.close()
    assert courier.join(DEADLINE_S)


def test_abandoning_frees_all_who_wait_while_the_thread_is_still_blocked() -> None:
    told: list[str] = []
    courier = started(told)
    begun, released, freed = threading.Event(), threading.Event(), threading.Event()

    def block(_: Link) -> None:
        begun.set()
        assert released.wait(DEADLINE_S)

    blocked, queued = courier.submit(block), courier.submit(lambda _: None)
    errors: list[str] = []

    def wait() -> None:
        with pytest.raises(LinkBrokenError) as caught:
            blocked.wait()
        errors.append(str(caught.value))
        freed.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert begun.wait(DEADLINE_S)
    courier.abandon("peer 1 was declared dead")
    courier.abandon("a later reason changes nothing")
    assert freed.wait(DEADLINE_S)
    waiter.join()
    with pytest.raises(LinkBrokenError, match="peer 1 was declared dead"):
        queued.wait()
    with pytest.raises(LinkBrokenError, match="peer 1 was declared dead"):
        courier.submit(lambda _: None).wait()
    assert errors == ["peer 1 was declared dead"]
    assert told == []  # whoever abandons knows it
    assert not courier.join(0)
    released.set()
    assert courier.join(DEADLINE_S)
    assert not blocked.done


def test_a_failing_exchange_breaks_the_courier_and_is_told_once() -> None:
    told: list[str] = []
    courier = started(told)

    def fail(_: Link) -> None:
        raise LinkBrokenError("peer 1 hung up")

    tickets = [courier.submit(fail), courier.submit(fail)]
    for ticket in tickets:
        with pytest.raises(LinkBrokenError, match="peer 1 hung up"):
            ticket.wait()
    assert courier.join(DEADLINE_S)
    assert told == ["peer 1 hung up"]
    assert courier.broken


def test_abandoning_asks_the_link_to_abort_and_the_thread_closes_it() -> None:
    link = FakeNetwork(2).links()[0]
    courier = Courier(link)
    courier.abandon("no longer needed")
    assert courier.join(DEADLINE_S)
    assert (link.aborted, link.closed) == (True, True)


def test_closing_lets_submitted_exchanges_finish_first() -> None:
    link = FakeNetwork(2).links()[0]
    courier = Courier(link)
    go = threading.Event()

    def exchange(_: Link) -> None:
        assert go.wait(DEADLINE_S)

    first, second = courier.submit(exchange), courier.submit(lambda _: None)
    courier.close()
    go.set()
    first.wait()
    second.wait()
    assert courier.join(DEADLINE_S)
    assert link.closed
    with pytest.raises(LinkBrokenError, match="the link was closed"):
        courier.submit(lambda _: None).wait()
