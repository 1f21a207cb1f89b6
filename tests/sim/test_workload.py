"""From trace rows to jobs: which profile, which limits, what is left out; the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastane.model.cluster import Cluster, JobSpec
from elastane.model.errors import ConfigError
from elastane.model.profile import MeasuredProfile
from elastane.observe.profiles import save_profile
from elastane.perf.curve import compute_curve
from elastane.perf.measured import compute_point
from elastane.sim.profiles import SOURCES, load_profile_set
from elastane.sim.readers import read_trace
from elastane.sim.readers.rows import LeftOut, Trace, TraceRow
from elastane.sim.workload import (
    WorkloadOptions,
    choose_profile_set,
    compute_offered_load,
    prepare_workload,
)

DATA = Path(__file__).parents[2] / "data" / "traces"
CLUSTER = Cluster.of(2, 8)


def row(job_id: str, devices: int = 1, submit_s: float = 0.0, **more: object) -> TraceRow:
    fields: dict[str, object] = {"line": 2, "duration_s": 100.0, **more}
    return TraceRow(job_id=job_id, devices=devices, submit_s=submit_s, **fields)  # type: ignore[arg-type]


def trace(*rows: TraceRow, profile_set: str | None = None) -> Trace:
    return Trace(name="t", format="csv", rows=rows, profile_set=profile_set)


def test_a_named_model_gives_profile_work_and_the_largest_useful_size() -> None:
    made = prepare_workload(
        trace(row("a", 4, model="VggnetModel256", tenant="ada")), CLUSTER, WorkloadOptions()
    )
    assert made.profile_set == "pcs-afs"
    assert made.workload.jobs == (
        JobSpec(
            id="a",
            submit_s=0.0,
            requested=4,
            work_s=100.0,
            profile="VggnetModel256",
            max_devices=8,
            tenant="ada",
        ),
    )
    assert list(made.workload.profiles) == ["VggnetModel256"]
    assert made.left_out == ()


def test_models_are_drawn_with_the_seed_and_only_where_a_trace_names_none() -> None:
    rows = tuple(row(str(i), submit_s=i) for i in range(40))

    def drawn(seed: int, elastic_share: float = 1.0) -> list[str]:
        options = WorkloadOptions(seed=seed, elastic_share=elastic_share)
        return [job.profile for job in prepare_workload(trace(*rows), CLUSTER, options).workload.jobs]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert drawn(1, elastic_share=0.5) == drawn(1)
    assert len(set(drawn(1))) > 5


def test_draws_do_not_depend_on_which_other_jobs_fit_the_cluster() -> None:
    rows = (row("big", 64), *(row(str(i), submit_s=i) for i in range(20)))
    small = prepare_workload(trace(*rows), CLUSTER, WorkloadOptions()).workload.jobs
    large = prepare_workload(trace(*rows), Cluster.of(8, 8), WorkloadOptions()).workload.jobs
    assert [job.profile for job in small] == [job.profile for job in large[1:]]


def test_a_drawn_profile_still_gains_at_the_size_that_was_asked_for() -> None:
    rows = tuple(row(str(i), 32, submit_s=i) for i in range(60))
    made = prepare_workload(trace(*rows), Cluster.of(8, 8), WorkloadOptions())
    assert all(job.largest >= 32 for job in made.workload.jobs)
    names = {job.profile.split("@")[0] for job in made.workload.jobs}
    assert "resnet50_cifar10" not in names


def test_jobs_larger_than_the_cluster_are_left_out_with_their_line() -> None:
    made = prepare_workload(trace(row("a"), row("b", 17)), CLUSTER, WorkloadOptions())
    assert [job.id for job in made.workload.jobs] == ["a"]
    assert made.left_out == (
        LeftOut(
            reason="asks for more than the cluster's 16 devices", count=1, examples=("line 2 (17 devices)",)
        ),
    )


def test_if_no_job_fits_there_is_nothing_to_simulate() -> None:
    with pytest.raises(ConfigError, match="none of the 1 jobs can run on 16 devices: 1 x asks for more"):
        prepare_workload(trace(row("b", 17)), CLUSTER, WorkloadOptions())


def test_the_elastic_share_makes_the_other_jobs_rigid() -> None:
    rows = tuple(row(str(i), submit_s=i) for i in range(400))
    made = prepare_workload(trace(*rows), CLUSTER, WorkloadOptions(elastic_share=0.25))
    elastic = sum(job.elasticity == "elastic" for job in made.workload.jobs)
    assert 70 <= elastic <= 130
    assert any("25% of the jobs" in line for line in made.assumptions)


def test_load_compresses_arrivals_and_raises_the_offered_load_alike() -> None:
    rows = (row("a", 8, duration_s=1600.0), row("b", 8, submit_s=1600.0, duration_s=1600.0))
    once = prepare_workload(trace(*rows), CLUSTER, WorkloadOptions())
    twice = prepare_workload(trace(*rows), CLUSTER, WorkloadOptions(load=2.0))
    assert [job.submit_s for job in twice.workload.jobs] == [0.0, 800.0]
    assert (once.offered_load, twice.offered_load) == (1.0, 2.0)
    assert compute_offered_load(once.workload, 32) == 0.5


def test_growth_can_be_bounded_but_never_below_the_request() -> None:
    rows = (row("a", 4, model="AutoencoderModel51200"), row("b", 16, model="VggnetModel256"))
    options = WorkloadOptions(max_growth=2.0)
    made = prepare_workload(trace(*rows), Cluster.of(8, 8), options)
    # The second one's profile gains up to 8 devices only.
    assert [job.max_devices for job in made.workload.jobs] == [8, 16]


def test_limits_given_by_the_trace_win() -> None:
    made = prepare_workload(trace(row("a", 4, min_devices=2, max_devices=6)), CLUSTER, WorkloadOptions())
    assert (made.workload.jobs[0].min_devices, made.workload.jobs[0].max_devices) == (2, 6)


def test_pollux_runs_last_as_long_as_the_authors_measured() -> None:
    """Published completion times at half load, where hardly anybody waits: whole minutes later at most."""
    pollux = read_trace(DATA / "pollux" / "workloads-0.5" / "workload-6.csv")
    made = prepare_workload(pollux, Cluster.of(16, 4), WorkloadOptions())
    lengths = {job.id: job.work_s for job in made.workload.jobs}
    # Golden figures: results-jobload_tiresias-0.5, with up to 60 s for the round and 30 s for the restart.
    for job_id, seconds in (("bert-5", 1379), ("deepspeech2-12", 3574), ("cifar10-14", 993), ("ncf-20", 78)):
        assert seconds - 100 <= lengths[job_id] <= seconds + 10


def test_gavel_work_is_steps_times_batch_over_the_measured_speed() -> None:
    gavel = read_trace(DATA / "gavel" / "small_test.trace.gz")
    made = prepare_workload(gavel, Cluster.of(4, 8), WorkloadOptions())
    job = made.workload.jobs[0]
    (point,) = (
        point
        for point in made.workload.profiles[job.profile].points
        if (point.devices, point.device_type) == (job.requested, "V100")
    )
    assert job.work_s == pytest.approx(346 * 128 / point.samples_per_s, rel=1e-5)


def test_no_profile_gains_much_more_than_its_devices() -> None:
    """A profile that does would reward whole clusters for single jobs: a sign of a wrong unit."""
    for name in SOURCES:
        for profile in load_profile_set(name).profiles.values():
            curve = compute_curve(profile, profile.max_devices).packed
            per_device = curve[1:] / curve[1] / range(1, len(curve))
            # Caches and measurement noise give up to half as much again in the published figures.
            assert per_device.max() < 1.7, profile.name


def test_itp_durations_agree_with_iterations_over_measured_speed() -> None:
    """The publishers' own duration of a job is its iterations over the A100 profile's speed."""
    profile = load_profile_set("elasticflow-a100").profiles["resnet50@256"]
    speed = {point.devices: point.samples_per_s for point in profile.points}
    assert 45775 * 256 / speed[64] == pytest.approx(2429, abs=1)


def test_a_model_without_profile_gets_a_drawn_one_if_its_duration_is_known() -> None:
    made = prepare_workload(trace(row("a", model="secret")), CLUSTER, WorkloadOptions())
    assert made.workload.jobs[0].profile in load_profile_set("elasticflow-a100").profiles
    assert made.assumptions[-1] == "models without a profile: secret"


def test_a_model_without_profile_and_duration_is_left_out() -> None:
    rows = (row("a", model="secret@1", duration_s=None), row("b", model="bert@12", duration_s=None))
    made = prepare_workload(trace(*rows, profile_set="pollux"), CLUSTER, WorkloadOptions())
    assert [job.id for job in made.workload.jobs] == ["b"]
    assert made.left_out == (
        LeftOut(
            reason="its running time is not known for this model", count=1, examples=("line 2 (secret@1)",)
        ),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"elastic_share": 1.5}, "elastic share is 1.5"),
        ({"load": 0.0}, "load is 0.0"),
        ({"max_growth": 0.5}, "largest growth is 0.5"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WorkloadOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SOURCES)
def test_every_published_set_loads_with_positive_speeds(name: str) -> None:
    loaded = load_profile_set(name)
    assert loaded.profiles
    assert set(loaded.works) <= set(loaded.profiles)


def test_own_profiles_come_from_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("profile,devices,samples_per_s\ngpt,1,10\ngpt,8,60\n")
    made = prepare_workload(trace(row("a")), CLUSTER, WorkloadOptions(profiles=str(path)))
    assert (made.workload.jobs[0].profile, made.workload.jobs[0].max_devices) == ("gpt", 8)


def measured(name: str, *speeds: tuple[int, float]) -> MeasuredProfile:
    points = (compute_point(n, [8, 8], [8 / speed, 8 / speed], 1, None) for n, speed in speeds)
    return MeasuredProfile(
        elastane="0.1.0",
        name=name,
        script=f"{name}.py",
        made_at="2026-11-30 12:00:00 UTC",
        model="",
        virtual_workers=8,
        device_type="cpu",
        machine="x86_64",
        skipped_steps=3,
        points=tuple(points),
    )


def test_own_profiles_come_from_a_file_of_elastane_profile_or_a_folder_of_them(tmp_path: Path) -> None:
    save_profile(measured("gpt", (1, 10.0), (4, 30.0)), tmp_path / "gpt.profile.json")
    one = load_profile_set(str(tmp_path / "gpt.profile.json"))
    assert [(p.devices, p.samples_per_s) for p in one.profiles["gpt"].points] == [(1, 10.0), (4, 30.0)]
    save_profile(measured("cnn", (2, 5.0)), tmp_path / "cnn.profile.json")
    both = load_profile_set(str(tmp_path))
    assert sorted(both.profiles) == ["cnn", "gpt"]
    made = prepare_workload(trace(row("a", model="gpt")), CLUSTER, WorkloadOptions(profiles=str(tmp_path)))
    assert (made.workload.jobs[0].profile, made.workload.jobs[0].max_devices) == ("gpt", 4)


def test_a_folder_without_profiles_or_with_two_of_one_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no profile that `elastane profile` has written"):
        load_profile_set(str(tmp_path))
    for file in ("a.json", "b.json"):
        save_profile(measured("gpt", (1, 10.0)), tmp_path / file)
    with pytest.raises(ConfigError, match=r"b\.json: another file of the folder has a profile called 'gpt'"):
        load_profile_set(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profile,devices\n", "line 1 lacks column.s. samples_per_s"),
        ("profile,devices,samples_per_s\n", "holds no profile"),
        ("profile,devices,samples_per_s\ngpt,1\n", "line 2 has 2 cells; line 1 names 3"),
        ("profile,devices,samples_per_s\ngpt,one,5\n", "line 2: devices is not a number"),
        ("profile,devices,samples_per_s\ngpt,1,-5\n", "is no speed"),
    ],
)
def test_faults_in_a_profile_file_are_named_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_profile_set(str(path))


def test_an_unknown_set_of_profiles_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown set of profiles 'h100'\. Known: pcs-afs, "):
        load_profile_set("h100")


def test_the_format_decides_the_set_before_the_models_do() -> None:
    named = row("a", model="bert@384")
    assert choose_profile_set(trace(named, profile_set="pollux")) == "pollux"
    assert choose_profile_set(trace(named)) == "elasticflow-t4"
    assert choose_profile_set(trace(row("a"))) == "elasticflow-a100"
