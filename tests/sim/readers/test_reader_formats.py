"""Every published format is found by its columns, and its rows mean what its source says."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from elastane.model.errors import ConfigError
from elastane.sim.readers import FORMATS, format_named, read_trace
from elastane.sim.readers.rows import TraceRow

DATA = Path(__file__).parents[3] / "data" / "traces"


@pytest.mark.parametrize(
    ("file", "name", "jobs"),
    [
        ("philly/philly_109k.csv.gz", "philly-109k", 109_532),
        ("philly/philly_82k.csv.gz", "philly-82k", 82_247),
        ("itp/cluster01.csv.gz", "itp", 1_595),
        ("itp/cluster03.csv.gz", "itp", 3_011),
        ("itp/cluster06.csv.gz", "itp", 2_396),
        ("itp/cluster10.csv.gz", "itp", 260),
        ("itp_elasticflow/cluster10.csv.gz", "itp-models", 260),
        ("itp_elasticflow/195job.csv", "itp-models", 195),
        ("elasticflow/philly_103959.csv", "elasticflow", 876),
        ("elasticflow/elasticVpollux_e.csv", "elasticflow", 195),
        ("tiresias/60_job.csv", "tiresias", 60),
        ("tiresias/philly_ee9e8c.csv", "tiresias", 1_511),
        ("pollux/workloads/workload-6.csv", "pollux", 160),
        ("gavel/small_test.trace.gz", "gavel", 20),
        ("shockwave/120_jobs.trace.gz", "shockwave", 120),
        ("shockwave/460_jobs.trace.gz", "shockwave", 460),
        ("gavel/gavel_generated_seed0_lam1800_multigpu.trace.gz", "gavel", 1_305),
    ],
)
def test_each_published_trace_is_recognised_and_read_whole(file: str, name: str, jobs: int) -> None:
    trace = read_trace(DATA / file)
    assert (trace.format, len(trace.rows), trace.left_out) == (name, jobs, ())
    assert trace.rows[0].submit_s == 0.0
    assert all(a.submit_s <= b.submit_s for a, b in zip(trace.rows, trace.rows[1:], strict=False))


def read_text(folder: Path, text: str, format_name: str | None = None) -> tuple[TraceRow, ...]:
    path = folder / "trace.txt"
    path.write_text(text)
    return read_trace(path, format_name).rows


def test_philly_109k_names_virtual_cluster_and_model(tmp_path: Path) -> None:
    text = "job_id,vc,submit_time,num_gpus,duration,model_name\n7,6214e9,0,2,99,VggnetModel256\n"
    assert read_text(tmp_path, text) == (
        TraceRow(
            line=2,
            job_id="7",
            tenant="6214e9",
            submit_s=0.0,
            devices=2,
            duration_s=99.0,
            model="VggnetModel256",
        ),
    )


def test_philly_82k_has_no_ids_so_the_line_number_serves(tmp_path: Path) -> None:
    text = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,4,264.0,11cb48\n"
    assert read_text(tmp_path, text) == (
        TraceRow(line=2, job_id="2", tenant="11cb48", submit_s=0.0, devices=4, duration_s=66.0),
    )


def test_helios_keeps_failed_jobs_and_leaves_cpu_jobs_out(tmp_path: Path) -> None:
    path = tmp_path / "cluster_log.csv"
    path.write_text(
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "1,ua,vcA,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0\n"
        "2,ub,vcB,0,16,1,COMPLETED,2020-06-09 18:42:27,2020-06-09 18:42:27,2020-06-09 18:45:36,189,0\n"
    )
    trace = read_trace(path)
    assert trace.format == "helios"
    assert trace.rows == (
        TraceRow(line=2, job_id="1", tenant="vcA", submit_s=0.0, devices=4, duration_s=249.0, waited_s=0.0),
    )
    assert [(entry.reason, entry.count) for entry in trace.left_out] == [
        ("gpu_num is zero (a job without devices)", 1)
    ]


def test_alibaba_fractions_of_a_gpu_are_rounded_up_over_all_instances(tmp_path: Path) -> None:
    rows = read_text(
        tmp_path,
        "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user\n"
        "1,1,0,6,0.25,T4,100,ua\n2,10,5,6,0.5,P100,100,ua\n3,,9,6,2,V100,100,ub\n",
    )
    assert [(row.job_id, row.devices, row.tenant) for row in rows] == [
        ("1", 1, "ua"),
        ("2", 5, "ua"),
        ("3", 2, "ub"),
    ]


def test_alibaba_jobs_without_a_gpu_are_no_fault_but_negative_ones_are(tmp_path: Path) -> None:
    path = tmp_path / "pai.csv"
    path.write_text(
        "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user\n"
        "1,1,0,6,0,CPU,100,ua\n2,1,5,6,-1,T4,100,ua\n3,1,9,6,1,T4,100,ub\n4,9999,9,6,1e307,T4,100,ub\n"
    )
    assert [(entry.reason, entry.expected) for entry in read_trace(path).left_out] == [
        ("the job used no GPU", True),
        ("num_gpu is negative", False),
        ("num_gpu x num_inst is too large (wrong column?)", False),
    ]


def test_limits_of_a_plain_row_must_enclose_its_request(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "submit_time,devices,duration,min_devices,max_devices\n0,4,9,2,8\n1,4,9,5,8\n2,4,9,1,3\n3,4,9,,\n"
    )
    trace = read_trace(path)
    assert [(row.min_devices, row.max_devices) for row in trace.rows] == [(2, 8), (None, None)]
    assert [(entry.reason, entry.count) for entry in trace.left_out] == [
        ("devices is not between min_devices and max_devices", 2)
    ]


def test_itp_models_are_named_with_their_batch(tmp_path: Path) -> None:
    rows = read_text(
        tmp_path,
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
        "a,500,45775,resnet50,1933904,256,64,2429\n",
    )
    assert rows == (
        TraceRow(line=2, job_id="a", submit_s=0.0, devices=64, duration_s=2429.0, model="resnet50@256"),
    )


def test_gavel_gives_work_in_samples_of_the_whole_job(tmp_path: Path) -> None:
    line = "ResNet-50 (batch size 64)\tpython3 main.py\timagenet\t--n\t1\t1000\t4\t1\t-1.000000\t12.5\n"
    assert read_text(tmp_path, line) == (
        TraceRow(
            line=1,
            job_id="1",
            submit_s=0.0,
            devices=4,
            duration_s=None,
            model="ResNet-50 (batch size 64)",
            work_samples=1000.0 * 64,
        ),
    )


def test_gavel_jobs_without_sensible_work_are_faults(tmp_path: Path) -> None:
    line = "LM (batch size 5)\tpython3\tlm\t--n\t1\t{}\t1\t1\t-1.000000\t0\n"
    path = tmp_path / "trace"
    path.write_text("".join(line.format(steps) for steps in ("100", "-5", "0", "1e300")))
    assert [entry.reason for entry in read_trace(path).left_out] == [
        "total steps is negative",
        "total steps is zero (the job never ran)",
        "total steps is too large (wrong unit?)",
    ]


def test_shockwave_differs_from_gavel_by_two_fields(tmp_path: Path) -> None:
    line = "LM (batch size 10)\tpython3\tlm\t--steps\t1\t134583\t2\tgns\t1\t-1.000000\t1418\t0\n"
    (row,) = read_text(tmp_path, line)
    assert (row.duration_s, row.devices, row.model) == (1418.0, 2, "LM (batch size 10)")


def test_chronus_times_are_minutes(tmp_path: Path) -> None:
    rows = read_text(
        tmp_path,
        "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,"
        "expect_value_list,best_effort,job_type\n0,vc_ed,1,5,5530,mobilenet_v2,96,5,159-189,10-8,0,soft\n"
        "1,vc_ed,1,7,5530,mobilenet_v2,2,5,159,10,0,strict\n",
    )
    assert [(row.submit_s, row.duration_s) for row in rows] == [(0.0, 5760.0), (120.0, 120.0)]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_plain_table_may_use_any_usual_delimiter_order_and_name(tmp_path: Path, delimiter: str) -> None:
    text = "\n".join(
        delimiter.join(cells)
        for cells in (
            ("GPUs", "Runtime", "User", "Arrival", "min_devices", "max_devices", "model"),
            ("4", "60", "ada", "2026-01-01 00:00:00", "2", "16", ""),
        )
    )
    assert read_text(tmp_path, text) == (
        TraceRow(
            line=2,
            job_id="2",
            tenant="ada",
            submit_s=0.0,
            devices=4,
            duration_s=60.0,
            min_devices=2,
            max_devices=16,
        ),
    )


def test_a_format_can_be_forced_and_says_which_columns_it_lacks(tmp_path: Path) -> None:
    text = "job_id,num_gpu,submit_time,iterations,model_name,duration\n1,1,0,5,vgg19,9\n"
    assert read_text(tmp_path, text, "csv")[0].model == "vgg19"
    with pytest.raises(ConfigError, match=r"line 1 lacks column\(s\) gpu_num; vc of format 'helios'"):
        read_text(tmp_path, text, "helios")


def test_an_unknown_format_lists_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        format_named("slrum")
    message = str(caught.value)
    assert "Did you mean 'slurm'?" in message
    assert all(known.name in message for known in FORMATS)


def test_a_gzip_file_is_known_by_its_first_bytes_and_not_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.dat"
    path.write_bytes(gzip.compress(b"submit_time,devices,duration\n0,1,5\n"))
    assert len(read_trace(path).rows) == 1
