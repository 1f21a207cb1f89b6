"""The one tree of errors that elastane raises.

Messages say what happened, with which values, and what to do. Expected outcomes (a refused promise,
a worker that leaves) are values, not exceptions.
"""


class ElastaneError(Exception):
    """Be the base of everything elastane raises on purpose."""


class ConfigError(ElastaneError):
    """Report a setting, flag or argument that cannot be used."""


class LengthUnknownError(ConfigError, TypeError):
    """Report that a loader has no fixed number of steps: a TypeError, which progress bars expect."""


class ModelMismatchError(ElastaneError):
    """Report that two workers built models or optimizers that differ."""


class ProfileMismatchError(ConfigError):
    """Report a measured profile that belongs to another model, or to another way of running it."""


class UnsupportedModelError(ElastaneError):
    """Report a model or a training loop that exact elastic training cannot run."""


class DeterminismError(ElastaneError):
    """Report that workers whose committed state must be equal hold different bits."""


class LinkBrokenError(ElastaneError):
    """Report that a peer can no longer be reached; the step in flight is repeated, not lost."""


class JobNotFoundError(ElastaneError):
    """Report that no job, or more than one, answers to the name or id given."""


class JobStateError(ElastaneError):
    """Report a request that the job cannot take in its present phase."""


class ShardError(ElastaneError):
    """Report a shard of the data that cannot be opened or has another length than when training began."""


class FilesElsewhereError(ElastaneError):
    """Report that files of a job are asked for on a machine that has none of them."""


class StateFileError(ElastaneError):
    """Report a saved training state that is missing, damaged or of another job."""


class StateRefusedError(StateFileError):
    """Report a saved training state that is whole but not usable: of another job or N, or a newer format."""


class StoreError(ElastaneError):
    """Report that the coordination store cannot be opened, read or written."""


class LeaseLostError(StoreError):
    """Report that a lease has expired or was revoked; its owner must stop acting."""


class CompactedError(StoreError):
    """Report that a watch asked for history that is gone; read the whole range again."""


class StoreAddressError(StoreError):
    """Report a store URL that names no store: unknown scheme, unusable path, network file system."""


class StoreAccessError(StoreError):
    """Report that the operating system, or the server, denies access to the store, or that its disk fails."""


class StoreFullError(StoreError):
    """Report that the disk under the store, or its quota, is full."""


class StoreCorruptError(StoreError):
    """Report a store file that is damaged, is no store, or was written by another version."""


class StoreBusyError(StoreError):
    """Report that other writers kept the store locked for too long."""


class StoreUnreachableError(StoreError):
    """Report a store that did not answer in time: it is away, frozen, or cut off by the network.

    It may answer again: a caller may try the same call later. What a transaction that was under way has
    done is then unknown; whoever repeats one guards it by compares.
    """


class StoreHandleError(StoreError):
    """Report a store handle used after close, after a fork or by another thread than its own."""


class StoreRequestError(StoreError):
    """Report a request that no back end takes: a bad key, a clash within a transaction, too many bytes."""


class PlanError(ElastaneError):
    """Report a plan of a scheduling policy that cannot be carried out, and which rule it breaks."""
