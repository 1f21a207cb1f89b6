"""Small training jobs and links between threads, for tests of the state and its transfer."""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from elastane.model.errors import LinkBrokenError
from elastane.worker.digest import compute_digest
from elastane.worker.state import JobState
from elastane.worker.transfer import receive_state, send_state

CPU = torch.device("cpu")
WAIT_S = 20.0


class SmallNet(nn.Module):
    """Has what makes state hard: BatchNorm, tied weights, hidden, changing and absent buffers."""

    def __init__(self, memory_format: torch.memory_format = torch.channels_last) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.encode = nn.Linear(12, 4)
        self.decode = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.decode.weight
        self.register_buffer("hidden", torch.zeros(3), persistent=False)
        self.register_buffer("grows", None)
        self.to(memory_format=memory_format)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.hidden.add_(x.mean())
            new = x.mean().reshape(1)
            self.grows = new if self.grows is None else torch.cat([self.grows, new])
        y = self.encode(torch.relu(self.norm(self.conv(x))).flatten(1))
        return self.tied(torch.relu(self.decode(y))) + self.hidden.sum()


def row_major_net() -> nn.Module:
    """Return the same net as LBFGS needs it."""
    return SmallNet(torch.contiguous_format)


OptimizerFactory = Callable[[Sequence[dict[str, Any]]], Optimizer]
SchedulerFactory = Callable[[Optimizer], Any]


@dataclass(kw_only=True)
class Replica:
    """One worker's live objects."""

    net: nn.Module
    optimizer: Optimizer
    scheduler: Any
    state: JobState

    def train(self, steps: int) -> None:
        """Train on data that depends on the step alone."""
        for _ in range(steps):
            generator = torch.Generator().manual_seed(self.state.step)
            x = torch.randn(4, 2, 2, 2, generator=generator).contiguous(memory_format=torch.channels_last)
            target = torch.randn(4, 4, generator=generator)
            self.optimizer.step(partial(self._closure, x, target))  # type: ignore[arg-type]
            if isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                self.scheduler.step(1.0 + self.state.step)
            elif self.scheduler is not None:
                self.scheduler.step()
            self.state.step += 1

    def _closure(self, x: Tensor, target: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.net(x), target)
        loss.backward()
        return loss.detach()

    def digest(self) -> str:
        return compute_digest(self.state.capture())


def sgd(groups: Sequence[dict[str, Any]]) -> Optimizer:
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def make_replica(
    seed: int,
    make_optimizer: OptimizerFactory = sgd,
    make_scheduler: SchedulerFactory | None = None,
    *,
    groups: int = 2,
    make_net: Callable[[], nn.Module] = SmallNet,
) -> Replica:
    """Build a replica whose initial weights depend on `seed`."""
    torch.manual_seed(seed)
    net = make_net()
    parameters = list(net.parameters())
    optimizer = make_optimizer([{"params": parameters[i::groups]} for i in range(groups)])
    scheduler = make_scheduler(optimizer) if make_scheduler else None
    schedulers = [scheduler] if scheduler is not None else []
    state = JobState(device=CPU, models=[net], optimizers=[optimizer], schedulers=schedulers)
    return Replica(net=net, optimizer=optimizer, scheduler=scheduler, state=state)


class Hub:
    """Connect peers by queues; a peer that breaks breaks the link for all."""

    def __init__(self, peers: int) -> None:
        self.queues = {(a, b): queue.Queue[Tensor | None]() for a in range(peers) for b in range(peers)}
        self.peers = peers

    def link(self, own: int, *, breaks_at: int | None = None) -> "HubLink":
        return HubLink(self, own, breaks_at)

    def break_from(self, own: int) -> None:
        for other in range(self.peers):
            self.queues[own, other].put(None)


class HubLink:
    """Be one peer's end; raises LinkBrokenError at the `breaks_at`-th exchange, after half of it."""

    def __init__(self, hub: Hub, own: int, breaks_at: int | None) -> None:
        self.hub, self.own, self.breaks_at = hub, own, breaks_at
        self.exchanges = 0
        self.sent_bytes = 0

    def exchange(self, sends: Sequence[tuple[int, Tensor]], recvs: Sequence[tuple[int, Tensor]]) -> None:
        self.exchanges += 1
        breaking = self.exchanges == self.breaks_at
        for peer, tensor in sends[: len(sends) // 2] if breaking else sends:
            assert tensor.dtype == torch.uint8
            assert tensor.is_contiguous()
            assert tensor.dim() == 1
            assert tensor.numel() > 0
            self.sent_bytes += tensor.numel()
            self.hub.queues[self.own, peer].put(tensor.clone())
        for peer, tensor in recvs[: len(recvs) // 2] if breaking else recvs:
            message = self.hub.queues[peer, self.own].get(timeout=WAIT_S)
            if message is None:
                raise LinkBrokenError(f"peer {peer} is gone")
            assert message.numel() == tensor.numel()
            tensor.copy_(message)
        if breaking:
            self.hub.break_from(self.own)
            raise LinkBrokenError("broken on purpose")


def run_together(*calls: Callable[[], object]) -> list[BaseException | None]:
    """Run each call in a thread of its own; return what each raised."""
    outcomes: list[BaseException | None] = [None] * len(calls)

    def run(i: int) -> None:
        try:
            calls[i]()
        except Exception as error:  # noqa: BLE001 - handed to the test
            outcomes[i] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * WAIT_S)
        assert not thread.is_alive()
    return outcomes


def transfer(
    suppliers: Sequence[Replica],
    receivers: Sequence[Replica],
    *,
    in_place: bool = True,
    breaks: dict[int, int] | None = None,
) -> tuple[list[BaseException | None], list[HubLink]]:
    """Transfer over a fresh hub: suppliers are peers 0.., receivers follow.

    `breaks` says of a peer at which exchange its link breaks. Return what each raised, and the links.
    """
    everybody = [*suppliers, *receivers]
    hub = Hub(len(everybody))
    links = [hub.link(i, breaks_at=(breaks or {}).get(i)) for i in range(len(everybody))]
    supplier_peers = list(range(len(suppliers)))
    receiver_peers = list(range(len(suppliers), len(everybody)))

    def play(i: int) -> None:
        state = everybody[i].state
        if i in supplier_peers:
            send_state(links[i], state.capture(), own=i, suppliers=supplier_peers, receivers=receiver_peers)
        else:
            receive_state(links[i], state, suppliers=supplier_peers, in_place=in_place)

    outcomes = run_together(*(lambda i=i: play(i) for i in range(len(everybody))))  # type: ignore[misc]
    return outcomes, links
