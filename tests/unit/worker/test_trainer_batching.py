"""Training under a batch policy with workers that come and go: one process plays all of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from changing_session import ChangingSession
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

import elastane
from elastane.core.batching import BatchPolicy, CappedLocal, FixedGlobal, cut_epochs
from elastane.core.data_order import DataOrder
from elastane.model.errors import ConfigError, DeterminismError, ModelMismatchError
from elastane.worker.batching import Batching
from elastane.worker.data import FeedSettings
from elastane.worker.digest import compute_digest
from elastane.worker.feeder import BatchFeeder
from elastane.worker.session import Training
from elastane.worker.state import JobState, copy_state
from elastane.worker.trainer import Trainer
from elastane.worker.update import Update

SEED = 7
DATA = [(torch.tensor([i / 64, i % 5 / 4, 1.0]), torch.tensor([i % 3 / 2.0])) for i in range(53)]
Place = tuple[int, int]
"""(epoch, step of the job)"""


class Recentred(nn.Module):
    """Keeps a running mean in a buffer, as BatchNorm does, and takes batches of one sample too."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x - self.mean


class Run:
    """A job under a policy, trained to its end."""

    def __init__(
        self,
        policy: BatchPolicy | None,
        session: ChangingSession,
        *,
        virtual_workers: int = 3,
        epochs: int = 2,
        plain: bool = False,
        num_workers: int = 0,
        expected: int = 1,
    ) -> None:
        torch.manual_seed(0)
        noisy = [Recentred(4), nn.Dropout(0.3)]
        self.model = nn.Sequential(nn.Linear(3, 4), *([] if plain else noisy), nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.05, total_steps=400)
        self.session = session
        self.seen: dict[Place, list[float]] = {}
        self.rates: dict[int, float] = {}
        self.trainer = self._equip(policy, virtual_workers, num_workers, expected)
        self._train(epochs)

    def _equip(
        self, policy: BatchPolicy | None, virtual_workers: int, num_workers: int, expected: int
    ) -> Trainer:
        device = torch.device("cpu")
        batching = Batching(policy) if policy is not None else None
        trainer = Trainer(SEED, virtual_workers, self.session, device, batching)
        state = JobState(
            device=device, models=[self.model], optimizers=[self.optimizer], schedulers=[self.schedule]
        )
        trainer.equip(self.model, state, Update(self.model, [self.optimizer], [self.schedule]), overlap=True)
        if policy is None:
            order = DataOrder(samples=len(DATA), virtual_workers=virtual_workers, batch_size=4)
        else:
            order = cut_epochs(policy, len(DATA), expected)
        feed = FeedSettings(shuffle=True, num_workers=num_workers)
        trainer.course.feed_from(BatchFeeder(DATA, order, SEED, settings=feed), order)
        return trainer

    def _train(self, epochs: int) -> None:
        trainer = self.trainer
        for epoch in trainer.epochs(epochs):
            vrank = 0
            for x, y in trainer.batches():
                place = (epoch, trainer.state.step)
                vrank = vrank + 1 if trainer._done else 0  # a step that is repeated begins anew
                self.seen[place] = [*(self.seen[place] if vrank else []), *(64 * x[:, 0]).tolist()]
                self.rates[trainer.state.step] = self.optimizer.param_groups[0]["lr"]
                loss = ((self.model(x) - y) ** 2).mean()
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                trainer.log({"loss": loss.detach()})

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [parameter.detach() for parameter in self.model.parameters()]

    @property
    def digest(self) -> str:
        return compute_digest(self.trainer.state.capture())

    def samples_of(self, epoch: int) -> list[float]:
        return [sample for place, samples in self.seen.items() if place[0] == epoch for sample in samples]


