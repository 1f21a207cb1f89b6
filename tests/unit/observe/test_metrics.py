"""The metrics log: no holes, no doubles, bits kept, whoever writes and however it ends."""

import errno
import math
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from elastane.observe import metrics
from elastane.observe.metrics import (
    METRICS_FILE,
    MetricsLog,
    MetricsRecord,
    MetricsTail,
    decode_record,
    encode_record,
    follow_metrics,
    read_last_metrics,
    read_metrics,
    rewind_metrics,
)


def record(step: int, **values: float) -> MetricsRecord:
    return MetricsRecord(
        step=step,
        epoch=0,
        at_s=100.0 + step,
        generation=1,
        workers=2,
        step_time_s=0.5,
        samples=8,
        values=values,
    )


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics_log(tmp_path: Path, clock: Clock) -> Iterator[MetricsLog]:
    log = MetricsLog(tmp_path, clock)
    yield log
    log.close()


def bits(value: float) -> bytes:
    return struct.pack(">d", value)


def test_records_read_back_as_they_were_written(tmp_path: Path, metrics_log: MetricsLog) -> None:
    written = [record(step, loss=0.1 * step) for step in range(3)]
    for one in written:
        metrics_log.append(one)
    metrics_log.flush()
    assert read_metrics(tmp_path) == written
    assert read_metrics(tmp_path, after_step=1) == written[2:]


def test_the_shards_that_were_handed_out_are_in_a_line_and_read_back(
    tmp_path: Path, metrics_log: MetricsLog
) -> None:
    handed = structs.replace(record(0, loss=math.inf), shards=(5, 2, 3))
    metrics_log.append(handed)
    metrics_log.flush()
    assert (tmp_path / METRICS_FILE).read_text().endswith('"values":{"loss":"inf"},"shards":[5,2,3]}\n')
    assert read_metrics(tmp_path) == [handed]


def test_a_line_has_the_documented_form(tmp_path: Path, metrics_log: MetricsLog) -> None:
    metrics_log.append(record(0, loss=math.inf, lr=0.1))
    metrics_log.append(record(1, loss=math.nan))
    metrics_log.flush()
    assert (tmp_path / METRICS_FILE).read_text() == (
        '{"step":0,"epoch":0,"at_s":100.0,"generation":1,"workers":2,"step_time_s":0.5,"samples":8,'
        '"lr_scale":1.0,"values":{"loss":"inf","lr":0.1}}\n'
        '{"step":1,"epoch":0,"at_s":101.0,"generation":1,"workers":2,"step_time_s":0.5,"samples":8,'
        '"lr_scale":1.0,"values":{"loss":"nan"}}\n'
    )


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_every_double_reads_back_bit_for_bit(number: int) -> None:
    (value,) = struct.unpack(">d", number.to_bytes(8, "big"))
    line = encode_record(record(0, loss=value))
    back = decode_record(line)
    assert back is not None
    assert bits(back.values["loss"]) == bits(value)


def test_lines_wait_in_memory_until_the_flush_interval_has_passed(
    tmp_path: Path, metrics_log: MetricsLog, clock: Clock
) -> None:
    metrics_log.append(record(0))
    clock.now_s = 0.19
    metrics_log.append(record(1))
    assert read_metrics(tmp_path) == []
    clock.now_s = 0.2
    metrics_log.append(record(2))
    assert read_metrics(tmp_path) == [record(0), record(1), record(2)]


def test_a_new_log_has_no_last_step(metrics_log: MetricsLog) -> None:
    assert metrics_log.last_step() is None


def test_the_last_step_is_that_of_the_newest_line(tmp_path: Path, metrics_log: MetricsLog) -> None:
    for step in range(2_000):  # more than one block of the file
        metrics_log.append(record(step, loss=float(step)))
    metrics_log.close()
    again = MetricsLog(tmp_path)
    assert again.last_step() == 1_999
    again.close()


