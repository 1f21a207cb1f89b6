"""Bad files: what is left out is counted with line numbers, and what is hopeless is refused with advice."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from elastane.model.errors import ConfigError
from elastane.sim.readers import Selection, read_trace
from elastane.sim.readers.rows import EXAMPLES_PER_REASON, LeftOut, LeftOutCounter

HEADER = "job_id,submit_time,devices,duration\n"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "trace.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_faulty_rows_are_left_out_and_counted_with_their_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        HEADER + "a,0,1,10\n\nb,5,1,-10\nc,5,,10\nd,5,2\ne,7,x,10\na,9,1,10\nf,-3,1,10\ng,8,1,10\n",
    )
    trace = read_trace(path)
    assert [row.job_id for row in trace.rows] == ["a", "g"]
    assert trace.left_out == (
        LeftOut(reason="duration is negative", count=1, examples=("line 4 ('-10')",)),
        LeftOut(reason="devices is missing", count=1, examples=("line 5",)),
        LeftOut(reason="the line does not have 4 cells", count=1, examples=("line 6 ('3 cells')",)),
        LeftOut(reason="devices is not a number", count=1, examples=("line 7 ('x')",)),
        LeftOut(reason="job id occurs twice (the first one is kept)", count=1, examples=("line 8 ('a')",)),
        LeftOut(reason="submit_time is negative", count=1, examples=("line 9 ('-3')",)),
    )


def test_only_the_first_few_examples_of_a_reason_are_kept() -> None:
    counter = LeftOutCounter()
    for line in range(1000):
        counter.add("too short", f"line {line}")
    (entry,) = counter.summary()
    assert (entry.count, len(entry.examples), counter.total()) == (1000, EXAMPLES_PER_REASON, 1000)


def test_unsorted_rows_are_sorted_with_a_note_and_keep_their_lines(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, HEADER + "a,100,1,10\nb,50,1,10\nc,60,1,10\n"))
    assert [(row.job_id, row.submit_s, row.line) for row in trace.rows] == [
        ("b", 0, 3),
        ("c", 10, 4),
        ("a", 50, 2),
    ]
    assert trace.notes == ("1 row(s) were not in order of submission; sorted",)


def test_columns_without_meaning_are_named(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "job_id,submit_time,devices,duration,mood\na,0,1,10,good\n"))
    assert trace.notes == ("column(s) ignored: mood",)


def test_a_window_of_days_keeps_what_was_submitted_in_it(tmp_path: Path) -> None:
    rows = "".join(f"{day},{day * 86400},1,10\n" for day in range(10))
    trace = read_trace(write(tmp_path, HEADER + rows), selection=Selection(from_day=2, to_day=4))
    assert [(row.job_id, row.submit_s) for row in trace.rows] == [("2", 0.0), ("3", 86400.0)]
    assert trace.notes == ("days 2 to 4 of the trace: 2 of 10 jobs",)


def test_days_count_from_the_earliest_submission_wherever_it_stands(tmp_path: Path) -> None:
    rows = "".join(f"{day},{day * 86400},1,10\n" for day in (5, 3, 0, 2, 1, 4))
    trace = read_trace(write(tmp_path, HEADER + rows), selection=Selection(from_day=2, to_day=4))
    assert [row.job_id for row in trace.rows] == ["2", "3"]
    assert trace.notes == (
        "3 row(s) were not in order of submission; sorted",
        "days 2 to 4 of the trace: 2 of 6 jobs",
    )


def test_rows_outside_the_window_do_not_count_towards_the_limit(tmp_path: Path) -> None:
    rows = "".join(f"{day},{day * 86400},1,10\n" for day in range(100))
    chosen = Selection(from_day=50, to_day=55, most_jobs=5)
    assert len(read_trace(write(tmp_path, HEADER + rows), selection=chosen).rows) == 5


def test_an_empty_window_says_what_the_trace_covers(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "a,0,1,10\nb,172800,1,10\n")
    with pytest.raises(ConfigError, match=r"in days 5 to 6; the trace covers days 0 to 2\.0"):
        read_trace(path, selection=Selection(from_day=5, to_day=6))


def test_one_tenant_can_be_chosen_and_a_wrong_name_lists_the_busiest(tmp_path: Path) -> None:
    path = write(tmp_path, "user,submit_time,devices,duration\nada,0,1,10\nbob,1,1,10\nada,2,1,10\n")
    trace = read_trace(path, selection=Selection(tenant="ada"))
    assert (len(trace.rows), trace.notes) == (2, ("only tenant 'ada'; 1 job(s) of others left aside",))
    with pytest.raises(
        ConfigError, match="no job belongs to tenant 'eve'; the busiest tenants are 'ada', 'bob'"
    ):
        read_trace(path, selection=Selection(tenant="eve"))


def test_more_jobs_than_allowed_stop_the_reading_and_say_what_is_needed(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "".join(f"{i},{i},1,10\n" for i in range(50)))
    with pytest.raises(ConfigError, match=r"more than 20 jobs \(reached at line 22\).*--days FROM:TO"):
        read_trace(path, selection=Selection(most_jobs=20))


def test_numbers_may_come_with_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xef\xbb\xbf" + (HEADER + "a,0,1,10\n").replace("\n", "\r\n").encode())
    assert [row.job_id for row in read_trace(path).rows] == ["a"]


def hopeless_files() -> dict[str, tuple[bytes, str]]:
    packed = gzip.compress((HEADER + "".join(f"{i},{i},1,10\n" for i in range(5000))).encode())
    return {
        "empty": (b"", "the file is empty"),
        "blank": (b"\n\n  \n", "the file is empty"),
        "header only": (HEADER.encode(), "it has a header and no rows"),
        "cut gzip": (packed[: len(packed) // 2], "the gzip archive is cut off after line"),
        "damaged gzip": (packed[:40] + b"\0" * 40 + packed[80:], "the gzip archive is"),
        "zip": (b"PK\x03\x04rest", "a zip archive: unpack it first"),
        "parquet": (b"PAR1rest", "a Parquet file: export it as CSV"),
        "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer"),
        "latin1": (HEADER.encode() + b"m\xfcller,0,1,10\n", "bytes that are not UTF-8 text"),
        "binary": (HEADER.encode() + b"\0\0\0\n", "is not text"),
        "unknown columns": (b"alpha,beta\n1,2\n", "no known trace format has this first line"),
        "twice": (b"submit_time,devices,duration,devices\n0,1,5,1\n", "names column(s) devices twice"),
        "no good row": (HEADER.encode() + b"a,0,1,-1\n", "1 x duration is negative (line 2 ('-1'))"),
    }


@pytest.mark.parametrize("kind", hopeless_files())
def test_hopeless_files_are_refused_with_a_reason(tmp_path: Path, kind: str) -> None:
    content, reason = hopeless_files()[kind]
    with pytest.raises(ConfigError) as caught:
        read_trace(write(tmp_path, content))
    assert reason in str(caught.value)


def test_missing_files_and_folders_are_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_trace(tmp_path / "gone.csv")
    with pytest.raises(ConfigError, match="it is a folder"):
        read_trace(tmp_path)


def test_a_quote_that_never_closes_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + '"a,0,1,10\n' + "b,1,1,10\n" * 20_000)
    with pytest.raises(ConfigError, match="cannot be split into cells"):
        read_trace(path)
