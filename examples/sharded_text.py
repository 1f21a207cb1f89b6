"""Train a small next-character model on text files that are read from front to back, each a shard.

    python examples/sharded_text.py "corpus/*.txt"
    elastane run examples/sharded_text.py --workers 2 -- "corpus/*.txt"

Without a pattern it takes a few modules of the standard library. With `--global-batch` each worker trains a
part of so many samples and takes the next file when it has read its own, instead of a fixed number of virtual
workers with a run of files each; `--look` leaves it to the job to find out how long the files are.
"""

import argparse
import glob
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import elastane

parser = argparse.ArgumentParser()
parser.add_argument("pattern", nargs="?", default=f"{sysconfig.get_path('stdlib')}/json/*.py")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--virtual-workers", type=int, default=4)
parser.add_argument("--global-batch", type=int, default=0, help="split so many samples over the workers")
parser.add_argument("--look", action="store_true", help="do not tell the lengths of the files")
options = parser.parse_args()
CONTEXT, WIDTH = 32, 64


def count_pieces(path: str) -> int:
    """Tell how many samples a file has without reading it."""
    return max(0, (Path(path).stat().st_size - 1) // CONTEXT)


def open_text(path: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Give a file's pieces of CONTEXT bytes, each with the bytes that follow."""
    with open(path, "rb") as file:
        piece = file.read(CONTEXT + 1)
        while len(piece) == CONTEXT + 1:
            tokens = torch.tensor(list(piece)).clamp(max=127)
            yield tokens[:-1], tokens[1:]
            piece = piece[-1:] + file.read(CONTEXT)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(128, WIDTH)
        self.memory = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.predict = nn.Linear(WIDTH, 128)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.predict(self.memory(self.embed(tokens))[0])


policy = elastane.FixedGlobal(options.global_batch) if options.global_batch else None
job = elastane.Job(None if policy else options.virtual_workers, batch=policy, seed=0)
lengths = None if options.look else count_pieces
texts = elastane.shards(lambda: sorted(glob.glob(options.pattern)), open=open_text, lengths=lengths)
model = Model().to(job.device)
loader = job.loader(texts, None if policy else 8, shuffle=True)  # a policy says itself how many samples
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
model, optimizer = job.prepare(model, optimizer, clip_grad_norm=1.0)

for _ in job.epochs(options.epochs):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        job.log(loss=loss)

if job.is_main:
    print(f"steps {job.step}, {len(texts.names)} files with {len(texts)} samples")
    print(f"digest {job.digest()}")
