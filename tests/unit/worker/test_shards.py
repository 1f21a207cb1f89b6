"""Data in shards: exactly once, the same bits however far readers have to go, and clear errors."""

import os
import pickle
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shard_files import Files, as_list, make
from torch import nn

import elastane
from elastane.core.data_order import DataOrder, Tail
from elastane.model.errors import ConfigError, ModelMismatchError, ShardError
from elastane.model.topology import VrankRange
from elastane.worker import shards as module
from elastane.worker.data import FeedSettings
from elastane.worker.feeder import BatchFeeder
from elastane.worker.permutation import ShardOrders
from elastane.worker.shards import ShardCatalogue, ShardedData
from elastane.worker.signature import compute_signature
from elastane.worker.state import JobState

LENGTHS = [5, 0, 8, 3, 7, 1, 6]
TOTAL = sum(LENGTHS)


def feeder_of(data: ShardedData, order: DataOrder) -> BatchFeeder:
    return BatchFeeder(data, order, 7, settings=FeedSettings(shuffle=True, collate_fn=as_list))


@pytest.mark.parametrize("indexed", [False, True])
def test_samples_are_numbered_shard_by_shard(indexed: bool) -> None:
    files = Files(LENGTHS, indexed=indexed)
    data = make(files)
    expected = [(number, offset) for number, length in enumerate(LENGTHS) for offset in range(length)]
    assert (len(data), data.lengths) == (TOTAL, tuple(LENGTHS))
    assert [sample[:2] for sample in data] == expected
    assert [data[index][:2] for index in (29, 4, 5)] == [expected[29], expected[4], expected[5]]
    with pytest.raises(IndexError, match="sample -1 of 30"):
        data[-1]


@given(st.integers(1, 9), st.integers(1, 5), st.sampled_from(["exact", "drop"]), st.integers(0, 2))
def test_every_epoch_has_every_sample_once_in_an_order_of_its_own(
    virtual_workers: int, batch_size: int, tail: str, epoch: int
) -> None:
    if tail == "drop" and virtual_workers * batch_size > TOTAL:
        return
    order = DataOrder(samples=TOTAL, virtual_workers=virtual_workers, batch_size=batch_size, tail=Tail(tail))
    feeder = feeder_of(make(Files(LENGTHS)), order)
    batches = [
        feeder.fetch(epoch, step, vrank) or []
        for step in range(order.steps_per_epoch)
        for vrank in range(virtual_workers)
    ]
    samples = [sample for batch in batches for sample in batch]
    assert len(samples) == len(set(samples)) == (TOTAL if tail == "exact" else sum(map(len, batches)))
    if tail == "drop":
        assert len(samples) == order.steps_per_epoch * virtual_workers * batch_size


def test_a_virtual_worker_reads_shards_from_front_to_back_and_opens_each_once() -> None:
    files = Files([6] * 8)
    data = make(files, lengths=[6] * 8)
    order = DataOrder(samples=48, virtual_workers=4, batch_size=3)
    feeder = feeder_of(data, order)
    read: list[tuple[int, int]] = []
    for step in range(4):
        read += feeder.fetch(0, step, 2)
    (first, second) = dict.fromkeys(number for number, _ in read)
    assert read == [(first, i) for i in range(6)] + [(second, i) for i in range(6)]
    assert (files.opened, files.read, files.closed) == ([first, second], 12, 2)
    assert {tuple(s[:2]) for e in (0, 1) for s in feeder.fetch(e, 0, 0)} != set()
    orders = ShardOrders(data.lengths, 7, 4, shuffle=True)
    assert orders.indices(0, range(0, 48, 4)) != orders.indices(1, range(0, 48, 4))
    assert ShardOrders(data.lengths, 7, 4, shuffle=False).indices(3, range(0, 48, 4)) == list(range(12))


def test_positions_beyond_the_end_begin_anew() -> None:
    orders = ShardOrders([2, 2], 7, 3, shuffle=False)
    assert orders.indices(0, range(6)) == [0, 2, 3, 1, 0, 2]


class Ragged(Files):
    """Shards that draw on their way and fail after three samples."""

    def open(self, number: int) -> Any:
        for sample in super().open(number):
            if sample[1] == 3:
                raise OSError("the disk is gone")
            yield sample


