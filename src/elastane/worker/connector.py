"""Build the link of a proposed generation in a thread of its own, beside the running one.

A thread that hangs in a dead peer's silence is left behind; its outcome is thrown away when it comes.
"""

import threading
from collections.abc import Callable

from elastane.core.gate import ProposalId
from elastane.model.records import JobKeys
from elastane.model.topology import Topology
from elastane.store.open import open_store
from elastane.worker.context import WorkerContext
from elastane.worker.courier import Courier
from elastane.worker.network import connect_link

Outcome = Callable[[ProposalId, Courier | None, str], None]
"""Called with the proposal, its courier (None for a lone peer), and why it failed ("" if it did not)."""


class Connector:
    """Build links for one worker.

    Args:
        context: who this worker is and where the store is.
        outcome: called from the building thread, or at once if there can be none.
    """

    def __init__(self, context: WorkerContext, outcome: Outcome) -> None:
        self._context = context
        self._outcome = outcome
        self._cancelled = threading.Event()

    def connect(self, topology: Topology) -> None:
        """Begin to build the link of `topology`; an older attempt is cancelled."""
        self.cancel()
        self._cancelled = threading.Event()
        thread = threading.Thread(
            target=self._build, args=(topology, self._cancelled), name="elastane-connect", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no further thread: this attempt fails, not the worker
            self._outcome(ProposalId.of(topology), None, str(error))

    def cancel(self) -> None:
        """Give up the attempt under way, if any."""
        self._cancelled.set()

    def _build(self, topology: Topology, cancelled: threading.Event) -> None:
        proposal = ProposalId.of(topology)
        if len(topology.peers) == 1 or not topology.members:
            self._outcome(proposal, None, "")
            return
        try:
            courier = self._connect(topology, cancelled)
        except Exception as error:  # noqa: BLE001 - whatever it is, all others wait to hear that it failed
            if not cancelled.is_set():
                self._outcome(proposal, None, str(error) or repr(error))
            return
        self._outcome(proposal, courier, "")

    def _connect(self, topology: Topology, cancelled: threading.Event) -> Courier:
        context = self._context
        prefix = JobKeys(context.job).rendezvous(topology.generation, topology.attempt)
        place = (topology.peers.index(context.worker), len(topology.peers))
        with open_store(context.store_url, create=False) as store:
            return connect_link(store, prefix, place, context.device, context.address, cancelled)
