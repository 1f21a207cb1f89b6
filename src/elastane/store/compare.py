"""Whether a compare of a transaction holds. Pure; for all back ends that have to find out themselves."""

from elastane.store.base import (
    Absent,
    Compare,
    CreateRevisionIs,
    Entry,
    Exists,
    LeaseIs,
    ModRevisionIs,
    ValueIs,
)


def is_met(compare: Compare, entry: Entry | None) -> bool:
    """Return whether `compare` holds for the entry of its key, None if the key is absent."""
    match compare:
        case ModRevisionIs(revision=revision):
            return (entry.mod_revision if entry else 0) == revision
        case CreateRevisionIs(revision=revision):
            return (entry.create_revision if entry else 0) == revision
        case ValueIs(value=value):
            return entry is not None and entry.value == value
        case LeaseIs(lease=lease):
            return entry is not None and entry.lease == lease
        case Exists():
            return entry is not None
        case Absent():
            return entry is None
