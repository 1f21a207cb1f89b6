"""What simulated workers train: steps that are cheap, and that show in their result whatever went wrong.

The state is (step, digest), and the next digest is a hash over the step, the digest and the virtual workers
whose parts were added up, in the order in which they were. Under a batch policy (`policies`) the state also
has the job's way through its data.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from elastane.model.topology import VrankRange


class State(NamedTuple):
    """Be all that decides the future of the toy job."""

    step: int
    digest: bytes
    course: Any = None


class Part(NamedTuple):
    """Be one member's contribution to a step."""

    state: State
    vranks: VrankRange
    samples: tuple[Any, ...] = ()
    """What it was computed from; nothing where that follows from `vranks`."""


class Share(NamedTuple):
    """Be one member's contribution to a gathering between two steps."""

    step: int
    number: int


class Sent(NamedTuple):
    """Be what a worker is sent that is behind, or new: the state, and how far it is to the next step.

    Attributes:
        state: the state.
        gap_over: the newest step before which all evaluations are over.
        told: gatherings since the last step whose results are sent along.
    """

    state: State
    gap_over: int
    told: int


class StepRecord(NamedTuple):
    """Say what a step was that a worker has committed."""

    step: int
    generation: int
    vranks: tuple[int, ...]
    digest: bytes


MIXTURE = State(-1, b"partly received")


class Toy:
    """Train a fixed number of virtual workers: each step is known before anybody has trained it."""

    batch = ""
    """The batch policy in words."""

    def begin(self, digest: bytes) -> State:
        """Return the state with which a script begins."""
        return State(0, digest)

    def count_vranks(self, virtual_workers: int, workers: int) -> int:
        """Return how many virtual workers a generation has."""
        return virtual_workers

    def train(self, state: State, vranks: VrankRange, workers: int) -> Part:
        """Return a member's part of the next step."""
        return Part(state, vranks)

    def add_up(self, state: State, parts: Sequence[Part]) -> State:
        """Return the state after a step in which these parts were added up in this order."""
        return compute_next(state, tuple(v for part in parts for v in range(*part.vranks)))


def compute_next(state: State, vranks: tuple[int, ...]) -> State:
    """Return the state after a step of these virtual workers."""
    return State(state.step + 1, compute_digest(state, bytes(vranks)))


def compute_digest(state: State, trained: bytes) -> bytes:
    """Return the digest after a step."""
    text = b"%d " % state.step + state.digest + trained
    return blake2b(text, digest_size=8).digest()
