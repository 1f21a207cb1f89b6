"""What people, schedulers and workers may ask of a job: scale, evict, migrate, leave, stop.

Each request is one compare-and-swap on the job's `Spec`: read everything, check, write if nobody wrote in
between, else begin again. Nothing happens here beyond that: the leader and the agents see the new
wishes and close the difference. Knows no processes and no clock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from elastane.core.staffing import find_serving
from elastane.core.staffing.departure import plan_departure
from elastane.core.view import JobView, build_view, encode
from elastane.model.errors import ConfigError, JobNotFoundError, JobStateError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import AgentRecord, JobKeys, JobPhase, Leave, Spec
from elastane.store.base import ModRevisionIs, Put, Snapshot, Store

MAX_WORKERS = 10_000
"""Most workers one may ask for while N is unknown: the largest job the control plane is measured with."""

_ATTEMPTS = 64
"""Lost races after which a request gives up: each loss means that somebody else's change went through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Show what a request changed: the spec before and after it, and the revision that wrote it."""

    before: Spec
    after: Spec
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPicture:
    """Show a job at one moment, with what it takes to change it only if nobody else has."""

    view: JobView
    spec_revision: int
    claimed: int = 0
    """Worker ids given out so far."""
    claims_revision: int = 0
    """When the last ones were given out; 0 = never."""

    @property
    def agents(self) -> Mapping[NodeId, AgentRecord]:
        """Return the agents that serve the job, by node."""
        return self.view.agents


def read_picture(store: Store, job: JobId) -> JobPicture:
    """Read a job and its agents as one consistent picture.

    Raises:
        JobNotFoundError: the store holds no such job.
    """
    prefix = JobKeys(job).prefix
    snapshot = store.range(prefix)
    picture = build_picture(job, snapshot)
    if picture is None:
        raise JobNotFoundError(f"no job {job!r} in this store; `elastane ps` lists the jobs")
    return picture


def build_picture(job: JobId, snapshot: Snapshot) -> JobPicture | None:
    """Decode the snapshot of a job's prefix; None if the job was never created."""
    view = build_view(job, snapshot.revision, ((entry.key, entry.value) for entry in snapshot.entries))
    if view is None:
        return None
    keys = JobKeys(job)
    entries = {entry.key: entry for entry in snapshot.entries if entry.key in (keys.spec, keys.claims)}
    claims = entries.get(keys.claims)
    return JobPicture(
        view=view,
        spec_revision=entries[keys.spec].mod_revision,
        claimed=int(claims.value) if claims is not None else 0,
        claims_revision=claims.mod_revision if claims is not None else 0,
    )


def request_scale(store: Store, job: JobId, amount: int, *, relative: bool = False) -> Change:
    """Ask for `amount` workers, or for `amount` more (fewer if negative) with `relative`.

    Raises:
        ConfigError: the number lies outside 1..N.
        JobStateError, JobNotFoundError: the job has ended or does not exist.
    """

    def edit(picture: JobPicture) -> Spec:
        spec = picture.view.spec
        wanted = spec.wanted + amount if relative else amount
        check_wanted(wanted, picture.view.virtual_workers, picture.view.batch)
        return msgspec.structs.replace(spec, wanted=wanted, minimum=min(spec.minimum, wanted))

    return _request(store, job, "scaled", edit)


def request_balance(store: Store, job: JobId, speeds: Mapping[WorkerId, float]) -> Change:
    """Ask that virtual workers are placed by these speeds (virtual workers per second).

    Raises:
        JobStateError, JobNotFoundError: the job has ended or does not exist.
    """

    def edit(picture: JobPicture) -> Spec:
        known = {worker: speed for worker, speed in speeds.items() if picture.view.alive(worker)}
        return msgspec.structs.replace(picture.view.spec, speeds=known)

    return _request(store, job, "changed", edit)


def request_evict(store: Store, job: JobId, worker: WorkerId) -> Change:
    """Ask that a worker goes at the next boundary without a successor, because it is slow (EDL, section 4.3).

    The job then wants one worker fewer. To have another take its place use `request_migrate`.

    Raises:
        ConfigError: no such worker (the message lists those there are), or it is the only one.
        JobStateError, JobNotFoundError: the job has ended or does not exist.
    """

    def edit(picture: JobPicture) -> Spec:
        check_worker(picture.view, worker)
        spec = picture.view.spec
        if spec.wanted == 1 and spec.leaving.get(worker) is None:
            raise ConfigError(
                f"{worker} is the only worker of the job; move it with `elastane migrate`, or end the job "
                "with `elastane stop`"
            )
        return _with_one_fewer(picture.view, worker)

    return _request(store, job, "changed", edit)


