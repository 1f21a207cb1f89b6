"""The flags of `elastane sim` as they were typed, before anything is checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SimFlags:
    """Hold one call of `elastane sim`; None and empty mean that the flag was not given."""

    trace: Path | None
    policies: tuple[str, ...]
    cluster: str | None
    out: Path | None
    format_name: str | None
    sweep: tuple[str, ...]
    seed: int
    overhead: str | None
    jobs: int | None
    as_json: bool
    profiles: str | None
    elastic_share: float
    max_growth: float | None
    load: float
    days: str | None
    tenant: str | None
    most_jobs: int
    by_node: bool
    round_s: float
    list_all: bool