POLICIES: list[BatchPolicy] = [FixedGlobal(12), CappedLocal(local=3, max_global=14, lr_rule="linear")]
plans = st.dictionaries(st.integers(0, 12), st.integers(1, 8), max_size=6)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(POLICIES), plans, st.dictionaries(st.integers(0, 12), st.integers(1, 6), max_size=4))
def test_every_sample_is_trained_once_per_epoch_over_changes_and_losses(
    policy: BatchPolicy, plan: dict[int, int], losses: dict[int, int]
) -> None:
    run = Run(policy, ChangingSession(plan, losses))
    for epoch in range(2):
        assert sorted(run.samples_of(epoch)) == [float(i) for i in range(len(DATA))]
    assert sum(record.samples for record in run.session.records) == 2 * len(DATA)
    assert [record.samples for record in run.session.records] == [
        len(samples) for samples in run.seen.values()
    ]


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(POLICIES), plans, st.dictionaries(st.integers(0, 12), st.integers(1, 6), max_size=4))
def test_two_runs_with_the_same_numbers_of_workers_have_the_same_bits(
    policy: BatchPolicy, plan: dict[int, int], losses: dict[int, int]
) -> None:
    one, other = (Run(policy, ChangingSession(plan, losses)) for _ in range(2))
    assert one.digest == other.digest
    assert [r.values for r in one.session.records] == [r.values for r in other.session.records]


def test_a_step_redone_by_fewer_workers_trains_the_samples_of_the_step_that_was_lost() -> None:
    whole = Run(FixedGlobal(12), ChangingSession({0: 5}))
    reduced = Run(FixedGlobal(12), ChangingSession({0: 5}, losses={3: 2}))
    assert {place: sorted(samples) for place, samples in reduced.seen.items()} == {
        place: sorted(samples) for place, samples in whole.seen.items()
    }
    assert [record.workers for record in reduced.session.records] == [1] * 10  # all played by one process


