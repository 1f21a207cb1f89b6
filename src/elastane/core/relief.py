"""Decide what to do about slow workers: give them less to do, replace them, let them go, or bear them.

Theory of operation. `core.stragglers` names suspects and measures speeds. Each answer is judged by the step
time that it promises, max_i A_i / C_i: nothing is done that does not shorten the step by more than 3 %.

    off        only tell
    rebalance  move virtual workers from slow to fast workers; also how unlike devices are used well
    replace    start successors and swap when they are ready: never fewer workers meanwhile (Or et al.)
    evict      let them go without successors (EDL)
    auto       rebalance, since that costs nothing; who is still slow after it is replaced if a device is free

After each of them the watch begins anew, so the next answer comes a detection time later at the earliest.
Devices of those that went rest (`core.cooling`), and replacing waits the longer the more often it was needed:
where every device is as slow, swapping goes nowhere. Knows no store and no clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median_high

from elastane.core.cooling import CoolingSettings, Ledger, compute_rest_s
from elastane.core.placement import WORTH_MOVING, compute_step_time, is_worth_moving, plan_placement
from elastane.core.stragglers import Suspect, level_speeds
from elastane.model.ids import DeviceId, WorkerId
from elastane.model.topology import VrankRange


class Answer(StrEnum):
    """Choose what is done about slow workers; see the module's text."""

    OFF = "off"
    REBALANCE = "rebalance"
    REPLACE = "replace"
    EVICT = "evict"
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliefSettings:
    """Hold the constants of the decision.

    Attributes:
        answer: what may be done.
        gain: share by which the step must get shorter.
        cooling: how long devices rest.
        replacement_rest_s: wait after a round of replacements before the next, doubled for each further
            round in memory; a successor needs some seconds to start and to be judged.
    """

    answer: Answer = Answer.AUTO
    gain: float = WORTH_MOVING
    cooling: CoolingSettings = field(default_factory=CoolingSettings)
    replacement_rest_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Say who trains which virtual workers on what."""

    worker: WorkerId
    device: DeviceId
    vranks: VrankRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Show a job whose members are all known to be slow or not.

    Attributes:
        seats: the members, in order.
        speeds: virtual workers per second of each; empty if not yet known.
        suspects: who is persistently slow.
        free_devices: devices without a worker, resting ones among them.
        minimum: fewest workers that the job is to have.
        dealt_evenly: a batch policy deals the global batch out in equal parts, one to each worker.
    """

    seats: Sequence[Seat]
    speeds: Mapping[WorkerId, float]
    suspects: Sequence[Suspect] = ()
    free_devices: Sequence[DeviceId] = ()
    minimum: int = 1
    dealt_evenly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bear:
    """Do nothing, and say why; "" if there is nothing to do anything about."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """Give the members, in order, these ranges, which are the best ones by these speeds."""

    ranges: tuple[VrankRange, ...]
    speeds: tuple[float, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Have successors take over from these workers, all at the same switch or one by one as they come."""

    workers: tuple[WorkerId, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """Let these workers go without successors."""

    workers: tuple[WorkerId, ...]
    reason: str


Relief = Bear | Rebalance | Replace | Evict


def decide_straggler(situation: Situation, ledger: Ledger, now_s: float, settings: ReliefSettings) -> Relief:
    """Return what to do about the slow workers of a job.

    Whoever carries out a `Replace` or an `Evict` notes the devices in the ledger.
    """
    speeds = _known_speeds(situation)
    if settings.answer is Answer.OFF or speeds is None:
        return Bear(reason=_describe(situation.suspects))
    tries = {
        Answer.REBALANCE: (_try_rebalance,),
        Answer.REPLACE: (_try_replace,),
        Answer.EVICT: (_try_evict,),
        Answer.AUTO: (_try_rebalance, _try_replace),
    }[settings.answer]
    refusals = []
    for attempt in tries:
        relief = attempt(situation, speeds, ledger, now_s, settings)
        if not isinstance(relief, Bear):
            return relief
        refusals.append(relief.reason)
    if not situation.suspects:
        return Bear()
    return Bear(reason=f"{_describe(situation.suspects)}; {'; '.join(filter(None, refusals))}")


def find_readmitted(ledger: Ledger, evicted: Sequence[DeviceId], now_s: float) -> tuple[DeviceId, ...]:
    """Return the devices of evicted workers that have rested: as many workers may be asked for again."""
    resting = ledger.resting(now_s)
    return tuple(device for device in evicted if device not in resting)


def _known_speeds(situation: Situation) -> list[float] | None:
    known = [situation.speeds.get(seat.worker, 0.0) for seat in situation.seats]
    return level_speeds(known) if len(known) > 1 and all(speed > 0 for speed in known) else None


def _try_rebalance(
    situation: Situation, speeds: list[float], ledger: Ledger, now_s: float, settings: ReliefSettings
) -> Relief:
    del ledger, now_s
    if situation.dealt_evenly:
        return Bear(reason="the batch policy deals out equal parts")
    present = [seat.vranks for seat in situation.seats]
    planned = plan_placement(present[-1].stop, speeds, present)
    if not is_worth_moving(present, planned, speeds, settings.gain):
        return Bear(reason=f"no other placement makes the step more than {settings.gain:.0%} shorter")
    before_s, after_s = compute_step_time(present, speeds), compute_step_time(planned, speeds)
    moved = ", ".join(
        f"{seat.worker} {seat.vranks.width} -> {vranks.width}"
        for seat, vranks in zip(situation.seats, planned, strict=True)
        if seat.vranks.width != vranks.width
    )
    ground = _describe(situation.suspects) or "the workers are unequally fast"
    return Rebalance(
        ranges=planned,
        speeds=tuple(speeds),
        reason=f"{ground}; virtual workers {moved}: {_compare(before_s, after_s)}",
    )


def _try_replace(
    situation: Situation, speeds: list[float], ledger: Ledger, now_s: float, settings: ReliefSettings
) -> Relief:
    if not situation.suspects:
        return Bear()
    resting = ledger.resting(now_s)
    fresh = [device for device in situation.free_devices if device not in resting]
    if not fresh:
        rest = f" ({', '.join(sorted(resting))} rest after slowness)" if resting else ""
        return Bear(reason=f"no free device for a successor{rest}")
    wait_until_s = _replacing_rests_until_s(ledger, now_s, settings)
    if wait_until_s > now_s:
        return Bear(reason=f"the last replacement was not enough; the next in {wait_until_s - now_s:.0f} s")
    going = [suspect.worker for suspect in situation.suspects][: len(fresh)]
    # A successor is expected to be like most of the others. The swap deals the virtual workers anew.
    typical = median_high(speeds)
    after = [
        typical if seat.worker in going else speed
        for seat, speed in zip(situation.seats, speeds, strict=True)
    ]
    present = [seat.vranks for seat in situation.seats]
    before_s, after_s = compute_step_time(present, speeds), _plan_step_time(situation, after)
    if not after_s < (1 - settings.gain) * before_s:
        return Bear(reason=f"successors would not make the step more than {settings.gain:.0%} shorter")
    return Replace(
        workers=tuple(going),
        reason=f"{_describe(situation.suspects)}; successors take over: {_compare(before_s, after_s)}",
    )


def _replacing_rests_until_s(ledger: Ledger, now_s: float, settings: ReliefSettings) -> float:
    last_s = ledger.last_round_s(now_s)
    if last_s is None:
        return now_s
    pace = CoolingSettings(
        first_rest_s=settings.replacement_rest_s, longest_rest_s=settings.cooling.longest_rest_s
    )
    return last_s + compute_rest_s(ledger.rounds(now_s), pace)


def _try_evict(
    situation: Situation, speeds: list[float], ledger: Ledger, now_s: float, settings: ReliefSettings
) -> Relief:
    del ledger, now_s
    if not situation.suspects:
        return Bear()
    room = len(situation.seats) - max(1, situation.minimum)
    if room < 1:
        return Bear(reason=f"the job is to have at least {max(1, situation.minimum)} workers")
    present = [seat.vranks for seat in situation.seats]
    before_s = compute_step_time(present, speeds)
    best_s, best = before_s, 0
    for count in range(1, min(room, len(situation.suspects)) + 1):
        after_s = _step_time_without(situation, speeds, situation.suspects[:count])
        if after_s < best_s:
            best_s, best = after_s, count
    if not best_s < (1 - settings.gain) * before_s:
        return Bear(reason="the others would take as long with what it does")
    going = situation.suspects[:best]
    return Evict(
        workers=tuple(suspect.worker for suspect in going),
        reason=f"{_describe(going)}; the others go on without: {_compare(before_s, best_s)}",
    )


def _step_time_without(situation: Situation, speeds: list[float], going: Sequence[Suspect]) -> float:
    names = {suspect.worker for suspect in going}
    rest = [speed for seat, speed in zip(situation.seats, speeds, strict=True) if seat.worker not in names]
    return _plan_step_time(situation, rest)


def _plan_step_time(situation: Situation, speeds: Sequence[float]) -> float:
    """Return the step time when all parts are dealt anew to workers of these speeds."""
    parts = situation.seats[-1].vranks.stop
    if situation.dealt_evenly:
        return parts / len(speeds) / min(speeds)
    return compute_step_time(plan_placement(parts, speeds), speeds)


def _describe(suspects: Sequence[Suspect]) -> str:
    return "; ".join(
        f"{suspect.worker} takes {suspect.slowness:.2f} times as long as most ({suspect.evidence})"
        for suspect in suspects
    )


def _compare(before_s: float, after_s: float) -> str:
    return f"a step takes some {1000 * after_s:.3g} instead of {1000 * before_s:.3g} ms"
