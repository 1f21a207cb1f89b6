"""Write how a job ended: once, by whoever sees the end first, whatever others write at the same moment.

Workers and agents come here with their verdict; this module only sees to it that the first one stands.
Knows no processes and no clock.
"""

import msgspec

from elastane.core.view import encode
from elastane.model.errors import StoreBusyError
from elastane.model.ids import JobId
from elastane.model.records import JobKeys, JobStatus
from elastane.store.base import ModRevisionIs, Put, Store

_ATTEMPTS = 64
"""Lost races before it is given up; each means that somebody else's write of the status went through."""


def write_end(store: Store, job: JobId, status: JobStatus, *, seen: JobStatus | None = None) -> bool:
    """Write `status` unless the job has ended already; tell whether it was written.

    Generations of earlier runs stay counted, so that none of their numbers is used again. May be called again
    after an error: an end that stands already and says the same is taken for the one that was written then.

    Args:
        store: a handle of the calling thread.
        job: the job's id.
        status: how it ended.
        seen: the status on which the verdict rests. If the job is in another phase by now, say because it
            has begun to train, nothing is written.

    Raises:
        StoreBusyError: others wrote the status all the time; try again.
    """
    key = JobKeys(job).status
    for _ in range(_ATTEMPTS):
        entry = store.get(key)
        if entry is None:
            return False  # the job is gone
        before = msgspec.json.decode(entry.value, type=JobStatus)
        generations = max(status.earlier_generations, before.earlier_generations)
        after = msgspec.structs.replace(status, earlier_generations=generations)
        if before.phase.ended:
            return before == after
        if seen is not None and before.phase is not seen.phase:
            return False
        result = store.transact(
            compares=[ModRevisionIs(key=key, revision=entry.mod_revision)],
            puts=[Put(key=key, value=encode(after))],
        )
        if result.succeeded:
            return True
    raise StoreBusyError(f"the end of job {job} could not be written: others change its status all the time")