def skip_to_the_end(files: Ragged) -> None:
    make(files, lengths=[5])[4]


def count(files: Ragged) -> None:
    len(make(files))


@pytest.mark.parametrize("use", [skip_to_the_end, count])
def test_an_error_on_the_way_to_a_sample_leaves_random_generators_where_they_were(use: Any) -> None:
    files = Ragged([5], noisy=True)
    before = torch.get_rng_state(), random.getstate()
    with pytest.raises(OSError, match="the disk is gone"):
        use(files)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_a_shard_that_goes_on_beyond_its_end_shows_in_no_random_generator() -> None:
    ends, goes_on = (Files([length], noisy=True) for length in (3, 5))
    states = []
    for files in (ends, goes_on):
        torch.manual_seed(1)
        data = make(files, lengths=[3])
        with suppress(ShardError):
            data.__getitems__([0, 1, 2])
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.parametrize("seed", range(5))
def test_the_bits_of_a_batch_do_not_depend_on_what_was_read_before(seed: int) -> None:
    order = DataOrder(samples=TOTAL, virtual_workers=4, batch_size=2)
    keys = [(epoch, step, vrank) for epoch in (0, 1) for step in range(4) for vrank in range(4)]
    alone = {key: feeder_of(make(Files(LENGTHS, noisy=True)), order).fetch(*key) for key in keys}
    feeder = feeder_of(make(Files(LENGTHS, noisy=True)), order)
    random.Random(seed).shuffle(keys)
    for key in keys:
        assert feeder.fetch(*key) == alone[key]


def test_two_virtual_workers_in_one_shard_have_a_reader_each() -> None:
    files = Files([40])
    feeder = feeder_of(make(files, lengths=[40]), DataOrder(samples=40, virtual_workers=2, batch_size=2))
    for step in range(10):
        for vrank in range(2):
            feeder.fetch(0, step, vrank)
    assert len(files.opened) <= 3
    assert files.read <= 40 + 2 * 20  # and not the way to the second one's place in every step


def test_few_shards_are_open_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_READERS", 3)
    files = Files([2] * 9)
    data = make(files, lengths=[2] * 9)
    for number in range(9):
        assert data[2 * number] == (number, 0)
    assert (len(data._readers), files.closed) == (3, 6)
    assert data[1] == (0, 1)
    assert files.opened == [*range(9), 0]


def test_a_forked_process_opens_files_of_its_own(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text("".join(f"{number}-{line}\n" for line in range(2000)))
    data = elastane.shards(sorted(tmp_path.glob("*.txt")), open=open, lengths=[2000, 2000])
    assert data[0] == "0-0\n"
    child = os.fork()
    if child == 0:
        os._exit(0 if [data[index] for index in range(1, 1999)][-1] == "0-1998\n" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [data[index] for index in range(1, 4)] == ["0-1\n", "0-2\n", "0-3\n"]
    assert pickle.loads(pickle.dumps(data))[1] == "0-1\n"


def test_lengths_are_counted_told_or_computed(tmp_path: Path) -> None:
    files = Files(LENGTHS)
    before = torch.get_rng_state()
    assert make(files).lengths == tuple(LENGTHS)
    assert torch.equal(torch.get_rng_state(), before)
    assert files.closed == len(LENGTHS)
    assert make(files, lengths=lambda number: LENGTHS[number]).lengths == tuple(LENGTHS)
    assert elastane.shards(lambda: iter("ab"), open=Files([1]).open, lengths=[3, 4]).names == ("a", "b")


def grown(number: int, *, by: int, indexed: bool) -> ShardedData:
    files = Files([4, 4], indexed=indexed)
    data = make(files)
    assert len(data) == 8
    files.lengths[number] += by
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: grown(1, by=2, indexed=False), "shard 1 has more samples, but 4 when training began"),
        (lambda: grown(1, by=-2, indexed=False), "shard 1 has 2 samples, but 4 when training began"),
        (lambda: grown(0, by=1, indexed=True), "shard 0 has 5 samples, but 4 when training began"),
        (lambda: grown(0, by=-1, indexed=True), "shard 0 has 3 samples, but 4 when .* put it back"),
    ],
)
def test_a_shard_that_changed_its_length_is_told(data: Any, message: str) -> None:
    changed = data()
    for _ in range(2):  # also when it is tried again
        with pytest.raises(ShardError, match=message):
            [changed[index] for index in range(8)]


