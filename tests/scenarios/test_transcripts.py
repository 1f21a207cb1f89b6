"""The records of eight small stories are written as the transcripts beside this file say.

After a change of the protocol: UPDATE_TRANSCRIPTS=1 pytest tests/scenarios, and read the difference.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from elastane.core.view import JobView, encode
from elastane.model.ids import NodeId, WorkerId
from elastane.model.records import Leave, Spec
from elastane.store.base import Put, Store
from simulation.agent import Agent
from simulation.faults import Deed, Weather
from simulation.storage import KEYS
from simulation.worker import Fate
from simulation.world import World

from .transcript import Recorder

HERE = Path(__file__).parent
N0 = NodeId("n0")
W1, W2, W3 = WorkerId("w1"), WorkerId("w2"), WorkerId("w3")
CALM = Weather(requests=0, mishaps=0, bad_start=0.0)


def make_world(deeds: list[tuple[float, Deed]], wanted: int = 2) -> World:
    """Return a world of four virtual workers in which nothing happens but `deeds`."""
    world = World(1)
    world.virtual_workers, world.devices, world.wanted = 4, 4, wanted
    world.step_s, world.transfer_s, world.total_steps = 0.25, 0.1, 30
    world.weather, world.deeds, world.evaluate_every = CALM, deeds, 0
    world.nodes = {N0: world.devices}
    world.agents = {N0: Agent(world, N0, world.devices)}
    for number in range(1, 6):
        start_s = 0.05 + 0.01 * number
        world.fates[WorkerId(f"w{number}")] = Fate(start_s=start_s, prepare_s=0.1)
    return world


def ask(edit: Callable[[Spec], Spec]) -> Deed:
    """Return a deed that changes the spec."""

    def write(world: World) -> None:
        view = world.storage.newest
        assert view is not None
        put = Put(key=KEYS.spec, value=encode(edit(view.spec)))

        def store_it(store: Store) -> None:
            store.transact(puts=[put])

        world.storage.apply(store_it, "operator")

    return write


def scale(wanted: int) -> Deed:
    return ask(lambda spec: structs.replace(spec, wanted=wanted))


def leave(worker: WorkerId, how: Leave) -> Deed:
    return ask(lambda spec: structs.replace(spec, leaving={worker: how}))


def kill(worker: WorkerId) -> Deed:
    return lambda world: world.end_process(worker, -9)


def kill_when(worker: WorkerId, moment: Callable[[JobView], bool]) -> Deed:
    return lambda world: world.ambushes.append((moment, kill(worker)))


def scale_out() -> World:
    return make_world([(2.0, scale(3))])


def scale_in() -> World:
    return make_world([(2.0, scale(1))])


def migrate() -> World:
    return make_world([(2.0, leave(W2, Leave.SWAP))])


def stop() -> World:
    return make_world([(2.0, ask(lambda spec: structs.replace(spec, stop=True)))])


def worker_killed() -> World:
    return make_world([(2.0, kill(W2))])


def leader_killed_in_a_proposal() -> World:
    return make_world([(2.0, scale(3)), (2.0, kill_when(W1, lambda view: bool(view.acks)))])


def joiner_crashes() -> World:
    world = make_world([(2.0, scale(3)), (2.0, kill_when(W3, lambda view: view.proposal is not None))])
    world.fates[WorkerId("w4")] = Fate(start_s=3.0, prepare_s=0.1)
    return world


def joiner_dies_in_the_transfer() -> World:
    world = make_world([(2.0, leave(W1, Leave.SWAP))], wanted=1)
    world.fates[W2] = Fate(start_s=0.1, prepare_s=0.1, crash_at="transfer")
    return world


STORIES = (
    scale_out,
    scale_in,
    migrate,
    stop,
    worker_killed,
    leader_killed_in_a_proposal,
    joiner_crashes,
    joiner_dies_in_the_transfer,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_records_are_written_as_the_transcript_says(story: Callable[[], World]) -> None:
    world = story()
    recorder = Recorder(world)
    outcome = world.run()
    assert outcome.violation == ""
    text = "\n".join(recorder.lines) + "\n"
    path = HERE / f"{story.__name__}.txt"
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        path.write_text(text)
    assert text == path.read_text()
