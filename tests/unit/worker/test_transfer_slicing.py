"""Every byte of a state is carried once, in pieces of sensible length."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastane.worker import slicing
from elastane.worker.slicing import CUT_BYTES, PACK_BELOW_BYTES, PACK_BYTES, Run, plan_pieces, plan_shares

LENGTHS = st.lists(
    st.integers(0, 300) | st.integers(PACK_BELOW_BYTES - 2, PACK_BELOW_BYTES + 2) | st.integers(0, 1 << 23),
    max_size=30,
)


@given(total=st.integers(0, 1 << 45), suppliers=st.integers(1, 100))
def test_shares_follow_one_another_and_are_even(total: int, suppliers: int) -> None:
    shares = plan_shares(total, suppliers)
    assert len(shares) == suppliers
    assert shares[0].start == 0
    assert shares[-1].stop == total
    assert all(one.stop == other.start for one, other in itertools.pairwise(shares))
    assert all(share.start % CUT_BYTES == 0 for share in shares)
    assert all(abs(len(share) - total / suppliers) < 2 * CUT_BYTES for share in shares)


@given(lengths=LENGTHS, suppliers=st.integers(1, 5), data=st.data())
def test_every_byte_is_carried_exactly_once_and_in_order(
    lengths: list[int], suppliers: int, data: st.DataObject
) -> None:
    lanes = [data.draw(st.sampled_from(["cpu", "cuda"])) for _ in lengths]
    shares = plan_shares(sum(lengths), suppliers)
    plans = [plan_pieces(lengths, lanes, share) for share in shares]

    begins = [sum(lengths[:i]) for i in range(len(lengths))]
    position = 0
    for share, plan in zip(shares, plans, strict=True):
        assert position == share.start
        for run in (run for piece in plan for run in piece):
            assert begins[run.tensor] + run.start == position
            assert 0 <= run.start < run.stop <= lengths[run.tensor]
            position += run.nbytes
        assert position == share.stop


@given(lengths=LENGTHS, data=st.data())
def test_pieces_do_not_mix_memories_nor_grow_without_bound(lengths: list[int], data: st.DataObject) -> None:
    lanes = [data.draw(st.sampled_from(["cpu", "cuda"])) for _ in lengths]
    for piece in plan_pieces(lengths, lanes, range(sum(lengths))):
        assert len({lanes[run.tensor] for run in piece}) == 1
        if len(piece) > 1:
            assert all(run.nbytes < PACK_BELOW_BYTES for run in piece)
            assert sum(run.nbytes for run in piece) < PACK_BYTES + PACK_BELOW_BYTES


def test_small_neighbours_are_packed_and_large_ones_go_alone() -> None:
    large = PACK_BELOW_BYTES
    pieces = plan_pieces([8, 0, 4, large, 8, 8], ["cpu"] * 6, range(large + 28))
    assert pieces == (
        (Run(0, 0, 8), Run(2, 0, 4)),
        (Run(3, 0, large),),
        (Run(4, 0, 8), Run(5, 0, 8)),
    )


def test_a_share_cuts_through_tensors() -> None:
    assert plan_pieces([100, 100], ["cpu", "cpu"], range(64, 128)) == ((Run(0, 64, 100), Run(1, 0, 28)),)


def test_very_long_runs_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slicing, "MAX_PIECE_BYTES", 1 << 20)
    pieces = plan_pieces([(5 << 19) + 7], ["cpu"], range((5 << 19) + 7))
    assert [run.nbytes for piece in pieces for run in piece] == [1 << 20, 1 << 20, (1 << 19) + 7]