def test_a_shard_that_cannot_be_opened_is_told_with_its_cause(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(ShardError, match=r"a\.txt cannot be opened: FileNotFoundError: .*every worker must"):
        len(elastane.shards([path], open=open))
    path.write_text("one\n")
    data = elastane.shards([path], open=open)
    assert len(data) == 1
    path.unlink()
    feeder = feeder_of(data, DataOrder(samples=1, virtual_workers=1, batch_size=1))
    with pytest.raises(ShardError, match=r"a\.txt cannot be opened") as told:
        feeder.fetch(0, 0, 0)
    assert told.value.__notes__ == ["while fetching samples [0]"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: elastane.shards([], open=open), "given no shards"),
        (lambda: elastane.shards(["a"], open=open, lengths=[1, 2]), "given 1 shards and 2 lengths"),
        (lambda: elastane.shards(["a"], open=open, lengths=[-1]), "length of shard a is -1"),
        (lambda: elastane.shards(["a"], open=open, lengths=lambda _: None), "length of shard a is None"),
        (lambda: elastane.Job().loader(make(Files([0])), 1), "has 0 samples"),
    ],
)
def test_what_is_no_data_is_refused_with_what_to_do(wrong: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        wrong()


def train(first: str) -> tuple[elastane.Job, list[Any]]:
    job = elastane.Job(virtual_workers=3, seed=1)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = make(Files(LENGTHS))
    if first == "loader":
        loader = job.loader(data, batch_size=2, collate_fn=as_list)
        job.prepare(model, optimizer)
    else:
        job.prepare(model, optimizer)
        loader = job.loader(data, batch_size=2, collate_fn=as_list)
    seen = []
    for _ in job.epochs(1):
        for batch in loader:
            seen += batch
            model(torch.tensor([sample[:2] for sample in batch]) / 9).sum().backward()
            optimizer.step()
    return job, seen


@pytest.mark.parametrize("first", ["loader", "prepare"])
def test_a_job_trains_on_shards_and_keeps_them_in_its_state(first: str) -> None:
    job, seen = train(first)
    assert sorted(seen) == [(n, offset) for n, length in enumerate(LENGTHS) for offset in range(length)]
    assert isinstance(job._trainer.state.registered["elastane.shards"], ShardCatalogue)


def test_other_shards_are_refused_by_the_signature_and_by_a_saved_state() -> None:
    own, other = (ShardCatalogue(make(Files(lengths)).describe()) for lengths in ([4, 5], [5, 4]))
    with pytest.raises(
        ModelMismatchError, match=r"sees 2 shards with 9 samples .* the job trains on 2 shards"
    ):
        own.load_state_dict(other.state_dict())
    own.load_state_dict(ShardCatalogue(make(Files([4, 5])).describe()).state_dict())
    state = JobState(device=torch.device("cpu"), models=[nn.Linear(1, 1)])
    state.register("elastane.shards", own)
    assert ("registered/elastane.shards", own.text) in compute_signature(state, 2).entries


def test_where_the_shards_lie_does_not_matter_but_their_names_and_lengths_do() -> None:
    def describe(*names: str) -> dict[str, Any]:
        return elastane.shards(names, open=open, lengths=[3] * len(names)).describe()

    assert describe("/here/a", "/here/b") == describe("/there/a", "/there/b")
    assert describe("/here/a", "/here/b") != describe("/here/b", "/here/a")


def test_prefetching_along_the_schedule_reads_each_shard_once() -> None:
    files = Files([8] * 6)
    data = make(files, lengths=[8] * 6)
    order = DataOrder(samples=48, virtual_workers=2, batch_size=4)
    feeder = feeder_of(data, order)
    feeder.schedule(0, 0, VrankRange(0, 2))
    for step in range(6):
        for vrank in range(2):
            feeder.fetch(0, step, vrank)
    assert sorted(files.opened) == list(range(6))
    assert files.read == 48
