"""The object a training script works with: `elastane.Job`.

A façade. Under plain `python train.py` it runs all virtual workers in this process; in a worker that an
agent started it takes part in an elastic job. What happens when is in `trainer`, with whom in `session`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from elastane.core.batching import BatchPolicy, check_policy, cut_epochs
from elastane.core.data_order import DataOrder, Tail
from elastane.model.errors import ConfigError, LengthUnknownError
from elastane.observe.joins import JoinPhase
from elastane.worker.allocator import keep_freed_memory
from elastane.worker.batching import Batching
from elastane.worker.bootstrap import running_control
from elastane.worker.context import WorkerContext, current_context, metrics_directory
from elastane.worker.data import FeedSettings, check_dataset
from elastane.worker.determinism import Determinism, apply_determinism
from elastane.worker.digest import compute_digest
from elastane.worker.elastic import ElasticSession
from elastane.worker.evaluating import combine_results, evaluate_together
from elastane.worker.evaluation import EvalLoader
from elastane.worker.feeder import BatchFeeder
from elastane.worker.handing import UNKNOWN_SAMPLES, Handing
from elastane.worker.network import open_device, torch_device
from elastane.worker.scouts import Scouts
from elastane.worker.seeding import seed_init
from elastane.worker.session import Session, SoloSession
from elastane.worker.shards import ShardCatalogue, ShardedData
from elastane.worker.signature import check_supported
from elastane.worker.state import JobState, Stateful
from elastane.worker.trainer import Trainer
from elastane.worker.update import Update


class TrainingLoader:
    """Iterate over the batches of this worker's virtual workers, one virtual worker's batch at a time.

    Its length is the number of optimizer steps in an epoch, if that does not depend on the workers.
    """

    def __init__(self, trainer: Trainer, order: DataOrder, policy: BatchPolicy | None) -> None:
        self._trainer = trainer
        self._order = order
        self._policy = policy

    def __iter__(self) -> Iterator[Any]:
        return self._trainer.batches()

    def __len__(self) -> int:
        if self._policy is not None and not self._policy.is_constant:
            raise LengthUnknownError(
                f"the number of steps in an epoch depends on the workers under {self._policy.describe()}; "
                "let learning-rate schedules count epochs, not steps, or use FixedGlobal"
            )
        if self._order.samples == UNKNOWN_SAMPLES:
            raise LengthUnknownError(
                "the number of steps in an epoch is not known, since elastane.shards was not told how "
                "long shards are; give lengths=..., or let learning-rate schedules count epochs, not steps"
            )
        return self._order.steps_per_epoch


class Job:
    """Make a training script elastic.

    Args:
        virtual_workers: N, the number of logical data-parallel ranks; fixed for the job's life. It decides
            the results together with `seed`; the number of workers, 1..N, does not. 1 unless given.
        batch: a batch policy instead, `FixedGlobal` or `CappedLocal`: each worker is then one virtual worker,
            and the results depend on the numbers of workers.
        seed: decides initialisation, data order, dropout and augmentation.
        threads: intra-op threads of every worker on CPU; part of the settings that decide the bits.
        determinism: "placement" pins the kernels on CUDA, "off" leaves them to torch.

    Raises:
        ConfigError: N < 1, fewer virtual workers (under a batch policy: samples in a step) than workers
            asked for, or both N and a policy given.
    """

    def __init__(
        self,
        virtual_workers: int | None = None,
        *,
        batch: BatchPolicy | None = None,
        seed: int = 0,
        threads: int = 1,
        determinism: Determinism = "placement",
    ) -> None:
        context, control = current_context(), running_control()
        if control:
            control.milestones.reach(JoinPhase.IMPORT)
        most = _choose_virtual_workers(virtual_workers, batch, context)
        if threads < 1:
            raise ConfigError(f"threads is {threads}; a worker computes with at least 1 thread")
        self.seed = seed
        self.device = torch_device(context.device) if context else _own_device()
        torch.set_num_threads(threads)
        apply_determinism(determinism, self.device)
        if self.device.type == "cpu":
            keep_freed_memory()
        if control:
            open_device(self.device)
            control.milestones.reach(JoinPhase.DEVICE)
        seed_init(seed)
        self._expected_workers = control.view.spec.wanted if control else 1
        alone = 1 if batch is not None else most
        session: Session = ElasticSession(control) if control else SoloSession(alone, metrics_directory())
        self._batching = Batching(batch) if batch is not None else None
        self._trainer = Trainer(seed, most, session, self.device, self._batching)
        self._update: Update | None = None
        self._eval_loader: EvalLoader | None = None
        self._shards: Stateful | None = None

    # --- set-up -------------------------------------------------------------------------------------

    def prepare(
        self,
        model: nn.Module,
        *objects: Any,
        clip_grad_norm: float | None = None,
        grad_scaler: Any = None,
        overlap: bool = True,
        warm_up: Callable[[nn.Module, Any], Tensor] | None = None,
    ) -> tuple[Any, ...]:
        """Take over a model and its optimizers and schedulers; return them in the same order.

        They are the same objects: their `step` now counts once per step of the job.

        Args:
            model: on `job.device`.
            objects: optimizers and learning-rate schedulers, in any order.
            clip_grad_norm: largest norm of the reduced gradient.
            grad_scaler: a torch GradScaler; it acts on the reduced gradient.
            overlap: reduce gradients while the backward pass runs. False allows several backward passes
                per batch.
            warm_up: computes a loss of (model, batch); lets a joining worker rehearse a step before it takes
                part. By default model(first element of the batch) is tried.

        Raises:
            ConfigError: called twice, or an object is neither optimizer nor scheduler.
            UnsupportedModelError: the model cannot be trained exactly; the message says why.
        """
        if self._update is not None:
            raise ConfigError("job.prepare was called twice; give it all optimizers and schedulers at once")
        optimizers = [o for o in objects if isinstance(o, torch.optim.Optimizer)]
        schedulers = [o for o in objects if not isinstance(o, torch.optim.Optimizer)]
        _check_objects(optimizers, schedulers)
        state = JobState(device=self.device, models=[model], optimizers=optimizers, schedulers=schedulers)
        if grad_scaler is not None:
            state.register("elastane.grad_scaler", grad_scaler)
        if self._shards is not None:
            state.register("elastane.shards", self._shards)
        check_supported(state, self._trainer.virtual_workers)
        self._update = Update(
            model,
            optimizers,
            schedulers,
            grad_scaler=grad_scaler,
            clip_grad_norm=clip_grad_norm,
            warm_up=warm_up,
        )
        self._trainer.equip(model, state, self._update, overlap=overlap)
        return (model, *objects)

    def loader(
        self,
        dataset: Any,
        batch_size: int | None = None,
        *,
        shuffle: bool = True,
        tail: Literal["exact", "drop", "pad"] = "exact",
        **settings: Any,
    ) -> TrainingLoader:
        """Return the loader of the training data.

        Args:
            dataset: map-style data set, or `elastane.shards`; not a DataLoader.
            batch_size: samples per virtual worker and step, as in DDP; not under a batch policy.
            shuffle: a new order each epoch, DistributedSampler's.
            tail: what happens to samples that do not fill the last step: "exact" trains each once and weights
                the short batches, "drop" leaves them out, "pad" repeats samples as DistributedSampler does
                (not under a batch policy).
            settings: num_workers, collate_fn, pin_memory, prefetch_factor, worker_init_fn,
                multiprocessing_context and timeout_s, as in torch's DataLoader.

        Raises:
            ConfigError: batch_size < 1, or missing or given where it must not be; a data set shorter than one
                step; an unknown setting.
            UnsupportedModelError: an iterable-style data set.
        """
        handing = None
        if isinstance(dataset, ShardedData) and self._batching is not None:
            handing = Handing(dataset, self.seed, shuffle=shuffle)
        samples = check_dataset(dataset) if handing is None else handing.samples
        order = self._cut(samples, batch_size, _tail(tail))
        feed = _feed_settings(shuffle, settings)
        feeder = BatchFeeder(dataset, order, self.seed, settings=feed, handing=handing)
        self._trainer.course.feed_from(feeder, order)
        if handing is not None:
            self._trainer.course.hand_out(handing, Scouts(dataset))
        if isinstance(dataset, ShardedData):
            self._keep_shards(handing or ShardCatalogue(dataset.describe()))
        policy = self._batching.policy if self._batching is not None else None
        return TrainingLoader(self._trainer, order, policy)

    def _keep_shards(self, replicated: Stateful) -> None:
        self._shards = replicated
        if self._update is not None:
            self._trainer.state.register("elastane.shards", replicated)

    def _cut(self, samples: int, batch_size: int | None, tail: Tail) -> DataOrder:
        if self._batching is None:
            if batch_size is None:
                raise ConfigError("job.loader needs batch_size, the samples per virtual worker and step")
            n = self._trainer.virtual_workers
            return DataOrder(samples=samples, virtual_workers=n, batch_size=batch_size, tail=tail)
        policy = self._batching.policy
        if batch_size is not None:
            raise ConfigError(
                f"job.loader was given batch_size={batch_size}, but {policy.describe()} says how many "
                "samples a worker trains in a step; leave batch_size out"
            )
        # Only a joiner's rehearsal takes a batch before the first generation cuts the data by its workers.
        return cut_epochs(policy, samples, min(self._expected_workers, policy.largest_batch), tail=tail)

    def register(self, name: str, obj: Stateful) -> Self:
        """Replicate `obj` (anything with state_dict and load_state_dict) with the rest of the state.

        Raises:
            ConfigError: the name is taken, or `prepare` has not been called.
        """
        self._trainer.state.register(name, obj)
        return self

    def on_reduced(self, hook: Callable[[], object]) -> None:
        """Call `hook` once per step, when every `p.grad` is the reduced gradient, before clipping."""
        self._prepared().reduced_hooks.append(hook)

    def on_commit(self, hook: Callable[[], object]) -> None:
        """Call `hook` once per step after optimizer and scheduler, for example to update an EMA."""
        self._prepared().commit_hooks.append(hook)

    # --- the loop -----------------------------------------------------------------------------------

    def epochs(self, count: int, *, max_steps: int | None = None) -> Iterator[int]:
        """Yield the epochs that are still to be trained, 0..count-1.

        In a worker that joins, the first one is the epoch the job is in by then.

        Args:
            count: epochs of the whole training.
            max_steps: end training after so many steps, wherever in an epoch that is.

        Raises:
            Left: this worker was asked to leave, or the job to stop. A SystemExit: `finally` blocks run.
        """
        if count < 0:
            raise ConfigError(f"job.epochs({count}): the number of epochs cannot be negative")
        return self._trainer.epochs(count, max_steps)

    def log(self, **values: float | Tensor) -> None:
        """Log numbers of this virtual worker's batch; they are averaged over all N, weighted by samples."""
        if self._trainer.in_body:
            self._trainer.log({name: _detached(value) for name, value in values.items()})

    # --- evaluation ---------------------------------------------------------------------------------

    def eval_loader(self, dataset: Any, batch_size: int, **settings: Any) -> EvalLoader:
        """Return a loader that gives this worker its share of an evaluation data set, in order.

        Give one result per batch to `combine`. `evaluate` does both and survives the loss of a worker.

        Args:
            dataset: map-style data set.
            batch_size: samples per batch.
            settings: num_workers, collate_fn and so on, as for `loader`.

        Raises:
            ConfigError, UnsupportedModelError: as for `loader`.
        """
        self._eval_loader = EvalLoader(
            dataset,
            batch_size,
            self.seed,
            settings=_feed_settings(False, settings),
            assign=self._trainer.deal,
        )
        return self._eval_loader

    def combine(self, results: Sequence[Any]) -> Any:
        """Join all workers' results of the last pass over the eval loader, in sample order.

        Args:
            results: one per batch: tensors whose first dimension is the samples, numbers, or dicts, lists and
                tuples of those.

        Returns:
            The joined results, equal on all workers and whatever their number.

        Raises:
            ConfigError: there is not one result for each batch.
            JobStateError: a worker was lost with its share of the results.
        """
        loader = self._eval_loader
        if loader is None:
            raise ConfigError("call job.eval_loader before job.combine")
        own = dict(zip(loader.yielded, results, strict=False))
        return combine_results(self._trainer, loader.batches, own, len(results))

    def evaluate(self, function: Callable[[Any], Any], dataset: Any, batch_size: int, **settings: Any) -> Any:
        """Return `function(batch)` of a whole data set, joined in sample order, equal on all workers.

        The batches are dealt to the workers; if one is lost, the others do its share.

        Args:
            function: gives a batch's result: see `combine`.
            dataset, batch_size, settings: as for `eval_loader`.

        Raises:
            ConfigError, UnsupportedModelError: as for `eval_loader`.
        """
        feed = _feed_settings(False, settings)
        return evaluate_together(self._trainer, function, dataset, batch_size, feed)

    # --- where we are -------------------------------------------------------------------------------

    @property
    def is_main(self) -> bool:
        """Tell whether this worker owns virtual worker 0."""
        return self._trainer.is_main

    @property
    def virtual_workers(self) -> int:
        """Return N. Under a batch policy it is the present number of workers; before the loop the most."""
        return self._trainer.present_virtual_workers

    @property
    def global_batch(self) -> int:
        """Return the samples of a full step of the present workers. Raise ConfigError before `loader`."""
        return self._trainer.course.order.global_batch

    @property
    def step(self) -> int:
        """Return the number of steps committed so far."""
        return self._trainer.state.step

    @property
    def epoch(self) -> int:
        """Return the epoch of the next step."""
        return self._trainer.course.position.epoch

    def digest(self) -> str:
        """Return a sha256 over all parameters, buffers, optimizer, scheduler and registered state."""
        return compute_digest(self._trainer.state.capture())

    def _prepared(self) -> Update:
        if self._update is None:
            raise ConfigError("call job.prepare(model, optimizer, ...) first")
        return self._update


