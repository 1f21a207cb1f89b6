"""Train a small character transformer on the text of Python's standard library (AdamW, cosine, clipping)."""

import argparse
import sysconfig
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import elastane

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--max-steps", type=int, default=200)
parser.add_argument("--virtual-workers", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=8)
options = parser.parse_args()
CONTEXT, WIDTH = 64, 64


class Characters(Dataset):
    """Consecutive pieces of the sources of a few well-known modules."""

    def __init__(self) -> None:
        folder = Path(sysconfig.get_path("stdlib"))
        names = ("argparse.py", "ast.py", "dataclasses.py", "datetime.py", "decimal.py", "inspect.py")
        text = "".join((folder / name).read_text(encoding="utf-8") for name in names)
        self.tokens = torch.tensor([min(ord(c), 127) for c in text])

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        piece = self.tokens[index * CONTEXT : (index + 1) * CONTEXT + 1]
        return piece[:-1], piece[1:]


class Model(nn.Module):
    """Two transformer layers with a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(128, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embed(tokens) + self.place.weight
        return self.out(self.layers(hidden, mask=self.mask, is_causal=True))


job = elastane.Job(virtual_workers=options.virtual_workers, seed=1)
model = Model().to(job.device)
loader = job.loader(Characters(), batch_size=options.batch_size, num_workers=1)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.max_steps)
model, optimizer, scheduler = job.prepare(model, optimizer, scheduler, clip_grad_norm=1.0)

for _ in job.epochs(options.epochs, max_steps=options.max_steps):
    for tokens, targets in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        scheduler.step()
        job.log(loss=loss)

if job.is_main:
    print(f"steps {job.step}")
    print(f"digest {job.digest()}")
