"""Short schedules of trouble, made by hypothesis, which shrinks one that breaks an invariant."""

from hypothesis import given, settings
from hypothesis import strategies as st

from elastane.model.records import Leave

from .faults import (
    Deed,
    cut_from_store,
    cut_pair,
    evict_leader,
    freeze,
    kill,
    leave,
    lie_in_wait,
    scale,
    stop,
    store_outage,
)
from .world import World

DEEDS: dict[str, Deed] = {
    "scale": scale,
    "swap": leave(Leave.SWAP),
    "leave": leave(Leave.NOW),
    "evict the leader": evict_leader,
    "stop": stop,
    "kill": kill,
    "freeze": freeze,
    "ambush": lie_in_wait,
    "cut from the store": cut_from_store,
    "cut two workers": cut_pair,
    "store outage": store_outage,
}
SCHEDULES = st.lists(st.tuples(st.integers(0, 100), st.sampled_from(sorted(DEEDS))), max_size=8)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 9), schedule=SCHEDULES)
def test_any_short_schedule_keeps_the_invariants(seed: int, schedule: list[tuple[int, str]]) -> None:
    world = World(seed)
    world.total_steps = min(world.total_steps, 40)
    world.deeds = [(tenths / 10, DEEDS[name]) for tenths, name in sorted(schedule)]
    assert world.run().violation == ""
