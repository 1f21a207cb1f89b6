"""Decide how a job is measured at several sizes: which, in which order, and when one has been seen enough.

EDL's way (Wu et al., TPDS 2021): the job starts once, with the most workers, and is scaled in from size to
size. What comes next depends on the present size alone, so nothing is lost with a worker that dies. Pure;
knows no throughput and no memory, only which steps count.
"""

import hashlib
import re
from dataclasses import dataclass
from math import ceil

import msgspec

from elastane.core.leader import LeaderSettings
from elastane.model.errors import ConfigError, ProfileMismatchError
from elastane.model.profile import MeasuredProfile
from elastane.model.records import ModelSignature, ProfilePlan

FEWEST_STEPS = 5
"""Fewer say nothing about how much steps vary."""
MOST_WORKERS = 10_000
"""As for jobs: a larger number is a slip of the hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """Name the steps that count for one size: `first` to `last`, both included."""

    generation: int
    workers: int
    first: int
    last: int


def make_plan(minimum: int, maximum: int, allocations: str | None, steps: int) -> ProfilePlan:
    """Return which sizes are measured: all from `minimum` to `maximum`, or those that a list names.

    Args:
        minimum, maximum: numbers of workers; not used if a list is given.
        allocations: such as "1,2,4,8", in any order; None for no list.
        steps: that count, with each size.

    Raises:
        ConfigError: something is no number, too small or contradictory.
    """
    if steps < FEWEST_STEPS:
        raise ConfigError(
            f"--steps {steps} are too few to tell how much steps vary; count {FEWEST_STEPS} or more"
        )
    if allocations is not None:
        return ProfilePlan(allocations=_parse_allocations(allocations), steps=steps)
    if minimum < 1:
        raise ConfigError(f"--min {minimum}: a job runs with at least 1 worker")
    if minimum > maximum:
        raise ConfigError(
            f"--min {minimum} is more than --max {maximum}; sizes are measured from the largest down"
        )
    _check_most(maximum)
    return ProfilePlan(allocations=tuple(range(maximum, minimum - 1, -1)), steps=steps)


def check_plan(plan: ProfilePlan, devices: int, virtual_workers: int | None) -> None:
    """Raise ConfigError unless this machine, and N if it is known, have room for the largest size."""
    largest = plan.allocations[0]
    if largest > devices:
        raise ConfigError(
            f"{largest} workers need {largest} devices, one each, and {devices} may be used here; "
            f"measure up to {devices}, or give more with --devices"
        )
    if virtual_workers is not None and largest > virtual_workers:
        raise ConfigError(
            f"{largest} workers cannot share {virtual_workers} virtual workers; measure up to "
            f"{virtual_workers}, or give more with --virtual-workers"
        )


def find_next(plan: ProfilePlan, workers: int) -> int | None:
    """Return the size to be measured after `workers`; None if it was the smallest."""
    return max((size for size in plan.allocations if size < workers), default=None)


def compute_needed_steps(plan: ProfilePlan, step_time_s: float, measured: int = 0) -> int:
    """Return about how many steps a job must have so that all sizes can be measured.

    Args:
        plan: the sizes.
        step_time_s: of most steps; 0 if it is not known.
        measured: sizes that have been measured already.
    """
    # Between two sizes the old one trains on until the switch: T_a, and some steps to agree.
    allowance_s = LeaderSettings().allowance_s
    switch = 1 + (ceil(2 * allowance_s / step_time_s) if step_time_s > 0 else 0)
    sizes = len(plan.allocations) - measured
    return sizes * (plan.skipped_steps + plan.steps) + (sizes - 1) * switch


def fingerprint_model(signature: ModelSignature) -> str:
    """Return what tells a model and its optimizers from others: a sha256 of their signature, in hexadecimal.

    The number of virtual workers and the batch policy are not in it.
    """
    return hashlib.sha256(msgspec.json.encode(signature.entries)).hexdigest()


def check_profile(profile: MeasuredProfile, signature: ModelSignature) -> None:
    """Raise ProfileMismatchError unless `profile` was measured with the model of `signature`, run alike."""
    other = f"the profile of {profile.name!r}, measured {profile.made_at},"
    if profile.model != fingerprint_model(signature):
        raise ProfileMismatchError(
            f"{other} belongs to another model or optimizer than this script makes: its parameters, buffers "
            "or optimizer settings differ in name, shape or type; measure this one anew"
        )
    if profile.batch != signature.batch:
        raise ProfileMismatchError(
            f"{other} was taken with {_describe_batch(profile.batch)}, this job has "
            f"{_describe_batch(signature.batch)}; measure it anew"
        )
    if profile.virtual_workers != signature.virtual_workers:
        raise ProfileMismatchError(
            f"{other} has {profile.virtual_workers} virtual workers, this job {signature.virtual_workers}: "
            "their steps train different numbers of samples; measure it anew"
        )


class AllocationMeter:
    """Tell when enough steps of a generation have been seen.

    All members of a generation commit the same steps, so all come to the same answer without asking.

    Args:
        plan: how many steps are needed.
    """

    def __init__(self, plan: ProfilePlan) -> None:
        self._plan = plan
        self._generation: int | None = None
        self._seen = 0

    def observe(self, generation: int, workers: int, step: int) -> MeasuredSteps | None:
        """Take a committed step; return which steps count when this is the last of them, else None."""
        if generation != self._generation:
            self._generation, self._seen = generation, 0
        self._seen += 1
        if workers not in self._plan.allocations:
            return None
        if self._seen != self._plan.skipped_steps + self._plan.steps:
            return None
        return MeasuredSteps(
            generation=generation, workers=workers, first=step - self._plan.steps + 1, last=step
        )


def _parse_allocations(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d{1,6}", part, flags=re.ASCII) for part in parts):
        raise ConfigError(f"--allocations {text!r} is no list of numbers of workers; write 1,2,4,8")
    sizes = sorted({int(part) for part in parts}, reverse=True)
    if sizes[-1] < 1:
        raise ConfigError(f"--allocations {text}: a job runs with at least 1 worker")
    _check_most(sizes[0])
    return tuple(sizes)


def _check_most(workers: int) -> None:
    if workers > MOST_WORKERS:
        raise ConfigError(f"{workers} workers are more than any job can have ({MOST_WORKERS})")


def _describe_batch(batch: str) -> str:
    return f"the batch policy {batch}" if batch else "virtual workers and no batch policy"
