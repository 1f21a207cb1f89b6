"""What an agent reads from and writes to the store: claims of worker ids, exit notices, the job's end.

Each method is one small exchange that may be repeated after an error without harm. Decides nothing.
"""

from collections.abc import Collection, Sequence

import msgspec

from elastane.core.view import JobView, encode
from elastane.jobs.ending import write_end
from elastane.jobs.requests import JobPicture, read_picture
from elastane.model.errors import StoreBusyError
from elastane.model.ids import JobId, NodeId, WorkerId
from elastane.model.records import ExitRecord, JobInfo, JobKeys, JobStatus, Roster, Spec
from elastane.store.base import DeleteKey, ModRevisionIs, Put, Store

_ATTEMPTS = 64
"""Lost races before an exchange gives up; each means that somebody else's went through."""
_KEPT_EXITS = 16
"""Exit records kept of workers that no generation names any more: so a job's records stay few."""


class Bulletin:
    """Read and write the records of one job for one node."""

    def __init__(self, store: Store, job: JobId, node: NodeId) -> None:
        self._store = store
        self._job = job
        self._node = node
        self._keys = JobKeys(job)

    def read(self) -> JobPicture:
        """Read the whole job. Raises JobNotFoundError if it is gone."""
        return read_picture(self._store, self._job)

    def read_info(self) -> JobInfo | None:
        """Read what was fixed when the job was created; None if there is no such job."""
        entry = self._store.get(self._keys.info)
        return None if entry is None else msgspec.json.decode(entry.value, type=JobInfo)

    def claim(self, picture: JobPicture, count: int, roster: Roster) -> bool:
        """Take the next `count` worker ids after those of `picture`, and say in `roster` what they are for.

        False if other agents have taken some meanwhile: then there may be no vacancy any more, so look again.
        """
        key = self._keys.claims
        result = self._store.transact(
            compares=[ModRevisionIs(key=key, revision=picture.claims_revision)],
            puts=[
                Put(key=key, value=str(picture.claimed + count).encode()),
                Put(key=self._keys.roster(self._node), value=encode(roster)),
            ],
        )
        return result.succeeded

    def post_roster(self, roster: Roster) -> None:
        """Tell what runs on this node."""
        self._store.transact(puts=[Put(key=self._keys.roster(self._node), value=encode(roster))])

    def withdraw_roster(self) -> None:
        """Take back what was told of this node: nothing runs here any more."""
        self._store.transact(deletes=[DeleteKey(key=self._keys.roster(self._node))])

    def post_exit(self, view: JobView, worker: WorkerId, code: int | None) -> None:
        """Tell that a worker's process has ended, and give up its lease, and with it all it held.

        The notice comes first, by itself: who waits for the worker hears of it in one transaction.
        """
        record = ExitRecord(worker=worker, code=code)
        stale = [DeleteKey(key=self._keys.exit(other)) for other in _find_stale_exits(view)]
        self._store.transact(
            puts=[Put(key=self._keys.exit(worker), value=encode(record))],
            deletes=[DeleteKey(key=self._keys.dismissal(worker)), *stale],
        )
        entry = self._store.get(self._keys.member(worker))
        if entry is not None and entry.lease is not None:
            self._store.revoke(entry.lease)

    def drop_targets(self, names: Collection[str]) -> None:
        """Take wishes for devices out of the spec: they are fulfilled."""
        for _ in range(_ATTEMPTS):
            entry = self._store.get(self._keys.spec)
            if entry is None:
                return
            spec = msgspec.json.decode(entry.value, type=Spec)
            targets = tuple(target for target in spec.targets if target not in names)
            if targets == spec.targets:
                return
            result = self._store.transact(
                compares=[ModRevisionIs(key=self._keys.spec, revision=entry.mod_revision)],
                puts=[Put(key=self._keys.spec, value=encode(msgspec.structs.replace(spec, targets=targets)))],
            )
            if result.succeeded:
                return
        raise StoreBusyError(
            f"the spec of job {self._job} could not be written: others change it all the time"
        )

    def post_status(self, status: JobStatus, seen: JobStatus | None = None) -> bool:
        """Write how the job ended unless somebody else has; tell whether this was written."""
        return write_end(self._store, self._job, status, seen=seen)


def _find_stale_exits(view: JobView) -> Sequence[WorkerId]:
    """Return the oldest exit records that nothing refers to any more, beyond those worth keeping."""
    named = {w for topology in (view.current, view.proposal) if topology for w in topology.peers}
    loose = [w for w in view.exits if w not in named and w not in view.members]
    loose.sort(key=lambda w: (len(w), w))  # "w9" before "w10"
    return loose[: max(0, len(loose) - _KEPT_EXITS)]