@pytest.mark.parametrize("workers", [2, 3, 5, 8, 12])
def test_unequal_parts_give_the_gradient_of_one_big_batch(workers: int) -> None:
    whole = Run(FixedGlobal(12), ChangingSession({}), plain=True)
    parted = Run(FixedGlobal(12), ChangingSession({0: workers}), plain=True)
    for ours, theirs in zip(parted.parameters, whole.parameters, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    losses = [[r.values["loss"] for r in run.session.records] for run in (parted, whole)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_parts_of_2_2_1_and_1_samples_give_the_mean_of_all_six_exactly() -> None:
    job = elastane.Job(batch=FixedGlobal(6))
    session = job._trainer._session = ChangingSession({0: 4})
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = job.loader(TensorDataset(12.0 * torch.arange(6.0).square().reshape(6, 1)), shuffle=False)
    job.prepare(model, optimizer)
    parts = []
    for _ in job.epochs(1):
        for (x,) in loader:
            parts.append(x.flatten().tolist())
            model(x).mean().backward()
            optimizer.step()
            job.log(mean=x.mean())
    assert parts == [[0.0, 192.0], [12.0, 300.0], [48.0], [108.0]]
    assert model.weight.item() == -110.0  # and not -102, the mean of the parts' means
    assert [(record.samples, record.values) for record in session.records] == [(6, {"mean": 110.0})]


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_the_learning_rate_at_a_step_is_the_same_for_any_number_of_workers(workers: int) -> None:
    alone, shared = (
        Run(FixedGlobal(12), ChangingSession({})),
        Run(FixedGlobal(12), ChangingSession({0: workers, 3: 1})),
    )
    assert shared.rates == alone.rates
    assert len(set(alone.rates.values())) == 10
    assert {r.lr_scale for r in shared.session.records} == {1.0}


def test_without_a_change_a_divisible_batch_has_the_bits_of_so_many_virtual_workers() -> None:
    shared = Run(FixedGlobal(12), ChangingSession({0: 3}))
    virtual = Run(None, ChangingSession({0: 3}))
    assert [p.tolist() for p in shared.parameters] == [p.tolist() for p in virtual.parameters]
    assert [r.values for r in shared.session.records] == [r.values for r in virtual.session.records]


def test_loading_ahead_changes_nothing() -> None:
    plan = {0: 2, 2: 5, 3: 1, 7: 4}
    here, ahead = (Run(FixedGlobal(12), ChangingSession(plan, {4: 2}), num_workers=n) for n in (0, 2))
    assert (ahead.digest, ahead.seen) == (here.digest, here.seen)


@pytest.mark.parametrize(
    ("rule", "lr_batch", "scales"),
    [
        ("none", None, [1.0] * 6),
        ("linear", None, [1.0, 1.0, 2.0, 2.0, 7 / 3, 0.5]),
        ("sqrt", 6, [1.0, 1.0, 2**0.5, 2**0.5, (7 / 3) ** 0.5, 0.5**0.5]),
        ("linear", 12, [0.5, 0.5, 1.0, 1.0, 14 / 12, 0.25]),
        (lambda batch, chosen_for: 1 + batch - chosen_for, None, [1.0, 1.0, 7.0, 7.0, 9.0, 0.0]),
    ],
)
def test_the_learning_rate_is_scaled_where_the_workers_change_the_batch(
    rule: Any, lr_batch: int | None, scales: list[float]
) -> None:
    policy = CappedLocal(local=3, max_global=14, lr_rule=rule, lr_batch=lr_batch)
    session = ChangingSession({0: 2, 2: 4, 4: 8, 5: 1})
    if scales[-1] == 0.0:
        with pytest.raises(ConfigError, match="returned -2 for a global batch of 3 samples, chosen for 6"):
            Run(policy, session, epochs=1)
        scales = scales[:-1]
    else:
        Run(policy, session, epochs=1)
    assert [r.lr_scale for r in session.records][: len(scales)] == scales
    assert [r.samples for r in session.records][: len(scales)] == [6, 6, 12, 12, 14, 3][: len(scales)]


def test_an_epochs_short_last_step_keeps_the_scale_of_full_ones() -> None:
    session = ChangingSession({0: 4})
    Run(CappedLocal(local=3, max_global=14, lr_rule="linear", lr_batch=6), session, epochs=1)
    assert [(r.samples, r.lr_scale) for r in session.records] == [(12, 2.0)] * 4 + [(5, 2.0)]


@pytest.mark.parametrize("expected", [1, 5])
def test_a_joiner_that_is_sent_the_state_goes_on_at_the_same_sample(expected: int) -> None:
    plan = {0: 2, 3: 5}
    source = Run(CappedLocal(local=3, max_global=14, lr_rule="linear"), ChangingSession(plan), epochs=2)

    class Joins(ChangingSession):
        """Takes a seat with the state that another job had after its third step."""

        def begin(self, training: Training) -> None:
            self._training = training
            training.state.restore(captured)
            self.seat(5)
            self.plan.clear()

    class Captures(ChangingSession):
        def pass_boundary(self) -> None:
            super().pass_boundary()
            assert self._training is not None
            if self._training.state.step == 3 and not self.restores:
                self.restores[3] = copy_state(self._training.state.capture())

    capturing = Captures(plan)
    Run(CappedLocal(local=3, max_global=14, lr_rule="linear"), capturing, epochs=2)
    captured = capturing.restores[3]
    joined = Run(CappedLocal(local=3, max_global=14, lr_rule="linear"), Joins({}), expected=expected)
    assert joined.digest == source.digest
    assert joined.seen == {place: samples for place, samples in source.seen.items() if place[1] >= 3}


def test_a_state_made_under_another_policy_is_refused() -> None:
    state = Batching(FixedGlobal(12)).state_dict()
    assert state == {"policy": "FixedGlobal(12)", "trained": 0, "lr_batch": 12}
    with pytest.raises(
        ModelMismatchError, match=r"policy FixedGlobal\(12\), the script has FixedGlobal\(6\)"
    ):
        Batching(FixedGlobal(6)).load_state_dict(state)


def test_a_job_with_virtual_workers_keeps_nothing_of_a_policy_in_its_state() -> None:
    run = Run(None, ChangingSession({0: 3}), epochs=1)
    assert set(run.trainer.state.registered) == {"elastane.position"}
    assert run.trainer.batch == ""


@pytest.mark.parametrize(
    ("policy", "workers", "message"),
    [
        (FixedGlobal(12), 13, "ask for 1 to 12 workers"),
        (None, 4, "ask for 1 to 3 workers, or start the job with more virtual workers"),
    ],
)
def test_more_workers_than_can_share_a_step_are_refused(
    policy: BatchPolicy | None, workers: int, message: str
) -> None:
    run = Run(policy, ChangingSession({0: 3}), epochs=0)
    with pytest.raises(ConfigError, match=message):
        run.trainer.check_workers(workers)
    run.trainer.check_workers(workers - 1)


def test_workers_that_trained_another_number_of_samples_than_planned_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned: Callable[[DataOrder, int, int], int] = DataOrder.step_samples
    monkeypatch.setattr(DataOrder, "step_samples", lambda order, epoch, step: planned(order, epoch, step) + 1)
    with pytest.raises(
        DeterminismError, match="13 samples were planned for step 0, but the workers trained 12"
    ):
        Run(FixedGlobal(12), ChangingSession({0: 3}))