def test_a_successor_leaves_no_hole_and_no_double(tmp_path: Path, metrics_log: MetricsLog) -> None:
    for step in range(5):
        metrics_log.append(record(step))
    metrics_log.flush()
    for step in range(5, 8):
        metrics_log.append(record(step))  # killed before these were written
    successor = MetricsLog(tmp_path)
    missing = successor.recover(record(step) for step in range(2, 8))
    successor.append(record(7))
    successor.append(record(8))
    successor.close()
    assert missing == 0
    assert len((tmp_path / METRICS_FILE).read_bytes().splitlines()) == 9
    assert [one.step for one in read_metrics(tmp_path)] == list(range(9))


def test_recovery_says_how_many_steps_are_lost_for_good(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    assert log.recover([record(2), record(3)]) == 2
    assert log.recover([]) == 0
    assert log.recover([record(3), record(6)]) == 2
    log.close()


def test_a_torn_last_line_is_not_read_and_is_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    path.write_bytes(encode_record(record(0)) + encode_record(record(1))[:-20])
    assert read_metrics(tmp_path) == [record(0)]
    log = MetricsLog(tmp_path)
    assert log.last_step() == 0
    log.append(record(1))
    log.close()
    assert path.read_bytes() == encode_record(record(0)) + encode_record(record(1))


def test_a_file_that_is_one_torn_line_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).write_bytes(b'{"step":0')
    log = MetricsLog(tmp_path)
    log.append(record(0))
    log.close()
    assert read_metrics(tmp_path) == [record(0)]


def test_a_broken_line_in_the_middle_is_reported_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for broken in (b"{]\n", b'{"step":"x"}\n', encode_record(record(1)).replace(b"{}", b'{"loss":"nan:zz"}')):
        (tmp_path / METRICS_FILE).write_bytes(encode_record(record(0)) + broken + encode_record(record(2)))
        caplog.clear()
        assert read_metrics(tmp_path) == [record(0), record(2)]
        assert "cannot be read" in caplog.text


def test_what_a_cut_off_writer_adds_late_is_not_read_twice(tmp_path: Path) -> None:
    lines = [encode_record(record(step)) for step in (0, 1, 2, 3, 1, 2, 4)]
    (tmp_path / METRICS_FILE).write_bytes(b"".join(lines))
    assert [one.step for one in read_metrics(tmp_path)] == [0, 1, 2, 3, 4]


