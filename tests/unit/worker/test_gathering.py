import threading

import pytest
from fake_link import FakeNetwork

from elastane.model.errors import LinkBrokenError
from elastane.worker.courier import Courier
from elastane.worker.gathering import gather_bytes


def gather(payloads: list[bytes], network: FakeNetwork | None = None) -> list[list[bytes] | Exception]:
    """Let every peer of a fake network gather; return what each got."""
    links = (network or FakeNetwork(len(payloads))).links()
    couriers = [Courier(link) for link in links]
    results: list[list[bytes] | Exception] = [[] for _ in payloads]

    def run(peer: int) -> None:
        try:
            results[peer] = gather_bytes(couriers[peer], len(payloads), payloads[peer])
        except LinkBrokenError as error:
            results[peer] = error

    threads = [threading.Thread(target=run, args=(peer,)) for peer in range(len(payloads))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for courier in couriers:
        courier.close()
    return results


@pytest.mark.parametrize("payloads", [[b"a", b"bb"], [b"", b"x" * 10_000, b"y"], [b"", b""]])
def test_everybody_gets_everybodys_bytes_in_order(payloads: list[bytes]) -> None:
    assert gather(payloads) == [payloads] * len(payloads)


def test_a_lost_peer_breaks_the_gathering_for_all() -> None:
    results = gather([b"a", b"b"], FakeNetwork(2, victim=1, break_at=1))
    assert [type(result) for result in results] == [LinkBrokenError, LinkBrokenError]
