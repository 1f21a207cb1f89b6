"""What members exchange in the gap between two steps, and how who was cut off catches up with the others.

Theory of operation. A member may have all shares of an evaluation when another one is lost, and go on, while
a third lacks that share. A recovery compares how far each has come, in steps and in gatherings since the last
step (`core.gate`). Who is behind is sent the state, and with it all that was gathered: it gets the same
answers, without an exchange, until its script stands where the script of the others does. A worker that comes
new into the gap catches up likewise. Knows neither batches nor results.
"""

import msgspec

from elastane.model.errors import LinkBrokenError
from elastane.worker.gathering import gather_bytes
from elastane.worker.session import Seating, Session


class _Told(msgspec.Struct, frozen=True, array_like=True):
    """Say what a worker has gathered since the last step, and whether it stands in a gathering now."""

    gatherings: list[list[bytes]]
    inside: bool


class Gap:
    """Be the gap between two steps, for one worker."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._gatherings: list[list[bytes]] = []
        self._passed = 0
        self._inside = False

    # --- exchanges ------------------------------------------------------------------------------------

    def gather(self, seating: Seating, payload: bytes) -> list[bytes] | None:
        """Collect bytes from all members, once and for all.

        Returns:
            All payloads in topology order. None if a member was lost before all had them: this worker has
            entered the generation without it.
        """
        if seating.courier is None:
            return [payload]
        self._inside = True
        begun = self._session.begin_gather()
        shares = self.collect(seating, payload, "the others' share of an evaluation") if begun else None
        if shares is not None:
            self._session.end_gather()
            self._gatherings.append(shares)
            self._passed = len(self._gatherings)
        else:
            self._session.pass_boundary()
            shares = self.recall()  # the others may have gone on with it
        self._inside = False
        return shares

    def exchange(self, seating: Seating, payload: bytes, what: str) -> list[bytes] | None:
        """Collect bytes for the step that is due: all do so again if a member is lost before it is committed.

        Returns:
            As `gather`; `what` they are is told to those who wait.
        """
        if seating.courier is None:
            return [payload]
        shares = self.collect(seating, payload, what)
        if shares is None:
            self._session.pass_boundary()
        return shares

    def collect(self, seating: Seating, payload: bytes, what: str) -> list[bytes] | None:
        """Collect bytes from all members; None if one was lost: the boundary is then to be passed."""
        assert seating.courier is not None, "a lone member has nobody to ask"
        members = len(seating.ranges)
        self._session.note_exchange(what, len(payload) * members)
        try:
            shares = gather_bytes(seating.courier, members, payload)
        except LinkBrokenError as error:
            self._session.abort_commit(str(error))
            return None
        self._session.note_run("the script between two steps")
        return shares

    # --- catching up ----------------------------------------------------------------------------------

    def recall(self) -> list[bytes] | None:
        """Return the shares of the script's next gathering if the others have been through it already."""
        if self._passed == len(self._gatherings):
            return None
        self._passed += 1
        return self._gatherings[self._passed - 1]

    def end(self) -> None:
        """Begin anew: a step is committed, so all have been through all."""
        self._gatherings = []
        self._passed = 0

    def pack(self) -> bytes:
        """Return what a member must be told that is sent this one's state."""
        return msgspec.msgpack.encode(_Told(self._gatherings, self._inside))

    def catch_up(self, packed: bytes) -> bool:
        """Take what another worker has told; tell whether its script is on its way between two steps.

        Raises:
            LinkBrokenError: it makes no sense.
        """
        try:
            told = msgspec.msgpack.decode(packed, type=_Told)
        except msgspec.MsgspecError as error:
            raise LinkBrokenError(f"what was gathered before arrived damaged: {error}") from error
        self._gatherings = told.gatherings
        self._passed = min(self._passed, len(told.gatherings))
        return told.inside or bool(told.gatherings)