def test_a_tail_gives_a_line_out_when_its_end_has_come(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    tail = MetricsTail(tmp_path)
    line = encode_record(record(0, loss=0.25))
    steps = []
    for part in (b"", line[:10], line[10:-1], line[-1:]):
        with path.open("ab") as file:
            file.write(part)
        steps.append([one.step for one in tail.poll()])
    assert steps == [[], [], [], [0]]


def test_a_tail_survives_that_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    path.write_bytes(encode_record(record(0)) + b'{"step":1,"epo')
    tail = MetricsTail(tmp_path)
    assert tail.poll() == [record(0)]
    log = MetricsLog(tmp_path)
    log.append(record(1, loss=2.5))
    log.append(record(2, loss=1.5))
    log.close()
    assert tail.poll() == [record(1, loss=2.5), record(2, loss=1.5)]


def test_a_job_without_metrics_has_none(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []


def test_following_gives_out_what_was_written_before_the_end(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    pending = [record(0), record(1)]
    waits = []

    def write_next() -> None:
        waits.append(len(pending))
        log.append(pending.pop(0))
        log.flush()

    assert list(follow_metrics(tmp_path, until=lambda: not pending, wait=write_next)) == [
        record(0),
        record(1),
    ]
    assert waits == [2, 1]
    log.close()


def test_a_disk_that_refuses_writes_loses_nothing_once_it_has_space_again(
    tmp_path: Path, metrics_log: MetricsLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real_write = os.write

    def refuse(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(metrics.os, "write", refuse)
    for step in range(3):
        metrics_log.append(record(step))
        metrics_log.flush()
    assert read_metrics(tmp_path) == []
    monkeypatch.setattr(metrics.os, "write", real_write)
    metrics_log.append(record(3))
    metrics_log.flush()
    assert read_metrics(tmp_path) == [record(step) for step in range(4)]
    assert [entry.message for entry in caplog.records] == [
        f"{tmp_path / METRICS_FILE} cannot be written ([Errno 28] No space left on device); "
        "training goes on, free some space",
        f"{tmp_path / METRICS_FILE} can be written again; nothing was lost",
    ]


def test_a_write_that_the_disk_took_in_part_is_completed_by_the_next(
    tmp_path: Path, metrics_log: MetricsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.write
    monkeypatch.setattr(metrics.os, "write", lambda descriptor, data: real_write(descriptor, data[:30]))
    metrics_log.append(record(0))
    metrics_log.flush()
    monkeypatch.setattr(metrics.os, "write", real_write)
    metrics_log.append(record(1))
    metrics_log.flush()
    assert read_metrics(tmp_path) == [record(0), record(1)]


def test_lines_lost_for_good_are_said_so_when_the_log_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(metrics, "MAX_PENDING_LINES", 2)
    monkeypatch.setattr(metrics.os, "write", refuse)
    log = MetricsLog(tmp_path)
    for step in range(4):
        log.append(record(step))
        log.flush()
    log.close()
    log.close()
    assert caplog.records[-1].message == (
        f"the last lines of {tmp_path / METRICS_FILE} are lost: "
        "the disk refused them ([Errno 28] No space left on device)"
    )


def test_the_file_is_readable_by_its_owner_only(tmp_path: Path, metrics_log: MetricsLog) -> None:
    metrics_log.flush()
    assert (tmp_path / METRICS_FILE).stat().st_mode & 0o777 == 0o600


def test_the_last_records_are_found_without_reading_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).write_bytes(
        b"".join(encode_record(record(step)) for step in range(5_000)) + b'{"torn'
    )
    assert read_last_metrics(tmp_path, 2) == [record(4_998), record(4_999)]
    assert [one.step for one in read_last_metrics(tmp_path, 1_000)] == list(range(4_000, 5_000))
    assert len(read_last_metrics(tmp_path, 10_000)) == 5_000


def test_a_tail_of_the_last_records_goes_on_with_the_new_ones(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    path.write_bytes(b"".join(encode_record(record(step)) for step in range(5)))
    tail = MetricsTail(tmp_path, last=2)
    assert [one.step for one in tail.poll()] == [3, 4]
    with path.open("ab") as file:
        file.write(encode_record(record(5)))
    assert tail.poll() == [record(5)]


# --- going back ------------------------------------------------------------------------------------


@given(st.integers(0, 30), st.integers(0, 35))
def test_steps_that_will_be_repeated_are_cut_off(steps: int, to: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = MetricsLog(folder)
        for step in range(steps):
            log.append(record(step, loss=float(step)))
        log.close()
        assert rewind_metrics(folder, to) == max(0, steps - to)
        assert [r.step for r in read_metrics(folder)] == list(range(min(to, steps)))
        again = MetricsLog(folder)
        for step in range(to, to + 3):
            again.append(record(step))
        again.close()
        assert [r.step for r in read_metrics(folder)] == [*range(min(to, steps)), *range(to, to + 3)]


def test_there_is_nothing_to_cut_off_a_log_that_does_not_exist(tmp_path: Path) -> None:
    assert rewind_metrics(tmp_path, 5) == 0


def test_a_main_worker_of_before_writes_nothing_into_the_log_after_it(tmp_path: Path) -> None:
    old = MetricsLog(tmp_path)
    for step in range(5):
        old.append(record(step))
    old.flush()
    assert rewind_metrics(tmp_path, 2) == 3
    old.append(record(5))
    old.close()
    assert [r.step for r in read_metrics(tmp_path)] == [0, 1]
