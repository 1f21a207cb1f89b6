"""The samples of shards are dealt to virtual workers in runs, each sample once."""

from hypothesis import given
from hypothesis import strategies as st

from elastane.core.shard_order import ShardSample, lay_out


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any))
    order = draw(st.permutations(range(len(lengths))))
    return lengths, list(order), draw(st.integers(1, sum(lengths)))


def runs_of(lengths: list[int], order: list[int], virtual_workers: int) -> list[list[ShardSample]]:
    layout = lay_out(lengths, order, virtual_workers)
    return [
        [layout.locate(position) for position in range(vrank, sum(lengths), virtual_workers)]
        for vrank in range(virtual_workers)
    ]


def test_shards_are_cut_into_runs_as_written_here() -> None:
    assert runs_of([3, 2, 4], [2, 0, 1], 2) == [
        [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)],
        [(1, 1), (1, 2), (2, 0), (2, 1)],
    ]


@given(layouts())
def test_every_sample_of_every_shard_has_one_position(layout: tuple[list[int], list[int], int]) -> None:
    lengths, order, virtual_workers = layout
    runs = runs_of(lengths, order, virtual_workers)
    in_line = [sample for run in runs for sample in run]
    assert in_line == [
        (place, offset) for place, number in enumerate(order) for offset in range(lengths[number])
    ]


@given(layouts())
def test_runs_differ_by_one_sample_and_share_few_shards(layout: tuple[list[int], list[int], int]) -> None:
    lengths, order, virtual_workers = layout
    runs = runs_of(lengths, order, virtual_workers)
    assert max(map(len, runs)) - min(map(len, runs)) <= 1
    visits = sum(len({sample.place for sample in run}) for run in runs)
    used = sum(1 for length in lengths if length)
    assert visits <= used + virtual_workers - 1


def test_equal_shards_in_a_multiple_of_n_are_read_whole() -> None:
    runs = runs_of([4] * 6, [3, 1, 5, 0, 2, 4], 3)
    assert [[sample.place for sample in run] for run in runs] == [
        [0] * 4 + [1] * 4,
        [2] * 4 + [3] * 4,
        [4] * 4 + [5] * 4,
    ]
