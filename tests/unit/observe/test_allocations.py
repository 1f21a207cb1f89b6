"""What events and metrics say of each size that was measured."""

from elastane.observe.allocations import MemoryPeak, compute_points, find_allocations
from elastane.observe.events import Event
from elastane.observe.metrics import MetricsRecord


def measured(generation: int, workers: int, first: int, last: int) -> Event:
    fields = {"generation": generation, "workers": workers, "first_step": first, "last_step": last}
    return Event(at_s=0.0, kind="allocation_measured", source="w1", fields=fields)


def memory(worker: str, generation: int, rss_bytes: int, device_bytes: int | None = None) -> Event:
    fields = {
        "worker": worker,
        "generation": generation,
        "rss_bytes": rss_bytes,
        "device_bytes": device_bytes,
        "device_type": "cpu",
    }
    return Event(at_s=0.0, kind="memory_measured", source=worker, fields=fields)


def train(steps: range, workers: int, step_time_s: float = 0.5) -> list[MetricsRecord]:
    return [
        MetricsRecord(
            step=step, epoch=0, at_s=0.0, generation=1, workers=workers, step_time_s=step_time_s, samples=32
        )
        for step in steps
    ]


def test_a_size_is_complete_when_all_members_and_all_steps_have_told() -> None:
    events = [memory("w1", 1, 100), measured(1, 2, 3, 7)]
    metrics = train(range(7), 2)
    (allocation,) = find_allocations(events, metrics)
    assert not allocation.complete
    (allocation,) = find_allocations(events, train(range(20), 2))
    assert not allocation.complete
    (allocation,) = find_allocations([*events, memory("w2", 1, 200)], metrics)
    assert not allocation.complete
    (allocation,) = find_allocations([*events, memory("w2", 1, 200)], train(range(20), 2))
    assert allocation.complete
    assert [record.step for record in allocation.records] == [3, 4, 5, 6, 7]
    assert allocation.peaks == (
        MemoryPeak(worker="w1", rss_bytes=100, device_bytes=None, device_type="cpu"),
        MemoryPeak(worker="w2", rss_bytes=200, device_bytes=None, device_type="cpu"),
    )


def test_the_figures_have_the_most_memory_of_any_worker_and_only_complete_sizes() -> None:
    events = [
        *(memory("w1", 1, 100, 7), memory("w2", 1, 200, 5), measured(1, 2, 0, 4)),
        *(memory("w1", 2, 300, 9), measured(2, 1, 5, 9)),
        measured(3, 4, 10, 14),
    ]
    metrics = [*train(range(5), 2, 0.25), *train(range(5, 10), 1)]
    points = compute_points(find_allocations(events, metrics))
    assert [(p.workers, p.samples_per_s, p.efficiency, p.rss_bytes, p.device_bytes) for p in points] == [
        (1, 64.0, 1.0, 300, 9),
        (2, 128.0, 1.0, 200, 7),
    ]


def test_a_size_that_was_measured_twice_counts_as_it_was_measured_last() -> None:
    events = [
        *(memory("w1", 1, 100), measured(1, 1, 0, 4)),
        *(memory("w2", 2, 200), measured(2, 1, 5, 9)),
    ]
    (point,) = compute_points(find_allocations(events, [*train(range(5), 1), *train(range(5, 10), 1, 2.0)]))
    assert (point.step_time_s, point.rss_bytes) == (2.0, 200)


def test_nothing_was_measured_where_nothing_was_told() -> None:
    assert find_allocations([], train(range(9), 1)) == ()
    assert compute_points(()) == ()
