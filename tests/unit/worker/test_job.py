"""The object a script works with: what it accepts, refuses and returns, in a process of its own."""

import operator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import elastane
from elastane.model.errors import ConfigError, ElastaneError, LengthUnknownError, UnsupportedModelError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.observe.metrics import read_metrics
from elastane.worker.context import WorkerContext, set_context

DATA = TensorDataset(torch.arange(24.0).reshape(12, 2), torch.arange(12.0))


def prepared(
    virtual_workers: int = 2, **settings: Any
) -> tuple[elastane.Job, nn.Module, torch.optim.Optimizer]:
    job = elastane.Job(virtual_workers=virtual_workers, seed=1)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    job.prepare(model, optimizer, **settings)
    return job, model, optimizer


def train(job: elastane.Job, model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int = 1) -> None:
    loader = job.loader(DATA, batch_size=2)
    for _ in job.epochs(epochs):
        for x, y in loader:
            loss = ((model(x).squeeze(1) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            job.log(loss=loss, constant=1.5)


def test_two_runs_of_a_script_end_in_the_same_bits_and_another_seed_does_not() -> None:
    digests = []
    for _ in range(2):
        job, model, optimizer = prepared()
        train(job, model, optimizer, epochs=2)
        digests.append(job.digest())
        assert (job.step, job.epoch, job.is_main) == (6, 2, True)
    assert digests[0] == digests[1]
    assert elastane.Job(seed=2).seed == 2


def test_metrics_are_left_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTANE_METRICS", str(tmp_path / "made"))
    train(*prepared())
    records = read_metrics(tmp_path / "made")
    assert [(r.step, r.samples, r.values["constant"]) for r in records] == [(s, 4, 1.5) for s in range(3)]
    assert all(set(r.values) == {"loss", "constant"} for r in records)


def test_prepare_returns_the_same_objects_in_the_same_order() -> None:
    job = elastane.Job()
    model = nn.Linear(1, 1)
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    returned = job.prepare(model, scheduler, optimizer)
    assert [r is o for r, o in zip(returned, (model, scheduler, optimizer), strict=True)] == [True] * 3


def test_the_length_of_the_loader_is_the_number_of_steps_not_of_batches() -> None:
    assert len(elastane.Job(virtual_workers=3).loader(DATA, batch_size=2)) == 2


def test_under_a_batch_policy_a_lone_process_trains_the_whole_batch_of_one_worker() -> None:
    job = elastane.Job(batch=elastane.FixedGlobal(5), seed=1)
    assert job.virtual_workers == 5  # at most
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    job.prepare(model, optimizer)
    loader = job.loader(DATA)
    lengths = []
    for _ in job.epochs(2):
        for x, y in loader:
            lengths.append(len(x))
            ((model(x).squeeze(1) - y) ** 2).mean().backward()
            optimizer.step()
    assert (lengths, len(loader)) == ([5, 5, 2] * 2, 3)
    assert (job.virtual_workers, job.global_batch, job.step) == (1, 5, 6)


def test_a_loader_whose_steps_depend_on_the_workers_has_no_length() -> None:
    loader = elastane.Job(batch=elastane.CappedLocal(local=2, max_global=6)).loader(DATA)
    with pytest.raises(LengthUnknownError, match=r"depends on the workers under CappedLocal\(local=2"):
        len(loader)
    assert operator.length_hint(loader, 7) == 7  # who asks for a hint, as list() does, is not disturbed
    assert len(elastane.Job(batch=elastane.CappedLocal(local=6, max_global=6)).loader(DATA)) == 2


def test_n_of_the_command_line_and_a_batch_policy_exclude_each_other() -> None:
    context = WorkerContext(
        job=JobId("j"),
        worker=WorkerId("w"),
        node=NodeId("n"),
        device=DeviceId("cpu:0"),
        store_url="memory://unused",
        directory="unused",
        script="train.py",
        virtual_workers=8,
    )
    set_context(context)
    try:
        with pytest.raises(ConfigError, match=r"--virtual-workers 8 and batch=FixedGlobal\(4\) exclude"):
            elastane.Job(batch=elastane.FixedGlobal(4))
        assert elastane.Job(virtual_workers=2).virtual_workers == 8
    finally:
        set_context(None)


def test_a_registered_object_is_part_of_the_state() -> None:
    digests = []
    for start in (0.0, 1.0):
        job, *_ = prepared()
        average = nn.Linear(1, 1)
        nn.init.constant_(average.weight, start)
        nn.init.zeros_(average.bias)
        assert job.register("average", average) is job
        digests.append(job.digest())
    assert digests[0] != digests[1]


def test_an_evaluation_gives_all_samples_in_order() -> None:
    job, model, optimizer = prepared()
    train(job, model, optimizer)
    assert job.evaluate(lambda batch: batch[1], DATA, batch_size=5).tolist() == list(range(12))
    loader = job.eval_loader(DATA, batch_size=5)
    assert job.combine([y * 2 for _, y in loader]).tolist() == [2.0 * i for i in range(12)]


class Endless(IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (lambda: elastane.Job(virtual_workers=0), ConfigError, "virtual_workers is 0"),
        (lambda: elastane.Job(virtual_workers=-3), ConfigError, "virtual_workers is -3"),
        (lambda: elastane.Job(threads=0), ConfigError, "threads is 0"),
        (
            lambda: elastane.Job(virtual_workers=2, batch=elastane.FixedGlobal(4)),
            ConfigError,
            r"virtual_workers=2 and batch=FixedGlobal\(4\) exclude each other",
        ),
        (
            lambda: elastane.Job(batch=elastane.FixedGlobal(4)).loader(DATA, batch_size=2),
            ConfigError,
            r"batch_size=2, but FixedGlobal\(4\) says how many samples",
        ),
        (lambda: elastane.Job(batch=64), ConfigError, "batch=64 is no batch policy"),  # type: ignore[arg-type]
        (
            lambda: elastane.Job(batch=elastane.FixedGlobal(13)).loader(DATA),
            ConfigError,
            r"12 samples, fewer than the 13 that a step of FixedGlobal\(13\) may have",
        ),
        (
            lambda: elastane.Job(batch=elastane.FixedGlobal(4)).loader(DATA, tail="pad"),
            ConfigError,
            "tail='pad' repeats samples",
        ),
        (lambda: elastane.Job().loader(DATA), ConfigError, "job.loader needs batch_size"),
        (lambda: elastane.Job(determinism="maybe"), ConfigError, "determinism='maybe'"),
        (lambda: elastane.Job().loader(DATA, batch_size=0), ConfigError, "batch_size is 0"),
        (
            lambda: elastane.Job(virtual_workers=13).loader(DATA, 1),
            ConfigError,
            "12 samples, shorter than one",
        ),
        (
            lambda: elastane.Job(virtual_workers=7).loader(DATA, 2, tail="drop"),
            ConfigError,
            "shorter than one",
        ),
        (lambda: elastane.Job().loader(DATA, 1, tail="cut"), ConfigError, "tail='cut' is unknown"),
        (lambda: elastane.Job().loader(DATA, 1, drop_last=True), ConfigError, "does not know drop_last"),
        (lambda: elastane.Job().loader(DataLoader(DATA), 1), ConfigError, "DataLoader was passed"),
        (lambda: elastane.Job().loader(Endless(), 1), UnsupportedModelError, "IterableDataset"),
        (lambda: elastane.Job().prepare(nn.Linear(1, 1)), ConfigError, "needs the optimizer"),
        (lambda: elastane.Job().epochs(-1), ConfigError, "cannot be negative"),
        (lambda: elastane.Job().combine([]), ConfigError, "eval_loader before"),
        (lambda: elastane.Job().on_commit(print), ConfigError, "job.prepare"),
        (lambda: elastane.Job().register("a", nn.Linear(1, 1)), ConfigError, "job.prepare"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_to_do(
    wrong: Any, kind: type[ElastaneError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        wrong()


def test_objects_that_are_neither_optimizer_nor_scheduler_are_refused() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match="a Linear, which is neither"):
        elastane.Job().prepare(model, optimizer, nn.Linear(1, 1))
    job = elastane.Job()
    job.prepare(model, optimizer)
    with pytest.raises(ConfigError, match="called twice"):
        job.prepare(model, optimizer)


def test_models_that_cannot_be_split_exactly_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.SyncBatchNorm(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UnsupportedModelError, match="SyncBatchNorm"):
        elastane.Job(virtual_workers=2).prepare(model, optimizer)
