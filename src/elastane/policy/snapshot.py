"""Build a policy's view from plain records: how a live caller asks the same policies as the simulator.

One record for each job in the system; a plan's `Change.job` is the record's place in the sequence. The
simulator keeps its columns up to date instead of building them anew. Knows no clock and no store.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elastane.model.cluster import Cluster, JobSpec, Profile
from elastane.perf.curve import compute_capabilities, compute_speedups
from elastane.policy.view import NEVER, RUNNING, WAITING, JobColumns, View


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """Hold what is known of one live job. Times are absolute seconds on the caller's clock.

    `held[i]` devices of pool i. `started_s`: first start, or None; `changed_s`: last change of
    allocation (None: submission). `service`, `ran_s`: device-seconds attained and time with devices, up to
    now. `left_s`: remaining run time at the requested size, for clairvoyant policies.
    """

    spec: JobSpec
    held: tuple[int, ...] = ()
    started_s: float | None = None
    changed_s: float | None = None
    service: float = 0.0
    ran_s: float = 0.0
    left_s: float | None = None
    note: float = 0.0


def build_view(
    cluster: Cluster,
    records: Sequence[JobRecord],
    profiles: Mapping[str, Profile],
    now: float,
    *,
    clairvoyant: bool = False,
) -> View:
    """Return the view of `records`, which must stand in order of submission, at `now`."""
    pools = cluster.pools
    names = sorted({record.spec.profile for record in records})
    known = [profiles[name] for name in names]
    largest = max((max(r.spec.largest, r.spec.requested) for r in records), default=1)
    jobs = JobColumns(max(len(records), 1), len(pools))
    jobs.rows = len(records)
    order = sorted((r.started_s, place) for place, r in enumerate(records) if r.started_s is not None)
    started = {place: position for position, (_, place) in enumerate(order)}
    for row, record in enumerate(records):
        _fill_row(jobs, row, record, now)
        jobs.profile[row] = names.index(record.spec.profile)
        jobs.start_order[row] = started.get(row, NEVER)
    devices = np.array([pool.devices for pool in pools], dtype=np.int64)
    types = tuple(pool.device_type for pool in pools)
    view = View(
        now=now,
        jobs=jobs,
        pool_free=devices - jobs.pools.sum(axis=0),
        pool_devices=devices,
        pool_types=types,
        speedups=compute_speedups(known, largest) if known else np.zeros((0, largest + 1)),
        capabilities=compute_capabilities(known, types),
        clairvoyant=clairvoyant,
    )
    view.refresh(now, int(view.pool_free.sum()))
    return view


def _fill_row(jobs: JobColumns, row: int, record: JobRecord, now: float) -> None:
    spec = record.spec
    held = sum(record.held)
    jobs.number[row] = row
    jobs.state[row] = RUNNING if held else WAITING
    jobs.requested[row] = spec.requested
    jobs.smallest[row] = spec.smallest
    jobs.largest[row] = spec.largest
    jobs.held[row] = jobs.training[row] = held
    jobs.pools[row] = record.held or 0
    jobs.priority[row] = spec.priority
    jobs.virtual_workers[row] = spec.virtual_workers
    jobs.submit_s[row] = spec.submit_s
    jobs.started_s[row] = math.inf if record.started_s is None else record.started_s
    jobs.changed_s[row] = spec.submit_s if record.changed_s is None else record.changed_s
    jobs.deadline_s[row] = math.inf if spec.deadline_s is None else spec.deadline_s
    jobs.settled_s[row] = jobs.join_until_s[row] = jobs.stop_until_s[row] = now
    jobs.service[row] = record.service
    jobs.ran_s[row] = record.ran_s
    jobs.left_s[row] = spec.work_s if record.left_s is None else record.left_s
    jobs.note[row] = record.note
