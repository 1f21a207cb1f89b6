"""One of two ranks that train the same model with stock DDP and with the exact reducer, over real gloo."""

import hashlib
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import elastane.worker.reducer
from elastane.model.topology import VrankRange
from elastane.store.open import open_store
from elastane.worker.courier import Courier
from elastane.worker.gloo import connect_gloo
from elastane.worker.reducer import GradientReducer
from elastane.worker.rendezvous import Rendezvous

STEPS = 8


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.unused_on_rank_1 = nn.Linear(5, 5)
        self.head = nn.Linear(8 * 36, 5)

    def forward(self, x: Tensor, vrank: int) -> Tensor:
        y: Tensor = self.head(torch.relu(self.norm(self.conv(x))).flatten(1))
        return y + self.unused_on_rank_1(y) if vrank == 0 else y


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss(model: nn.Module, step: int, vrank: int) -> Tensor:
    generator = torch.Generator().manual_seed(2 * step + vrank)
    x = torch.randn(16, 1, 8, 8, generator=generator)
    y = torch.randint(5, (16,), generator=generator)
    return nn.functional.cross_entropy(model(x, vrank), y)


def train_ddp(vrank: int, folder: Path) -> str:
    dist.init_process_group("gloo", init_method=f"file://{folder}/ddp", rank=vrank, world_size=2)
    model, optimizer = build()
    parallel = DistributedDataParallel(model, find_unused_parameters=True)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(parallel, step, vrank).backward()
        optimizer.step()
    dist.destroy_process_group()
    # DDP spreads rank 0's buffers before a forward pass, so after the last one only rank 0's count.
    return digest(model, buffers=vrank == 0)


def train_exactly(vrank: int, folder: Path, small_bytes: int) -> str:
    elastane.worker.reducer.SMALL_BYTES = small_bytes
    store = open_store(f"sqlite://{folder}/store.db")
    rendezvous = Rendezvous(store, f"link/{small_bytes}/", timeout_s=60)
    courier = Courier(connect_gloo(rendezvous, vrank, 2, "127.0.0.1", 60))
    model, optimizer = build()
    reducer = GradientReducer(model, bucket_bytes=4096)
    reducer.enter((VrankRange(0, 1), VrankRange(1, 2)), vrank, courier)
    for step in range(STEPS):
        reducer.begin_vrank(vrank, total_weight=2.0)
        optimizer.zero_grad()
        loss(model, step, vrank).backward()
        reducer.end_vrank()
        assert reducer.finish(b"%d" % vrank) == [b"0", b"1"]
        optimizer.step()
    courier.close()
    assert courier.join(60)
    store.close()
    return digest(model, buffers=vrank == 0)


def digest(model: nn.Module, *, buffers: bool) -> str:
    found = hashlib.sha256()
    tensors = model.state_dict() if buffers else dict(model.named_parameters())
    for name, tensor in tensors.items():
        found.update(name.encode() + tensor.detach().numpy().tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    own, where = int(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    print(train_ddp(own, where), train_exactly(own, where, 1 << 20), train_exactly(own, where, 0))
