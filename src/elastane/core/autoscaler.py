"""Search for the number of workers that a job makes good use of, by measuring its throughput.

The schedule of Or, Zhang and Freedman (MLSys 2020, section 4.1): measure, add K workers, measure, and so on
until the condition fails; if it failed at once, go down to the next size that was not measured until it
passes. The size before the first failure is kept. A size is measured over some steps, never the first after
a change.

Two conditions (section 4.2). *Efficiency*: a further worker adds more than a share S of what one worker does
now, (dR / dk) / (R_k / k) > S. *Utility*: what the job gains in value by ending earlier is more than what it
costs more, U(T_k') - U(T_k) > C_k' - C_k.

Against thrashing: after the search nothing changes for a stability period. After it the search is repeated
if there is an occasion: the job has become faster or slower at the size it has (by medians, since what is
measured in ten steps varies), the condition now says something else of what was measured, or more devices are
there. Without one it is repeated much later, and
later each time it changed nothing. Workers are given back if fewer were measured to be faster. And since a
climb ends on the hill it begins on, the smallest size is looked at once, where that costs little. All of it
is a pure function of (search, observation): the caller keeps the search, measures and asks for workers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from statistics import median

from elastane.core.utility import Utility
from elastane.model.errors import ConfigError

MEDIAN_OF = 5
"""Measurements whose medians are compared to tell whether the job has changed. At a spread of 1 % two single
ones differ by more than 3 % once in 30 times without a cause, two medians of five once in 10,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Say what ending early is worth and what workers cost.

    Attributes:
        utility: value by total time.
        price: of one worker for one second, in the utility's currency.
    """

    utility: Utility
    price: float

    def __post_init__(self) -> None:
        if not self.price >= 0:
            raise ConfigError(f"the price of a worker is {self.price:g}; it cannot be below 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleSettings:
    """Hold what the user chose and the constants of the search.

    Attributes:
        minimum, maximum: fewest and most workers.
        step: K, workers added or removed at a time; the paper suggests the devices of a machine.
        parts: N, if a step is cut into N equal parts: sizes at which the busiest worker would have as many as
            with fewer workers are passed over on the way up. 0: any number of workers shares evenly.
        efficiency: S; used if no `worth` is given. 0.1 in the paper.
        worth: the condition by value and cost.
        interval_steps: steps measured at a size; "even a small value such as 10 is often sufficient".
        skipped_steps: steps after a change that are not measured.
        stability_s: nothing is tried anew before so long; doubles each time the search changed nothing.
        longest_stability_s: up to this.
        blind_s: without an occasion nothing is searched before so long; doubles in the same way. A search
            costs a minute or two where changes are slow (Or et al., table 1), so 1 to 2 % of an hour.
        look_share: share of the remaining time that a look at the smallest size may take at worst.
        tolerance: share by which throughput varies without a cause.
    """

    minimum: int = 1
    maximum: int
    step: int = 1
    parts: int = 0
    efficiency: float = 0.1
    worth: Worth | None = None
    interval_steps: int = 10
    skipped_steps: int = 1
    stability_s: float = 600.0
    longest_stability_s: float = 4 * 3600.0
    blind_s: float = 3600.0
    look_share: float = 0.01
    tolerance: float = 0.03

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= self.maximum:
            raise ConfigError(
                f"at least {self.minimum} and at most {self.maximum} workers is no range; "
                "min must be 1 or more, and max not below min"
            )
        if self.step < 1:
            raise ConfigError(f"{self.step} workers cannot be added at a time; step must be 1 or more")
        if not 0 <= self.efficiency <= 1:
            raise ConfigError(
                f"an efficiency of {self.efficiency:g} is none; it is the share of one worker's throughput "
                "that a further worker must add: 0 to 1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Show a job after `interval_steps` measured steps with one and the same number of workers.

    Attributes:
        now_s: any clock that does not jump.
        size: workers that trained.
        throughput: samples per second of all of them; samples, since the batch of a capped policy grows.
        elapsed_s: time since the job began.
        remaining_samples: still to be trained; needed by a utility.
        available: most workers that there are devices for; None if that is not known.
        step_time_s: time of a step; 0 if that is not known.
    """

    now_s: float
    size: int
    throughput: float
    elapsed_s: float = 0.0
    remaining_samples: float = 0.0
    available: int | None = None
    step_time_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Remember what was measured and decided.

    Attributes:
        measured: samples per second by number of workers, in this search.
        settled: the size that the search came to; None while it goes on.
        settled_at_s: when.
        first_rates: the first measurements of this size since then, in samples per second.
        last_rates: the last ones.
        settled_most: how many workers were possible then.
        began_at: the size at which this search began; None in the first.
        idle_searches: how many searches in a row came back to where they had begun, or further down.
        initial_s: total time expected at the first measurement.
        looks: the smallest size is being looked at.
        looked: it was, by this search or one before.
    """

    measured: Mapping[int, float] = field(default_factory=dict)
    settled: int | None = None
    settled_at_s: float = 0.0
    first_rates: Sequence[float] = ()
    last_rates: Sequence[float] = ()
    settled_most: int = 0
    began_at: int | None = None
    idle_searches: int = 0
    initial_s: float | None = None
    looks: bool = False
    looked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeDecision:
    """Say how many workers to have, why, and what to remember."""

    size: int
    reason: str
    search: Search


def compute_most(settings: AutoscaleSettings, virtual_workers: int = 0, max_global: int = 0) -> int:
    """Return the most workers that can be used; 0 stands for no such limit.

    A worker needs a virtual worker; where the global batch is capped (Or et al.), a sample of it.

    Raises:
        ConfigError: not even the minimum of workers can be used.
    """
    most = settings.maximum
    for limit, what in ((virtual_workers, "virtual workers"), (max_global, "samples in the largest batch")):
        if limit and limit < settings.minimum:
            raise ConfigError(
                f"the autoscaler is to keep {settings.minimum} workers; the job has {limit} {what}: lower min"
            )
        most = min(most, limit or most)
    return most


def decide_size(search: Search, seen: Observation, settings: AutoscaleSettings) -> SizeDecision:
    """Return how many workers the job should have after this observation."""
    most = min(settings.maximum, max(settings.minimum, seen.available or settings.maximum))
    initial_s = search.initial_s
    if initial_s is None:
        initial_s = seen.elapsed_s + seen.remaining_samples / seen.throughput
    search = replace(_note_rate(search, seen), initial_s=initial_s)
    if not settings.minimum <= seen.size <= most:
        size = min(max(seen.size, settings.minimum), most)
        return SizeDecision(
            size=size, reason=f"{settings.minimum} to {most} workers are possible", search=search
        )
    if search.settled is None:
        return _go_on(search, seen, settings, most)
    return _review(search, seen, settings, most)


def _note_rate(search: Search, seen: Observation) -> Search:
    """Remember what was measured: of the size that is kept the median of the last measurements."""
    rate = seen.throughput
    if seen.size == search.settled:
        first = (*search.first_rates, rate)[:MEDIAN_OF]
        last = (*search.last_rates, rate)[-MEDIAN_OF:]
        search, rate = replace(search, first_rates=first, last_rates=last), median(last)
    return replace(search, measured={**search.measured, seen.size: rate})


def explain_condition(
    search: Search, fewer: int, more: int, seen: Observation, settings: AutoscaleSettings
) -> tuple[bool, str]:
    """Return whether the condition for going from `fewer` to `more` workers holds, and by which figures."""
    low, high = search.measured[fewer], search.measured[more]
    if settings.worth is None:
        gain = (high - low) / (more - fewer) / (low / fewer)
        holds = gain > settings.efficiency
        return holds, f"efficiency {gain:.2f} {'>' if holds else 'not >'} {settings.efficiency:g}"
    worth, initial_s = settings.worth, search.initial_s or 0.0
    rest_low_s, rest_high_s = seen.remaining_samples / low, seen.remaining_samples / high
    value = worth.utility.value(seen.elapsed_s + rest_high_s, initial_s)
    value -= worth.utility.value(seen.elapsed_s + rest_low_s, initial_s)
    cost = worth.price * (more * rest_high_s - fewer * rest_low_s)
    holds = value > cost
    return holds, f"worth {value:.4g} more {'>' if holds else 'not >'} {cost:.4g} more cost"


def _go_on(search: Search, seen: Observation, settings: AutoscaleSettings, most: int) -> SizeDecision:
    """Choose the next size to measure, or settle."""
    sizes = _usable_sizes(search, settings, most)
    failure = _find_failure(search, sizes, seen, settings)
    if failure is not None:
        fewer, more, figures = failure
        why = f"{fewer} -> {more} workers did not pay: {figures}"
        if fewer > sizes[0] or fewer == settings.minimum:
            return _settle(search, fewer, seen.now_s, most, f"{why}; {fewer} is kept")
        return _probe(search, max(settings.minimum, fewer - settings.step), why)
    top = sizes[-1]
    grounds = ""
    if len(sizes) > 1:
        figures = explain_condition(search, sizes[-2], top, seen, settings)[1]
        grounds = f"{sizes[-2]} -> {top} workers paid: {figures}"
    higher = _find_higher(top, settings, most)
    if higher > top:
        return _probe(search, higher, grounds or "one size says nothing")
    limit = f"no more than {most} are possible"
    if top < most:
        limit = f"up to {most} workers have no less to do"
    if grounds:
        return _settle(search, top, seen.now_s, most, f"{grounds}; {limit}")
    if top > settings.minimum:
        return _probe(search, max(settings.minimum, top - settings.step), limit)
    return _settle(search, top, seen.now_s, most, f"no other number than {top} is possible")


def _find_higher(top: int, settings: AutoscaleSettings, most: int) -> int:
    """Return the next size up at which the busiest worker has less to do; `top` if there is none."""
    size = top
    while size < most:
        size = min(most, size + settings.step)
        if not settings.parts or ceil(settings.parts / size) < ceil(settings.parts / top):
            return size
    return top


def _usable_sizes(search: Search, settings: AutoscaleSettings, most: int) -> list[int]:
    return sorted(size for size in search.measured if settings.minimum <= size <= most)


def _find_failure(
    search: Search, sizes: Sequence[int], seen: Observation, settings: AutoscaleSettings
) -> tuple[int, int, str] | None:
    """Return the first step up that did not pay, and by which figures; None if all did."""
    for fewer, more in pairwise(sizes):
        holds, figures = explain_condition(search, fewer, more, seen, settings)
        if not holds:
            return fewer, more, figures
    return None


def _probe(search: Search, size: int, why: str) -> SizeDecision:
    return SizeDecision(size=size, reason=f"{why}; try {size}", search=search)


def _settle(search: Search, size: int, now_s: float, most: int, reason: str) -> SizeDecision:
    paid = search.began_at is not None and size > search.began_at
    idle = 0 if paid or search.began_at is None else search.idle_searches + 1
    settled = replace(
        search,
        settled=size,
        settled_at_s=now_s,
        first_rates=(),
        last_rates=(),
        settled_most=most,
        idle_searches=idle,
    )
    return SizeDecision(size=size, reason=reason, search=settled)


# --- after the search -------------------------------------------------------------------------------


def _review(search: Search, seen: Observation, settings: AutoscaleSettings, most: int) -> SizeDecision:
    """Keep the size, give workers back, look at the smallest size, or begin another search."""
    settled = search.settled
    assert settled is not None
    if search.looks:
        if seen.size == settings.minimum:
            return _judge_look(search, seen, settings, most)
        search = replace(search, looks=False)
    if seen.size != min(settled, most):
        return SizeDecision(size=min(settled, most), reason=f"back to {settled}", search=search)
    slower = [
        size
        for size, rate in search.measured.items()
        if settings.minimum <= size < seen.size and rate >= seen.throughput * (1 + settings.tolerance)
    ]
    if slower:
        fewer = max(slower, key=lambda size: (search.measured[size], -size))
        reason = (
            f"{seen.size} workers now do {seen.throughput:.4g} samples/s, {fewer} did "
            f"{search.measured[fewer]:.4g}: the others are given back"
        )
        return _settle(replace(search, began_at=seen.size), fewer, seen.now_s, most, reason)
    if seen.now_s < search.settled_at_s + _back_off(settings.stability_s, search, settings):
        return SizeDecision(size=seen.size, reason="settled", search=search)
    return _renew(search, seen, settings, most)


def _renew(search: Search, seen: Observation, settings: AutoscaleSettings, most: int) -> SizeDecision:
    """Search again if there is an occasion, or look at the smallest size, or keep what there is."""
    occasion = _find_occasion(search, seen, settings, most)
    if not occasion and _may_look(search, seen, settings):
        reason = f"nothing has changed; look once at {settings.minimum}, where another hill may be"
        looks = replace(search, looks=True, looked=True)
        return SizeDecision(size=settings.minimum, reason=reason, search=looks)
    blind_s = _back_off(settings.blind_s, search, settings)
    if not occasion and seen.now_s < search.settled_at_s + blind_s:
        return SizeDecision(size=seen.size, reason="settled", search=search)
    return _search_anew(search, seen, settings, most, occasion or "the last search was long ago")


def _back_off(first_s: float, search: Search, settings: AutoscaleSettings) -> float:
    return min(settings.longest_stability_s, first_s * 2.0 ** min(search.idle_searches, 40))


def _find_occasion(search: Search, seen: Observation, settings: AutoscaleSettings, most: int) -> str:
    """Return why another search may end elsewhere; "" if nothing says so."""
    settled = search.settled
    if seen.size == settled:
        rate = search.measured[seen.size]
        drift = rate / median(search.first_rates) - 1
        if abs(drift) > settings.tolerance:
            return f"{settled} workers now do {rate:.4g} samples/s, {drift:+.0%}"
    sizes = _usable_sizes(search, settings, most)
    failure = _find_failure(search, sizes, seen, settings)
    kept = failure[0] if failure is not None else sizes[-1]
    if kept != settled:
        return f"by what was measured {kept} would be kept now"
    if failure is None and settled == search.settled_most < most:
        return f"{most} workers are possible now"
    return ""


def _may_look(search: Search, seen: Observation, settings: AutoscaleSettings) -> bool:
    """Tell whether the smallest size was never seen, and to look at it costs little even at worst.

    At worst, with perfect scaling, its steps take seen.size / minimum times as long as those of now.
    Efficiency says something of neighbours only, and nothing of sizes far apart.
    """
    seen_before = search.looked or settings.minimum in search.measured
    if settings.worth is None or seen_before or not seen.step_time_s:
        return False
    steps = settings.skipped_steps + settings.interval_steps
    worst_s = steps * seen.step_time_s * seen.size / settings.minimum
    return worst_s < settings.look_share * seen.remaining_samples / seen.throughput


def _judge_look(search: Search, seen: Observation, settings: AutoscaleSettings, most: int) -> SizeDecision:
    """Go back, or climb from the smallest size on if it is worth more than the one that was kept."""
    settled, fewest = search.settled, settings.minimum
    assert settled is not None
    holds, figures = explain_condition(search, fewest, settled, seen, settings)
    if not holds:
        why = f"{fewest} -> {settled} workers do not pay: {figures}"
        return _search_anew(search, seen, settings, most, why)
    reason = f"{fewest} -> {settled} workers pay: {figures}; back to {settled}"
    # Forgotten again: the climb compares neighbours, which these two are not.
    near = {size: rate for size, rate in search.measured.items() if size != fewest}
    return SizeDecision(size=settled, reason=reason, search=replace(search, looks=False, measured=near))


def _search_anew(
    search: Search, seen: Observation, settings: AutoscaleSettings, most: int, why: str
) -> SizeDecision:
    again = Search(
        measured={seen.size: search.measured[seen.size]},
        began_at=search.settled,
        idle_searches=search.idle_searches,
        initial_s=search.initial_s,
        looked=search.looked,
    )
    decision = _go_on(again, seen, settings, most)
    return replace(decision, reason=f"{why}: {decision.reason}")
