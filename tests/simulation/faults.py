"""What happens to a simulated job from outside: requests, and everything that can go wrong.

All of it follows from the seed. Faults stop at a moment from which on the job must make progress.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from msgspec import structs

from elastane.core.view import JobView, encode
from elastane.model.ids import DeviceId, WorkerId
from elastane.model.records import Leave, Spec
from elastane.model.topology import Mode
from elastane.store.base import Put, Store

from .storage import KEYS
from .worker import Fate

if TYPE_CHECKING:
    from .world import World

Deed = Callable[["World"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """Say how rough a world is.

    Attributes:
        requests: planned changes.
        mishaps: everything else.
        bad_start: the part of workers that crash, hang or are slow while they start.
        spare_one: leave one worker that holds the state in peace.
    """

    requests: int
    mishaps: int
    bad_start: float
    spare_one: bool = True


def choose_weather(rng: Random) -> Weather:
    """Return how rough a world is."""
    kind = rng.random()
    if kind < 0.25:
        return Weather(requests=rng.randint(2, 9), mishaps=0, bad_start=0.3)
    if kind < 0.50:
        return Weather(requests=rng.randint(0, 3), mishaps=rng.randint(1, 6), bad_start=0.1)
    if kind < 0.95:
        return Weather(requests=rng.randint(2, 7), mishaps=rng.randint(2, 8), bad_start=0.2)
    return Weather(requests=2, mishaps=8, bad_start=0.2, spare_one=False)


def choose_fate(rng: Random, bad_start: float) -> Fate:
    """Return how a worker starts."""
    lag_s = 0.0 if rng.random() < 0.5 else rng.random() * (0.05 if rng.random() < 0.9 else 0.2)
    start_s, prepare_s = 0.02 + rng.random() * 0.3, 0.02 + rng.random() * 0.5
    if rng.random() >= bad_start:
        return Fate(start_s=start_s, prepare_s=prepare_s, lag_s=lag_s)
    kind = rng.randrange(6)
    if kind == 0:
        prepare_s *= 10
    crash_at = ("", "preparing", "ready", "transfer", "", "")[kind]
    stall_at = ("", "", "", "", "preparing", "connecting")[kind]
    return Fate(start_s=start_s, prepare_s=prepare_s, crash_at=crash_at, stall_at=stall_at, lag_s=lag_s)


# --- requests --------------------------------------------------------------------------------------


def _edit_spec(world: "World", edit: Callable[[JobView], Spec]) -> None:
    view = world.storage.newest
    assert view is not None
    if view.status.phase.ended or view.spec.stop:
        return
    spec = edit(view)
    world.note("operator", f"asks for {spec}")

    def write(store: Store) -> None:
        store.transact(puts=[Put(key=KEYS.spec, value=encode(spec))])

    world.storage.apply(write, "operator")


def scale(world: "World") -> None:
    """Ask for another number of workers."""
    wanted = world.rng.randint(1, min(world.devices, world.virtual_workers))
    _edit_spec(world, lambda view: structs.replace(view.spec, wanted=wanted))


def leave(how: Leave) -> Deed:
    """Return a deed that asks a member to leave."""

    def ask(world: "World") -> None:
        worker = _pick_member(world)
        if worker is not None:
            node = world.rng.choice(list(world.nodes))
            device = f"cpu:{world.rng.randrange(world.nodes[node])}"
            wish = world.rng.choice((device, f"{node}/{device}"))
            targets = (DeviceId(wish),) if how is Leave.SWAP else ()
            _edit_spec(
                world,
                lambda view: structs.replace(
                    view.spec, leaving={**view.spec.leaving, worker: how}, targets=targets
                ),
            )

    return ask


def evict_leader(world: "World") -> None:
    """Ask the leader to leave."""
    view = world.storage.newest
    if view is not None and view.leader is not None:
        worker = view.leader
        _edit_spec(world, lambda v: structs.replace(v.spec, leaving={**v.spec.leaving, worker: Leave.SWAP}))


def stop(world: "World") -> None:
    """Ask the job to stop; it is resumed when it has ended."""
    world.resumes = world.rng.random() < 0.8
    _edit_spec(world, lambda view: structs.replace(view.spec, stop=True))


# --- mishaps ---------------------------------------------------------------------------------------


def _pick_member(world: "World") -> WorkerId | None:
    view = world.storage.newest
    if view is None or view.current is None:
        return None
    members = [m.worker for m in view.current.members if world.workers[m.worker].process.alive]
    return world.rng.choice(members) if members else None


def _pick_victim(world: "World") -> WorkerId | None:
    """Return a worker that may be lost: in most worlds one that holds the state is left in peace."""
    view = world.storage.newest
    living = [w for w, x in world.workers.items() if x.process.alive and not x.process.frozen]
    if not living or view is None:
        return None
    leads = view.leader in living and world.rng.random() < 0.4
    victim = view.leader if leads else world.rng.choice(living)
    if not world.weather.spare_one:
        return victim
    holders = [w for w in living if world.is_sound(w) and view.alive(w) and w not in view.spec.leaving]
    return victim if [w for w in holders if w != victim] else None


def kill(world: "World") -> None:
    """Kill a worker."""
    victim = _pick_victim(world)
    if victim is not None:
        world.end_process(victim, -9)


def kill_all(world: "World") -> None:
    """Kill all workers at once."""
    if world.weather.spare_one and world.rng.random() < 0.5:
        return
    for worker in [w for w, x in world.workers.items() if x.process.alive]:
        world.end_process(worker, -9)


def kill_most(world: "World") -> None:
    """Kill whoever holds the state, one shortly after the other."""
    holders = [w for w, x in world.workers.items() if x.process.alive and x.stance.gate.has_state]
    for worker in holders:
        world.loop.call_after(world.rng.random() * 0.2, lambda w=worker: world.end_process(w, -9))


def freeze(world: "World") -> None:
    """Stop a worker for less or more than its lease."""
    victim = _pick_victim(world)
    if victim is not None:
        world.freeze(victim, world.rng.choice((0.2, 1.5, 2.9, 3.1, 4.0, 8.0)) * world.rng.uniform(0.9, 1.1))


def cut_from_store(world: "World") -> None:
    """Cut a worker off from the store for a while."""
    victim = _pick_victim(world)
    if victim is not None:
        for_s = world.rng.choice((0.5, 2.0, 3.5, 8.0))
        world.note("fate", f"cuts {victim} from the store for {for_s} s")
        world.workers[victim].control.client.cut_until_s = world.loop.now_s + for_s
        world.troubled[victim] = world.loop.now_s + for_s


def cut_pair(world: "World") -> None:
    """Cut two workers off from each other for a while, perhaps in one direction only."""
    living = [w for w, x in world.workers.items() if x.process.alive]
    if len(living) < 2:
        return
    one, other = world.rng.sample(living, 2)
    for_s = world.rng.choice((0.1, 1.0, 5.0, 60.0))
    world.note("fate", f"cuts {one} from {other} for {for_s} s")
    world.fabric.cut(one, other, world.loop.now_s + for_s)
    if world.rng.random() < 0.5:
        world.fabric.cut(other, one, world.loop.now_s + for_s)


def hang(world: "World") -> None:
    """Let a worker's training activity go on no more, while its control activity lives."""
    victim = _pick_victim(world)
    if victim is not None:
        world.hang(victim)


