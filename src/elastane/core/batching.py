"""Batch policies: how many samples a step trains, and who trains them, when both follow the workers.

Under a policy every worker is one virtual worker, so N is the number of workers and changes with the
generation. What does not change is that a step takes the next samples of the epoch's permutation, whoever
trains them: see `data_order`. The policies are those of EDL (Wu et al., TPDS 2021) and of Or, Zhang and
Freedman (MLSys 2020, section 2.2). A job with a fixed number of virtual workers has none of them.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from elastane.core.data_order import BEGINNING, DataOrder, Place, Tail
from elastane.model.errors import ConfigError

LrRule = Literal["none", "linear", "sqrt"] | Callable[[int, int], float]
"""How the learning rate follows the global batch B of a full step, where B0 is the one it was chosen for: by
the factor 1, B/B0 (Goyal et al. 2017), sqrt(B/B0) (Krizhevsky 2014), or what a function of (B, B0) says."""


class BatchPolicy(Protocol):
    """Say how the number of samples in a step follows the number of workers."""

    @property
    def largest_batch(self) -> int:
        """Return the most samples of a step. So many workers there can be: each needs a sample."""
        ...

    @property
    def is_constant(self) -> bool:
        """Tell whether a step has equally many samples whatever the number of workers."""
        ...

    def global_batch(self, workers: int) -> int:
        """Return the samples of a full step of so many workers."""
        ...

    def lr_scale(self, batch: int, chosen_for: int) -> float:
        """Return the factor on the learning rate at a global batch, when it was chosen for another."""
        ...

    @property
    def lr_batch(self) -> int | None:
        """Return the global batch that the learning rate was chosen for; None: that of the first step."""
        ...

    def describe(self) -> str:
        """Return the policy in words, equal exactly where policies are."""
        ...


@dataclass(frozen=True, slots=True)
class FixedGlobal:
    """Train a fixed number of samples in each step, split over the workers as evenly as possible (EDL).

    Parts differ by one sample at most and are weighted by their samples, so that the gradient is that of
    the whole batch. The number of steps, the learning rate and its schedule do not depend on the workers.

    Attributes:
        samples: B, the samples of a step.

    Raises:
        ConfigError: B < 1.
    """

    samples: int

    def __post_init__(self) -> None:
        _check_count("FixedGlobal", "samples", self.samples, "the number of samples of a step")

    @property
    def largest_batch(self) -> int:
        """Return B."""
        return self.samples

    @property
    def is_constant(self) -> bool:
        """Agree."""
        return True

    @property
    def lr_batch(self) -> int | None:
        """Return B: the learning rate is never scaled."""
        return self.samples

    def global_batch(self, workers: int) -> int:
        """Return B."""
        return self.samples

    def lr_scale(self, batch: int, chosen_for: int) -> float:
        """Return 1: the batch does not change."""
        return 1.0

    def describe(self) -> str:
        """Return the policy as it is written in a script."""
        return f"FixedGlobal({self.samples})"


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedLocal:
    """Train a fixed number of samples per worker until a step has its most, then split that (Or et al.).

    Attributes:
        local: b, samples per worker as long as the workers together stay within `max_global`.
        max_global: M, the most samples of a step: beyond a size that depends on the task, larger batches
            train worse.
        lr_rule: how the learning rate follows the global batch: "none", "linear", "sqrt" or a function of
            (global batch, batch it was chosen for) that returns a factor.
        lr_batch: the global batch that the script's learning rate was chosen for; None: that of the
            job's first step.

    Raises:
        ConfigError: a number below 1, max_global < local, an unknown rule.
    """

    local: int
    max_global: int
    lr_rule: LrRule = "none"
    lr_batch: int | None = None

    def __post_init__(self) -> None:
        _check_count("CappedLocal", "local", self.local, "the number of samples per worker and step")
        _check_count("CappedLocal", "max_global", self.max_global, "the most samples of a step")
        if self.max_global < self.local:
            raise ConfigError(
                f"CappedLocal: max_global is {self.max_global} and local is {self.local}; the most "
                "samples of a step cannot be fewer than one worker trains: give max_global of at least "
                f"{self.local}"
            )
        if self.lr_batch is not None:
            _check_count("CappedLocal", "lr_batch", self.lr_batch, "a global batch, in samples")
        if not callable(self.lr_rule) and self.lr_rule not in ("none", "linear", "sqrt"):
            raise ConfigError(
                f"CappedLocal: lr_rule={self.lr_rule!r} is unknown; use 'none', 'linear', 'sqrt' or "
                "a function of (global batch, batch the learning rate was chosen for)"
            )
        if callable(self.lr_rule) and not _takes_two(self.lr_rule):
            raise ConfigError(
                f"CappedLocal: the lr_rule {_name_of(self.lr_rule)} cannot be called with two numbers; it is "
                "given the global batch and the one chosen for the learning rate, and returns a factor"
            )

    @property
    def largest_batch(self) -> int:
        """Return M."""
        return self.max_global

    @property
    def is_constant(self) -> bool:
        """Tell whether one worker trains all that a step may have."""
        return self.local == self.max_global

    def global_batch(self, workers: int) -> int:
        """Return min(workers * b, M)."""
        return min(workers * self.local, self.max_global)

    def lr_scale(self, batch: int, chosen_for: int) -> float:
        """Return what the rule says.

        Raises:
            ConfigError: the user's function did not return a finite number above 0.
        """
        if batch == chosen_for and not callable(self.lr_rule):
            return 1.0  # exactly, so that nothing is multiplied
        match self.lr_rule:
            case "none":
                return 1.0
            case "linear":
                return batch / chosen_for
            case "sqrt":
                return math.sqrt(batch / chosen_for)
            case rule:
                return _checked_scale(rule(batch, chosen_for), batch, chosen_for)

    def describe(self) -> str:
        """Return the policy as it is written in a script; a function by its name."""
        text = repr(self.lr_rule) if isinstance(self.lr_rule, str) else _name_of(self.lr_rule)
        scale = "" if text == "'none'" else f", lr_rule={text}"
        chosen_for = "" if self.lr_batch is None else f", lr_batch={self.lr_batch}"
        return f"CappedLocal(local={self.local}, max_global={self.max_global}{scale}{chosen_for})"


def check_policy(given: object) -> None:
    """Raise ConfigError unless this is a batch policy."""
    if isinstance(given, type) or not hasattr(given, "global_batch"):
        what = given.__name__ if isinstance(given, type) else repr(given)
        raise ConfigError(
            f"batch={what} is no batch policy; give elastane.FixedGlobal(samples) or "
            "elastane.CappedLocal(local=..., max_global=...)"
        )


def check_policy_workers(policy: BatchPolicy, workers: int) -> None:
    """Raise ConfigError unless so many workers can share a step: each needs a sample."""
    most = policy.largest_batch
    if not 1 <= workers <= most:
        raise ConfigError(
            f"{workers} workers cannot share the {most} samples of a step of {policy.describe()}: each needs "
            f"at least one; ask for 1 to {most} workers, or choose a larger batch"
        )


def cut_epochs(
    policy: BatchPolicy, samples: int, workers: int, *, tail: Tail = Tail.EXACT, since: Place = BEGINNING
) -> DataOrder:
    """Return how a generation with so many workers cuts the data into steps.

    Args:
        policy: of the job.
        samples: length of the data set.
        workers: of the generation; as many virtual workers there are.
        tail: what happens to the samples that do not fill an epoch's last step.
        since: where in the data the generation begins.

    Raises:
        ConfigError: workers < 1 or more than a step has samples; a data set that is shorter than the largest
            step; tail "pad".
    """
    check_policy_workers(policy, workers)
    if tail is Tail.PAD:
        raise ConfigError(
            "tail='pad' repeats samples until all virtual workers have equally many, while under "
            f"{policy.describe()} the number of workers may change in the middle of an epoch; use 'exact', "
            "which weights short batches, or 'drop'"
        )
    check_policy_samples(policy, samples)
    batch = policy.global_batch(workers)
    return DataOrder(
        samples=samples,
        virtual_workers=workers,
        batch_size=-(-batch // workers),
        tail=tail,
        global_batch=batch,
        since=since,
    )


def check_policy_samples(policy: BatchPolicy, samples: int) -> None:
    """Raise ConfigError if a data set of so many samples has no full step."""
    if samples < policy.largest_batch:
        raise ConfigError(
            f"the data set has {samples} samples, fewer than the {policy.largest_batch} that a step of "
            f"{policy.describe()} may have; choose a smaller batch or more data"
        )


def _check_count(policy: str, name: str, value: int, meaning: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{policy}: {name} is {value!r}; it is {meaning}, a whole number of at least 1")


def _takes_two(rule: Callable[..., object]) -> bool:
    try:
        inspect.signature(rule).bind(1, 1)
    except TypeError:
        return False
    except ValueError:  # some built-in functions do not say what they take
        return True
    return True


def _name_of(rule: object) -> str:
    return str(getattr(rule, "__qualname__", type(rule).__name__))


def _checked_scale(scale: float, batch: int, chosen_for: int) -> float:
    if not (isinstance(scale, int | float) and math.isfinite(scale) and scale > 0):
        raise ConfigError(
            f"the learning-rate rule returned {scale!r} for a global batch of {batch} samples, chosen for "
            f"{chosen_for}; it must return a finite number above 0"
        )
    return float(scale)
