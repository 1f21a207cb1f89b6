"""A small training job whose workers are threads: the ground of the reducer's tests."""

import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from fake_link import FakeNetwork
from torch import Tensor, nn

from elastane.model.topology import VrankRange
from elastane.worker.courier import Courier
from elastane.worker.reducer import GradientReducer

BATCH = 6
FEATURES = 7
_BUILDING = threading.Lock()  # torch's default generator is the process's, and these workers are threads


class Net(nn.Module):
    """Have what makes reductions hard: buffers, parameters that some, or no, virtual workers use."""

    passes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 16)
        self.norm = nn.BatchNorm1d(16)
        self.wide = nn.Linear(16, 5, dtype=torch.float64)
        self.sometimes = nn.Linear(5, 5, dtype=torch.float64)
        self.never = nn.Linear(3, 3)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x: Tensor, vrank: int) -> Tensor:
        # Unlike batch normalisation's, this buffer decides the result of a forward pass in training.
        self.passes += 1 + vrank
        y: Tensor = self.wide(torch.relu(self.norm(self.first(x))).double()) * (1 + 0.01 * self.passes)
        return self.sometimes(y) if vrank % 3 == 1 else y


def make_net(build: Callable[[], nn.Module] = Net) -> nn.Module:
    with _BUILDING:
        torch.manual_seed(0)
        return build()


@dataclass
class Job:
    """Say what is trained and how; every worker of it trains the same way."""

    virtual_workers: int
    steps: int = 3
    weights: Sequence[float] = ()
    bucket_bytes: int = 600
    overlap: bool = True
    digests: dict[int, str] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)

    def weight(self, vrank: int) -> float:
        return self.weights[vrank] if self.weights else 1.0

    @property
    def total_weight(self) -> float:
        return sum(self.weights) if self.weights else float(self.virtual_workers)


class Worker:
    """Train one worker's part of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.model = make_net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.reducer = GradientReducer(self.model, overlap=job.overlap, bucket_bytes=job.bucket_bytes)
        self.step = 0

    def train_step(self, vranks: VrankRange, payload: bytes = b"") -> list[bytes]:
        job = self.job
        for vrank in range(vranks.start, vranks.stop):
            self.reducer.begin_vrank(vrank, weight=job.weight(vrank), total_weight=job.total_weight)
            self.backward(vrank)
            assert self.reducer.end_vrank() == (vrank == vranks.stop - 1)
        payloads = self.reducer.finish(payload)
        self.optimizer.step()
        self.step += 1
        return payloads

    def backward(self, vrank: int) -> None:
        generator = torch.Generator().manual_seed(1000 * self.step + vrank)
        x = torch.randn(BATCH, FEATURES, generator=generator)
        self.model(x, vrank).square().mean().backward()

    def digest(self) -> str:
        return digest(self.model)


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        found.update(name.encode())
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


def run_workers(network: FakeNetwork, work: Callable[[int, Courier], None]) -> dict[int, BaseException]:
    """Run `work` once per peer, each in a thread with its own courier; return what they raised."""
    couriers = [Courier(link) for link in network.links()]
    errors: dict[int, BaseException] = {}

    def run(own: int) -> None:
        try:
            work(own, couriers[own])
        except BaseException as error:  # noqa: BLE001 - the test that waits for it judges
            errors[own] = error

    threads = [threading.Thread(target=run, args=(own,)) for own in range(network.peers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for courier in couriers:
        courier.close()
        assert courier.join(20)
    return errors


def train(job: Job, ranges: Sequence[VrankRange]) -> str:
    """Train a job with its virtual workers placed as `ranges`; return the digest that all workers share."""
    digests: dict[int, str] = {}

    def work(own: int, courier: Courier | None) -> None:
        worker = Worker(job)
        worker.reducer.enter(tuple(ranges), own, courier)
        for _ in range(job.steps):
            worker.train_step(ranges[own])
        digests[own] = worker.digest()

    if len(ranges) == 1:
        work(0, None)
    else:
        errors = run_workers(FakeNetwork(len(ranges)), work)
        assert not errors, errors
    assert len(set(digests.values())) == 1, "workers of one job differ"
    return digests[0]


def every_cut(virtual_workers: int, workers: int) -> Iterator[tuple[VrankRange, ...]]:
    """Yield every placement of N virtual workers on so many workers, even or not."""
    for inner in itertools.combinations(range(1, virtual_workers), workers - 1):
        edges = [0, *inner, virtual_workers]
        yield tuple(VrankRange(a, b) for a, b in itertools.pairwise(edges))
