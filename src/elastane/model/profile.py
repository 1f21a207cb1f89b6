"""The nouns of a measured profile: how fast one job is with each number of workers, and what it needs.

What `elastane profile` writes, and schedulers and the simulator read. The fields are documented in
`docs/profile.md`; a change that old readers cannot bear raises `PROFILE_FORMAT`.
"""

from typing import Literal

import msgspec

PROFILE_FORMAT = 1
PROFILE_KIND: Literal["elastane profile"] = "elastane profile"


class AllocationPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what was measured with one number of workers."""

    workers: int
    samples_per_s: float
    """th(p): median over the steps."""
    efficiency: float
    """ef(p) = (th(p) / p) / max_q (th(q) / q), over all points of the profile (EDL, section 2.2)."""
    steps: int
    """Steps that counted."""
    samples_per_step: float
    """Median."""
    step_time_s: float
    """Median."""
    step_time_low_s: float
    """A quarter of the steps took less."""
    step_time_high_s: float
    """A quarter of the steps took more."""
    rss_bytes: int
    """Most memory that any of the workers held at once."""
    device_bytes: int | None = None
    """Most that torch had allocated on any of their devices at once; None on processors."""


class MeasuredProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Hold how fast a job is with different numbers of workers, and which job that was."""

    kind: Literal["elastane profile"] = PROFILE_KIND
    format: int = PROFILE_FORMAT
    elastane: str
    """Version that measured."""
    name: str
    """By which traces and reports name it."""
    script: str
    arguments: tuple[str, ...] = ()
    made_at: str
    """UTC."""
    model: str
    """Fingerprint of parameters, buffers, optimizers and registered objects."""
    virtual_workers: int
    """N; under a batch policy the most workers there can be."""
    batch: str = ""
    """The batch policy in words; "" if N is fixed."""
    threads: int = 1
    """Per operation and worker."""
    device_type: str
    """What the workers ran on: "cpu", or the name of the accelerator."""
    machine: str
    """Processor and cores, for people."""
    skipped_steps: int
    """First steps with each number of workers that did not count."""
    points: tuple[AllocationPoint, ...]
    """The fewest workers first."""