def request_migrate(store: Store, job: JobId, worker: WorkerId, to: str | None = None) -> Change:
    """Ask that a worker moves: its successor starts elsewhere and takes over in one switch.

    Args:
        store: a handle of the calling thread.
        job: the job's id.
        worker: who is to move.
        to: "DEVICE", "NODE:DEVICE" or "NODE/DEVICE"; None for any other device.

    Raises:
        ConfigError: no such worker, no such device, or the device is in use.
        JobStateError, JobNotFoundError: the job has ended or does not exist.
    """

    def edit(picture: JobPicture) -> Spec:
        check_worker(picture.view, worker)
        targets = (resolve_target(picture, to),) if to is not None else ()
        spec = _with_leaver(picture.view, worker, Leave.SWAP)
        others = tuple(device for device in spec.targets if device not in targets)
        return msgspec.structs.replace(spec, targets=targets + others)

    return _request(store, job, "changed", edit)


def request_leave(store: Store, job: JobId, worker: WorkerId) -> Change:
    """Ask that a worker goes at the next boundary, without a successor: its device is being taken away.

    The job then wants one worker fewer; if it was the only one the job stops and saves its state.
    Asking twice is the same as asking once.

    Raises:
        ConfigError: the job has no such worker.
        JobStateError, JobNotFoundError: the job has ended or does not exist.
    """

    def edit(picture: JobPicture) -> Spec:
        check_worker(picture.view, worker)
        spec = picture.view.spec
        before = spec.leaving.get(worker)
        if before is Leave.NOW:
            return spec
        if before is None and spec.wanted == 1:
            return msgspec.structs.replace(spec, stop=True)
        return _with_one_fewer(picture.view, worker)

    return _request(store, job, "changed", edit)


def request_vacate(store: Store, job: JobId, node: NodeId, *, patient: bool = True) -> Change:
    """Ask that a node's workers leave: replaced on other nodes where there is room, else without successors.

    The job goes on wanting as many workers as before. Without `patient` all go at the next boundary. If
    nobody is left elsewhere the job stops and saves its state.

    Raises:
        JobStateError, JobNotFoundError: the job has ended or does not exist.
    """

    def edit(picture: JobPicture) -> Spec:
        view = picture.view
        spec = view.spec
        going = plan_departure(view, node, patient=patient)
        if not going and node in spec.vacating:
            return spec
        kept = {worker: how for worker, how in spec.leaving.items() if view.alive(worker)}
        vacating = spec.vacating if node in spec.vacating else (*spec.vacating, node)
        return msgspec.structs.replace(spec, vacating=vacating, leaving={**kept, **going})

    return _request(store, job, "changed", edit)


def request_return(store: Store, job: JobId, node: NodeId) -> Change:
    """Say that a node serves the job (again): workers may be started there.

    Raises:
        JobStateError, JobNotFoundError: the job has ended or does not exist.
    """

    def edit(picture: JobPicture) -> Spec:
        spec = picture.view.spec
        return msgspec.structs.replace(spec, vacating=tuple(n for n in spec.vacating if n != node))

    return _request(store, job, "changed", edit)


def request_stop(store: Store, job: JobId) -> Change:
    """Ask that all workers leave together at the next boundary and save the state.

    Asking twice is the same as asking once. A job that nobody runs any more has stopped with that.

    Raises:
        JobStateError, JobNotFoundError: the job has ended or does not exist.
    """
    change = _request(
        store, job, "stopped", lambda picture: msgspec.structs.replace(picture.view.spec, stop=True)
    )
    _end_if_abandoned(store, job)
    return change


def request_abort(store: Store, job: JobId) -> Change:
    """Ask that all workers are ended at once, on all nodes; what was not saved is lost.

    Raises:
        JobStateError, JobNotFoundError: the job has ended or does not exist.
    """
    change = _request(
        store,
        job,
        "stopped",
        lambda picture: msgspec.structs.replace(picture.view.spec, stop=True, abort=True),
    )
    _end_if_abandoned(store, job)
    return change


def check_wanted(wanted: int, virtual_workers: int, batch: str = "") -> None:
    """Raise ConfigError unless a job can run `wanted` workers.

    Args:
        wanted: how many are asked for.
        virtual_workers: N, or under a batch policy the largest that it can be; 0 if it is not known.
        batch: the batch policy in words; "" if there is none.
    """
    most = virtual_workers or MAX_WORKERS
    if 1 <= wanted <= most:
        return
    if batch:
        why = f"{batch}: at least one sample each"
    else:
        why = "one per virtual worker" if virtual_workers else "N is not known yet"
    advice = "; to end the job use `elastane stop`" if wanted < 1 else ""
    raise ConfigError(f"{wanted} workers asked for; a number in 1..{most} is possible ({why}){advice}")


