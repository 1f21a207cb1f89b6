"""A batch policy in a running job: its part of the replicated state, and what changes with a generation.

Under a policy a position in the data is a number of samples, not of steps: `trained` counts those of the
present epoch that committed steps have trained. When the workers change, the rest of the epoch is cut into
steps anew from there, so that every sample is trained once whoever comes, goes or dies. The policies
themselves are in `core.batching`.
"""

from elastane.core.batching import BatchPolicy, cut_epochs
from elastane.core.data_order import DataOrder, Place
from elastane.model.errors import ModelMismatchError


class Batching:
    """Keep count of the samples and of the learning rate's scale for one job.

    Attributes:
        policy: of the job.
        trained: samples of the present epoch that committed steps have trained.
        lr_batch: the global batch that the learning rate was chosen for; 0 = that of the first step, which
            has not been committed yet.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self.policy = policy
        self.trained = 0
        self.lr_batch = policy.lr_batch or 0

    def state_dict(self) -> dict[str, int | str]:
        """Return what every worker must know to go on."""
        return {"policy": self.policy.describe(), "trained": self.trained, "lr_batch": self.lr_batch}

    def load_state_dict(self, state: dict[str, int | str], /) -> None:
        """Take over the counters of a job with the same policy.

        Raises:
            ModelMismatchError: the state was made under another policy.
        """
        own = self.policy.describe()
        if state["policy"] != own:
            raise ModelMismatchError(
                f"the state was made under the batch policy {state['policy']}, the script has {own}; it is "
                "fixed for a job's life: keep it, or start a new job"
            )
        self.trained, self.lr_batch = int(state["trained"]), int(state["lr_batch"])

    def cut(self, order: DataOrder, epoch: int, step: int, workers: int) -> DataOrder:
        """Return how so many workers cut the data from (epoch, step) on; `order` if that stays the same."""
        if order.virtual_workers == workers and order.before(epoch, step) == self.trained:
            return order
        place = Place(epoch, step, self.trained)
        return cut_epochs(self.policy, order.samples, workers, tail=order.tail, since=place)

    def lr_scale(self, order: DataOrder) -> float:
        """Return the factor on the learning rate in a step of `order`.

        Also in an epoch's short last step it is that of full ones.

        Raises:
            ConfigError: the user's rule returned no number above 0.
        """
        return self.policy.lr_scale(order.global_batch, self.lr_batch or order.global_batch)

    def advance(self, order: DataOrder, samples: int) -> None:
        """Take note that a step of `order` with so many samples was committed."""
        self.trained += samples
        self.lr_batch = self.lr_batch or order.global_batch

    def begin_epoch(self) -> None:
        """Take note that the next step is the first of an epoch."""
        self.trained = 0
