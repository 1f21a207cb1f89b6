"""Seeds name places: the same place gives the same seed everywhere, different places different ones."""

from hypothesis import given
from hypothesis import strategies as st

from elastane.core.randomness import DATA_STREAM, EVAL_STREAM, INIT_STREAM, STEP_STREAM, mix_seed

words = st.integers(-(1 << 70), 1 << 70)


def test_the_mix_is_that_of_splitmix64() -> None:
    # The first output of splitmix64 for state 0, as in the reference implementation of its authors.
    assert mix_seed(0) == 0xE220A8397B1DCDAF


def test_seeds_never_change_between_versions() -> None:
    # Saved jobs continue with the same bits: whoever changes these values breaks them.
    assert [mix_seed(0, STEP_STREAM, 0, 0), mix_seed(7, DATA_STREAM, 1, 2, 3), mix_seed(-1, INIT_STREAM)] == [
        0x7745FFB5617E4927,
        0x477B94CDE43A7C7F,
        0x68631D79EEAD940D,
    ]


@given(words, st.lists(words, max_size=5))
def test_a_seed_has_64_bits_and_is_a_function_of_its_place(seed: int, parts: list[int]) -> None:
    mixed = mix_seed(seed, *parts)
    assert 0 <= mixed < 1 << 64
    assert mix_seed(seed, *parts) == mixed


@given(words, st.lists(words, min_size=1, max_size=4))
def test_a_place_within_another_has_another_seed(seed: int, parts: list[int]) -> None:
    assert mix_seed(seed, *parts) != mix_seed(seed, *parts[:-1])


@given(st.integers(0, 1 << 63), st.integers(1, 1000))
def test_neighbouring_seeds_share_no_stream(seed: int, distance: int) -> None:
    streams = (INIT_STREAM, STEP_STREAM, DATA_STREAM, EVAL_STREAM)
    mine = {mix_seed(seed, stream, 3, 1) for stream in streams}
    theirs = {mix_seed(seed + distance, stream, 3, 1) for stream in streams}
    assert mine.isdisjoint(theirs)


def test_no_two_places_of_a_long_job_share_a_seed() -> None:
    places = [
        (stream, step, vrank)
        for stream in (STEP_STREAM, EVAL_STREAM)
        for step in range(2000)
        for vrank in range(16)
    ]
    assert len({mix_seed(0, *place) for place in places}) == len(places)


def test_each_bit_of_the_seeds_of_neighbouring_places_is_set_about_half_of_the_time() -> None:
    seeds = [mix_seed(0, STEP_STREAM, step, vrank) for step in range(256) for vrank in range(16)]
    counts = [sum(seed >> bit & 1 for seed in seeds) for bit in range(64)]
    # 4096 fair coins: 5 standard deviations are 160
    assert all(abs(count - 2048) < 160 for count in counts)


def test_the_order_of_the_parts_matters() -> None:
    assert mix_seed(0, STEP_STREAM, 1, 2) != mix_seed(0, STEP_STREAM, 2, 1)
