"""The steps that sharing policies are made of agree with the plain loops that they replace."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from elastane.model.cluster import Cluster, JobSpec, Profile, SpeedPoint
from elastane.perf.curve import compute_curve, compute_envelope_slopes, compute_mixed_speed
from elastane.policy.grow import NO_GAIN, Sizes, grow, shed
from elastane.policy.price import Weighing, compute_ideal_sizes
from elastane.policy.snapshot import JobRecord, build_view
from elastane.policy.view import View

speeds = st.lists(st.floats(0.1, 5.0), min_size=1, max_size=6).map(lambda steps: np.cumsum(steps).tolist())


@st.composite
def views(draw: st.DrawFn) -> View:
    """Return a view of up to six jobs with concave or odd curves on up to twelve devices."""
    profiles = {}
    records = []
    devices = draw(st.integers(1, 12))
    free = devices
    for number in range(draw(st.integers(1, 6))):
        name = f"p{number % 3}"
        if name not in profiles:
            points = (SpeedPoint(devices=k + 1, samples_per_s=s) for k, s in enumerate(draw(speeds)))
            profiles[name] = Profile(name=name, points=tuple(points))
        requested = draw(st.integers(1, 6))
        least = draw(st.integers(1, requested))
        held = draw(st.integers(0, min(free, 6)))
        held = held if held >= least else 0
        free -= held
        spec = JobSpec(
            id=str(number),
            submit_s=0.0,
            requested=requested,
            work_s=10.0,
            profile=name,
            min_devices=least,
            max_devices=max(6, requested),
        )
        records.append(JobRecord(spec=spec, held=(held,), started_s=0.0 if held else None))
    return build_view(Cluster.of(1, devices), records, profiles, 100.0)


@settings(deadline=None)
@given(view=views())
def test_growing_gives_each_device_to_the_largest_gain(view: View) -> None:
    rows, jobs = view.live, view.jobs
    sizes = Sizes(view, rows, jobs.held[rows].copy())
    places = np.flatnonzero(jobs.held[rows] < jobs.largest[rows])
    room = grow(sizes, places, np.zeros(len(rows), dtype=np.int64), view.free)
    expected, left = jobs.held[rows].copy(), view.free
    while left:
        gains = {}
        for place in places.tolist():
            row, size = int(rows[place]), int(expected[place])
            curve = view.speedups[jobs.profile[row]]
            step = 1 if size else int(jobs.smallest[row])
            if step <= left and size < jobs.largest[row]:
                gains[place] = ((curve[size + step] - curve[size]) / step, bool(size), step)
        useful = {place: gain for place, gain in gains.items() if gain[0] > NO_GAIN}
        if not useful:
            break
        best = min(useful, key=lambda place: (-useful[place][0], useful[place][1], place))
        expected[best] += useful[best][2]
        left -= useful[best][2]
    assert int(sizes.target.sum()) + room == int(jobs.held[rows].sum()) + view.free
    assert (sizes.target <= jobs.largest[rows]).all()
    if int(jobs.smallest[rows].max()) == 1:
        # With larger minima the heap skips for good what does not fit at its turn, as the loop above does
        # only for the moment; totals agree where every step is one device.
        value = view.speedup(rows, sizes.target).sum()
        assert value == np.float64(view.speedup(rows, expected).sum()) or abs(
            value - view.speedup(rows, expected).sum()
        ) < 1e-9 * max(value, 1.0)


@settings(deadline=None)
@given(view=views(), wanted=st.integers(1, 10))
def test_shedding_frees_what_it_says_and_keeps_to_the_floors(view: View, wanted: int) -> None:
    rows, jobs = view.live, view.jobs
    sizes = Sizes(view, rows, jobs.held[rows].copy())
    places = np.flatnonzero(jobs.held[rows])
    floors = jobs.smallest[rows[places]]
    spare = int((jobs.held[rows[places]] - floors).sum())
    freed = shed(sizes, places, floors, wanted)
    assert freed == min(wanted, spare)
    assert int(sizes.target.sum()) == int(jobs.held[rows].sum()) - freed
    assert (sizes.target[places] >= floors).all()


@settings(deadline=None)
@given(
    view=views(),
    fairness=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    weights=st.lists(st.floats(0.1, 9.0), min_size=6, max_size=6),
)
def test_the_price_keeps_to_limits_and_to_the_cluster(
    view: View, fairness: float, weights: list[float]
) -> None:
    rows, jobs = view.live, view.jobs
    levels = np.arange(len(rows))
    weighing = Weighing(weight_of_level=np.sort(np.array(weights))[::-1], fairness=fairness)
    sizes = compute_ideal_sizes(view, rows, levels, weighing)
    running = sizes > 0
    assert int(sizes.sum()) <= view.capacity
    assert (sizes[running] >= jobs.smallest[rows][running]).all()
    assert (sizes <= jobs.largest[rows]).all()
    # Nobody grows while somebody whose minimum would fit has nothing.
    surplus = int((sizes - jobs.smallest[rows])[running].sum())
    idle = view.capacity - int(sizes.sum())
    if (~running).any():
        assert surplus + idle < int(jobs.smallest[rows][~running].max())


@given(curve=st.lists(st.floats(0.0, 10.0), min_size=2, max_size=12))
def test_an_envelope_lies_above_its_curve_and_bends_down_only(curve: list[float]) -> None:
    values = np.array(curve)
    slopes = compute_envelope_slopes(values)
    envelope = values[0] + np.concatenate([[0.0], np.cumsum(slopes)])
    assert (envelope >= values - 1e-9).all()
    assert (np.diff(slopes) <= 1e-9).all()
    assert (slopes >= 0.0).all()
    assert abs(envelope[-1] - values.max()) < 1e-9


@given(points=st.dictionaries(st.integers(1, 20), st.floats(0.1, 100.0), min_size=1, max_size=5))
def test_a_curve_meets_its_points_and_stays_between_them(points: dict[int, float]) -> None:
    measured = tuple(SpeedPoint(devices=k, samples_per_s=s) for k, s in points.items())
    packed = compute_curve(Profile(name="p", points=measured), 24).packed
    assert packed[0] == 0.0
    for devices, speed in points.items():
        assert abs(packed[devices] - speed) < 1e-9
    assert packed.max() <= max(points.values()) + 1e-9


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    pieces=st.integers(1, 12),
)
def test_more_devices_never_slow_whole_pieces_down(counts: list[int], pieces: int) -> None:
    abilities = [1.0, 0.5, 0.3][: len(counts)]
    before = compute_mixed_speed(counts, abilities, pieces)
    for place in range(len(counts)):
        grown = [n + (i == place) for i, n in enumerate(counts)]
        assert compute_mixed_speed(grown, abilities, pieces) >= before - 1e-12
    capability = sum(n * c for n, c in zip(counts, abilities, strict=True))
    assert before <= capability + 1e-9