def check_worker(view: JobView, worker: WorkerId) -> None:
    """Raise ConfigError unless `worker` is alive in the job; the message lists those that are."""
    if view.alive(worker):
        return
    present = ", ".join(sorted(w for w in view.members if view.alive(w))) or "none"
    raise ConfigError(f"the job has no worker {worker!r}; present: {present}")


def find_free_devices(picture: JobPicture) -> tuple[DeviceId, ...]:
    """Return the devices, as "NODE/DEVICE", of the job's agents on which no worker of the job is."""
    used = _devices_in_use(picture.view)
    known = [
        DeviceId(f"{node}/{d}")
        for node, agent in sorted(find_serving(picture.view).items())
        for d in agent.devices
    ]
    return tuple(device for device in known if device not in used)


def resolve_target(picture: JobPicture, text: str) -> DeviceId:
    """Return "NODE/DEVICE" for a device named by a person; raise ConfigError unless it exists and is free."""
    known = {
        DeviceId(f"{node}/{device}"): (node, device)
        for node, agent in sorted(find_serving(picture.view).items())
        for device in agent.devices
    }
    matches = [
        target for target, (node, device) in known.items() if text in (target, f"{node}:{device}", device)
    ]
    if not matches:
        listed = ", ".join(known) or "none (no agent runs)"
        raise ConfigError(f"the job has no device {text!r}; present: {listed}")
    used = _devices_in_use(picture.view)
    free = [target for target in matches if target not in used]
    if not free:
        raise ConfigError(
            f"device {text!r} is in use by worker {used[matches[0]]}; "
            f"free: {', '.join(target for target in known if target not in used) or 'none'}"
        )
    return free[0]


def _end_if_abandoned(store: Store, job: JobId) -> None:
    """Write that a stopped job has ended if it has neither agent nor worker that could: they were killed."""
    picture = read_picture(store, job)
    if picture.agents or picture.view.members:
        return
    key = JobKeys(job).status
    entry = store.get(key)
    message = "stopped while nobody ran it; what was not saved is lost"
    status = msgspec.structs.replace(picture.view.status, phase=JobPhase.STOPPED, message=message)
    revision = 0 if entry is None else entry.mod_revision
    if not picture.view.status.phase.ended and (entry is None or revision <= picture.view.revision):
        store.transact(
            compares=[ModRevisionIs(key=key, revision=revision)], puts=[Put(key=key, value=encode(status))]
        )


def _devices_in_use(view: JobView) -> dict[DeviceId, WorkerId]:
    return {
        DeviceId(f"{member.node}/{member.device}"): worker
        for worker, member in view.members.items()
        if worker not in view.exits
    }


def _with_leaver(view: JobView, worker: WorkerId, how: Leave) -> Spec:
    """Return the spec with `worker` leaving, and without those that are long gone."""
    leaving = {other: was for other, was in view.spec.leaving.items() if view.alive(other)}
    return msgspec.structs.replace(view.spec, leaving={**leaving, worker: how})


def _with_one_fewer(view: JobView, worker: WorkerId) -> Spec:
    """Return the spec with `worker` leaving now, and not replaced; one about to be swapped still is."""
    spec = view.spec
    already = spec.leaving.get(worker)
    if already is Leave.NOW:
        return spec
    wanted = spec.wanted if already is Leave.SWAP else spec.wanted - 1
    leaving = _with_leaver(view, worker, Leave.NOW)
    return msgspec.structs.replace(leaving, wanted=wanted, minimum=min(spec.minimum, wanted))


def _request(store: Store, job: JobId, verb: str, edit: Callable[[JobPicture], Spec]) -> Change:
    """Compare and swap the spec until the edit of its newest value went through."""
    keys = JobKeys(job)
    for _ in range(_ATTEMPTS):
        picture = read_picture(store, job)
        status = picture.view.status
        if status.phase.ended:
            detail = f" ({status.message})" if status.message else ""
            raise JobStateError(
                f"job {job} has ended: {status.phase.value}{detail}; it can no longer be {verb}"
            )
        before = picture.view.spec
        after = edit(picture)
        if after == before:
            return Change(before=before, after=after, revision=picture.view.revision)
        result = store.transact(
            compares=[ModRevisionIs(key=keys.spec, revision=picture.spec_revision)],
            puts=[Put(key=keys.spec, value=encode(after))],
        )
        if result.succeeded:
            return Change(before=before, after=after, revision=result.revision)
    raise JobStateError(f"job {job} is being changed by others all the time; try again")