def _choose_virtual_workers(
    given: int | None, batch: BatchPolicy | None, context: WorkerContext | None
) -> int:
    """Return N; under a batch policy, where N is the number of workers, the most there can be."""
    ordered = context.virtual_workers if context is not None else None
    if batch is not None:
        check_policy(batch)
        if given is not None or ordered is not None:
            source = f"virtual_workers={given}" if given is not None else f"--virtual-workers {ordered}"
            raise ConfigError(
                f"{source} and batch={batch.describe()} exclude each other: under a batch policy each "
                "worker is one virtual worker; give one of the two"
            )
        return batch.largest_batch
    n = ordered if ordered is not None else given if given is not None else 1
    if n < 1:
        raise ConfigError(
            f"virtual_workers is {n}; it is the number of logical data-parallel ranks, at least 1"
        )
    return n


def _own_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _detached(value: float | Tensor) -> float | Tensor:
    # A tensor's number is taken at the commit, so that logging does not wait for the device.
    return value.detach().clone() if isinstance(value, Tensor) else value


def _tail(text: str) -> Tail:
    try:
        return Tail(text)
    except ValueError:
        known = ", ".join(repr(t.value) for t in Tail)
        raise ConfigError(f"tail={text!r} is unknown; use one of {known}") from None


def _feed_settings(shuffle: bool, settings: dict[str, Any]) -> FeedSettings:
    try:
        return FeedSettings(shuffle=shuffle, **settings)
    except TypeError:
        known = {"num_workers", "collate_fn", "pin_memory", "prefetch_factor", "worker_init_fn"}
        known |= {"multiprocessing_context", "timeout_s"}
        unknown = sorted(set(settings) - known)
        raise ConfigError(
            f"job.loader does not know {', '.join(unknown)}; beside dataset, batch_size, shuffle and tail it "
            f"takes {', '.join(sorted(known))}"
        ) from None


def _check_objects(optimizers: list[Any], schedulers: list[Any]) -> None:
    if not optimizers:
        raise ConfigError("job.prepare needs the optimizer too: job.prepare(model, optimizer, scheduler)")
    for scheduler in schedulers:
        if not (hasattr(scheduler, "step") and hasattr(scheduler, "load_state_dict")):
            raise ConfigError(
                f"job.prepare was given a {type(scheduler).__name__}, which is neither an optimizer nor a "
                "scheduler; use job.register for other objects with a state"
            )