def freeze_half(world: "World") -> None:
    """Stop half of all workers at the same moment, for less or more than their leases."""
    if not world.weather.spare_one and world.rng.random() < 0.5:
        return
    living = [w for w, x in world.workers.items() if x.process.alive and not x.process.frozen]
    sound = [w for w in living if world.is_sound(w)]
    if len(sound) < 2:
        return
    spared = world.rng.choice(sound)
    others = [w for w in living if w != spared]
    for_s = world.rng.choice((1.0, 2.9, 3.5, 8.0))
    for victim in world.rng.sample(others, (len(living) + 1) // 2 if len(others) > len(living) // 2 else 1):
        world.freeze(victim, for_s + world.rng.random() * 0.1)


def kill_supplier(world: "World") -> None:
    """Kill one of those that send the state, in the middle of a switch."""

    def spring(ambushed: "World") -> None:
        view = ambushed.storage.newest
        assert view is not None
        assert view.current is not None
        sound = [w for w in view.current.suppliers if view.alive(w) and ambushed.is_sound(w)]
        if len(sound) > 1:
            ambushed.loop.call_after(ambushed.rng.random() * 0.05, lambda: ambushed.end_process(sound[0], -9))

    world.ambushes.append((_in_switch, spring))


def slow_store(world: "World") -> None:
    """Let the store be slow for a while."""
    for_s = world.rng.uniform(1.0, 6.0)
    world.storage.delay_s = world.rng.choice((0.05, 0.2, 0.4))
    world.note("fate", f"slows the store down to {world.storage.delay_s} s for {for_s:.2f} s")
    world.loop.call_after(for_s, world.heal_store)


def store_outage(world: "World") -> None:
    """Let the store be away for less or more than a lease."""
    for_s = world.rng.choice((0.1, 0.5, 1.5, 2.5, 4.0, 7.0))
    world.note("fate", f"takes the store away for {for_s} s")
    world.storage.down_until_s = world.loop.now_s + for_s


def restart_agent(world: "World") -> None:
    """Kill an agent; another one starts soon, or only after its lease has run out. The workers live on."""
    world.replace_agent(world.rng.choice(list(world.nodes)), world.rng.choice((0.2, 1.0, 3.0, 9.0)))


def lose_node(world: "World") -> None:
    """Switch a node off, if another one holds the state; it comes back after a while."""
    node = world.rng.choice(list(world.nodes))
    view = world.storage.newest
    sound = [
        w for w, x in world.workers.items() if x.process.alive and not x.process.frozen and world.is_sound(w)
    ]
    safe = [w for w in sound if world.workers[w].node != node and view is not None and view.alive(w)]
    staying = [w for w in safe if view is not None and w not in view.spec.leaving]
    if staying or (view is not None and view.current is None) or not world.weather.spare_one:
        world.lose_node(node, world.rng.choice((0.5, 3.0, 8.0)))


def lie_in_wait(world: "World") -> None:
    """Kill or freeze somebody at a delicate moment: in a proposal, a switch or a recovery."""
    moment = world.rng.choice((_in_proposal, _in_promises, _in_switch, _in_recovery))
    deed = kill if world.rng.random() < 0.7 else freeze
    delay_s = world.rng.random() * world.rng.choice((0.0, 0.02, 0.1))

    def spring(ambushed: "World") -> None:
        ambushed.loop.call_after(delay_s, lambda: deed(ambushed))

    world.ambushes.append((moment, spring))


def _in_proposal(view: JobView) -> bool:
    return view.proposal is not None


def _in_promises(view: JobView) -> bool:
    return view.proposal is not None and view.proposal.switch_step is not None


def _in_switch(view: JobView) -> bool:
    return view.current is not None and not view.settled


def _in_recovery(view: JobView) -> bool:
    topologies = (view.current if not view.settled else None, view.proposal)
    return any(t is not None and t.mode is Mode.RECOVERY for t in topologies)


REQUESTS: tuple[tuple[Deed, int], ...] = (
    (scale, 8),
    (leave(Leave.SWAP), 4),
    (leave(Leave.NOW), 3),
    (evict_leader, 2),
    (stop, 1),
)
MISHAPS: tuple[tuple[Deed, int], ...] = (
    (kill, 6),
    (kill_all, 2),
    (kill_most, 2),
    (freeze, 4),
    (cut_from_store, 3),
    (cut_pair, 3),
    (slow_store, 2),
    (store_outage, 2),
    (hang, 2),
    (freeze_half, 2),
    (kill_supplier, 2),
    (restart_agent, 2),
    (lose_node, 2),
    (lie_in_wait, 6),
)


def plan_deeds(rng: Random, weather: Weather, until_s: float) -> list[tuple[float, Deed]]:
    """Return what happens when."""
    deeds = [(rng.uniform(0.0, until_s), _draw(rng, REQUESTS)) for _ in range(weather.requests)]
    deeds += [(rng.uniform(0.0, until_s), _draw(rng, MISHAPS)) for _ in range(weather.mishaps)]
    if deeds and rng.random() < 0.3:  # a burst
        around_s = rng.uniform(0.0, until_s - 2.0)
        deeds = [(around_s + rng.random() * 2.0, deed) for _, deed in deeds]
    return sorted(deeds, key=lambda item: item[0])


def _draw(rng: Random, weighted: tuple[tuple[Deed, int], ...]) -> Deed:
    return rng.choices([deed for deed, _ in weighted], [weight for _, weight in weighted])[0]
