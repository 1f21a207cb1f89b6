"""What of the NCCL link can be checked without a GPU: which operations it asks of the group, and errors."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from elastane.model.errors import LinkBrokenError
from elastane.worker.nccl import NcclLink, connect_nccl
from elastane.worker.rendezvous import Rendezvous

DEVICE = torch.device("cpu")


class FakeWork:
    def __init__(self, looks: int, then: Callable[[], None]) -> None:
        self.looks = looks
        self.then = then

    def is_completed(self) -> bool:
        self.looks -= 1
        if self.looks < 0:
            self.then()
        return self.looks < 0

    def wait(self) -> None:
        assert self.looks < 0


class FakeGroup:
    """Record what is asked of it, as torch's group would be asked."""

    def __init__(self, looks: int = 3, then: Callable[[], None] = lambda: None) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.looks = looks
        self.then = then

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 3

    def _start_coalescing(self, device: torch.device) -> None:
        self.calls.append(("start", device.type))

    def _end_coalescing(self, device: torch.device) -> FakeWork:
        self.calls.append(("end", device.type))
        return FakeWork(self.looks, self.then)

    def send(self, tensors: list[Tensor], peer: int, tag: int) -> None:
        self.calls.append(("send", peer, tag, tensors[0].numel()))

    def recv(self, tensors: list[Tensor], peer: int, tag: int) -> None:
        self.calls.append(("recv", peer, tag, tensors[0].numel()))

    def abort(self) -> None:
        self.calls.append(("abort",))


def test_an_exchange_is_one_group_of_operations_without_empty_tensors() -> None:
    group = FakeGroup()
    link = NcclLink(group, DEVICE)
    link.exchange([(1, torch.zeros(2)), (2, torch.zeros(0))], [(2, torch.zeros(3)), (1, torch.zeros(0))])
    link.exchange([(1, torch.zeros(0))], [])
    assert group.calls == [("start", "cpu"), ("recv", 2, 0, 3), ("send", 1, 0, 2), ("end", "cpu")]


def test_an_error_of_the_group_breaks_the_link() -> None:
    def fail() -> None:
        raise RuntimeError("NCCL error: remote process exited\nlong story")

    link = NcclLink(FakeGroup(0, fail), DEVICE)
    with pytest.raises(LinkBrokenError, match="NCCL error: remote process exited; the step"):
        link.exchange([(1, torch.zeros(2))], [])


def test_an_abort_ends_an_exchange_that_would_wait_for_ever() -> None:
    group = FakeGroup(1 << 60)
    link = NcclLink(group, DEVICE)
    link.abort()
    with pytest.raises(LinkBrokenError, match="abandoned"):
        link.exchange([(1, torch.zeros(2))], [])
    link.close()
    link.close()
    assert group.calls.count(("abort",)) == 1
    with pytest.raises(LinkBrokenError, match="the link was closed"):
        link.exchange([], [])


@pytest.mark.skipif(torch.distributed.is_nccl_available(), reason="this build of torch has NCCL")
def test_connecting_without_nccl_says_what_to_install() -> None:
    with pytest.raises(LinkBrokenError, match="install a CUDA build"):
        connect_nccl(Rendezvous.__new__(Rendezvous), 0, 2, torch.device("cuda", 0))
