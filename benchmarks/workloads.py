"""The workloads as stock PyTorch trains them: the twins of the scripts in `examples/`.

Same models, data, batch sizes, optimizers, schedules and clipping as there, so that a comparison differs only
in who runs the step.
"""

import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

EXAMPLES = Path(__file__).parent.parent / "examples"
MANY_STEPS = 1_000_000
"""More than any benchmark trains: the length of a job that is ended when enough has been seen."""


@dataclass(frozen=True, kw_only=True)
class Twin:
    """Hold what a stock training loop needs.

    Attributes:
        loss: of (model, batch).
        schedulers: stepped after each optimizer step; none or one.
        clip_grad_norm: largest norm of the gradient; None for no clipping.
    """

    model: nn.Module
    dataset: Dataset[Any]
    optimizer: torch.optim.Optimizer
    loss: Callable[[nn.Module, Any], Tensor]
    schedulers: tuple[torch.optim.lr_scheduler.LRScheduler, ...] = ()
    clip_grad_norm: float | None = None


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Name a workload: its example, its twin, and what both take.

    Attributes:
        example: file in `examples/`.
        endless: the example's arguments that make it train until it is ended.
        build: makes the twin.
        batch_size: per virtual worker, or per rank; the example's default.
        loading_processes: the example's `num_workers`.
    """

    name: str
    example: str
    endless: tuple[str, ...]
    build: Callable[[], Twin]
    batch_size: int
    loading_processes: int = 0

    @property
    def script(self) -> Path:
        """Return the example's path."""
        return EXAMPLES / self.example


def build_digits() -> Twin:
    """Return the twin of `examples/digits.py`."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=MANY_STEPS)
    dataset = TensorDataset(images[:1500], labels[:1500])
    return Twin(model=model, dataset=dataset, optimizer=optimizer, loss=_classify, schedulers=(scheduler,))


def build_mlp25m() -> Twin:
    """Return the twin of `examples/mlp25m.py`."""
    model = nn.Sequential(
        nn.Linear(1024, 3072), nn.ReLU(), nn.Linear(3072, 3072), nn.ReLU(), nn.Linear(3072, 3072), nn.ReLU(),
        nn.Linear(3072, 1024),
    )  # fmt: skip
    inputs = torch.randn(4096, 1024)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    return Twin(
        model=model, dataset=TensorDataset(inputs, inputs.roll(1, 1)), optimizer=optimizer, loss=_regress
    )


def build_lm() -> Twin:
    """Return the twin of `examples/language_model.py`."""
    model = _Transformer(context=64, width=64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=MANY_STEPS)
    return Twin(
        model=model,
        dataset=_Characters(context=64),
        optimizer=optimizer,
        loss=_predict,
        schedulers=(scheduler,),
        clip_grad_norm=1.0,
    )


class _Characters(Dataset[tuple[Tensor, Tensor]]):
    """Hold consecutive pieces of the sources of a few modules of the standard library."""

    def __init__(self, context: int) -> None:
        self._context = context
        folder = Path(sysconfig.get_path("stdlib"))
        names = ("argparse.py", "ast.py", "dataclasses.py", "datetime.py", "decimal.py", "inspect.py")
        text = "".join((folder / name).read_text(encoding="utf-8") for name in names)
        self._tokens = torch.tensor([min(ord(c), 127) for c in text])

    def __len__(self) -> int:
        return (len(self._tokens) - 1) // self._context

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        piece = self._tokens[index * self._context : (index + 1) * self._context + 1]
        return piece[:-1], piece[1:]


class _Transformer(nn.Module):
    """Be two transformer layers with a causal mask."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(128, width), nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embed(tokens) + self.place.weight
        logits: Tensor = self.out(self.layers(hidden, mask=self.mask, is_causal=True))
        return logits


def _classify(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def _regress(model: nn.Module, batch: Any) -> Tensor:
    return F.mse_loss(model(batch[0]), batch[1])


def _predict(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


DIGITS = Workload(
    name="digits", example="digits.py", endless=("--epochs", "40000"), build=build_digits, batch_size=32
)
MLP25M = Workload(
    name="mlp25m", example="mlp25m.py", endless=("--steps", "30000"), build=build_mlp25m, batch_size=64
)
LM = Workload(
    name="lm",
    example="language_model.py",
    endless=("--epochs", "1000", "--max-steps", str(MANY_STEPS)),
    build=build_lm,
    batch_size=8,
    loading_processes=1,
)
WORKLOADS = {workload.name: workload for workload in (DIGITS, MLP25M, LM)}
