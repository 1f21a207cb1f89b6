"""The event log: lines of several writers, whole or not at all."""

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from elastane.observe.events import EVENTS_FILE, Event, EventLog, read_events, summarise


def test_events_read_back_in_the_order_they_were_written(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "w1")
    log.append("leader", worker="w1", reason="the job had no leader")
    log.append("joined", worker="w1", step=0)
    log.close()
    log.close()
    first, second = read_events(tmp_path)
    assert first.at_s <= second.at_s
    assert summarise(first) == {
        "at_s": first.at_s,
        "kind": "leader",
        "source": "w1",
        "worker": "w1",
        "reason": "the job had no leader",
    }
    assert (second.kind, second.fields) == ("joined", {"worker": "w1", "step": 0})
    assert (tmp_path / EVENTS_FILE).stat().st_mode & 0o777 == 0o600


def test_a_job_without_a_log_has_no_events_and_a_torn_line_is_none(tmp_path: Path) -> None:
    assert list(read_events(tmp_path)) == []
    (tmp_path / EVENTS_FILE).write_bytes(
        b'{"at_s":1.0,"kind":"left","source":"w1","fields":{}}\n{"at_s":2.0,"ki'
    )
    assert [event.kind for event in read_events(tmp_path)] == ["left"]


def test_lines_of_several_writers_never_mix(tmp_path: Path) -> None:
    def write(source: str) -> None:
        log = EventLog(tmp_path, source)
        for number in range(200):
            log.append("step", number=number, padding="x" * 300)
        log.close()

    threads = [threading.Thread(target=write, args=(f"w{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = list(read_events(tmp_path))
    for source in ("w0", "w1", "w2", "w3"):
        assert [event.fields["number"] for event in events if event.source == source] == list(range(200))


def test_a_folder_that_is_not_there_cannot_be_logged_to(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        EventLog(tmp_path / "none", "w1")


def test_a_full_disk_costs_events_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write: Callable[[int, bytes], int] = os.write

    def refuse(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = EventLog(tmp_path, "w1")
    monkeypatch.setattr(os, "write", refuse)
    with caplog.at_level(logging.WARNING, logger="elastane.observe.events"):
        log.append("joined", step=1)
    assert caplog.messages == [
        f"event joined {{'step': 1}} could not be logged: [Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}"
    ]
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:9]))
    log.append("joined", step=2)
    monkeypatch.setattr(os, "write", write)
    log.append("joined", step=3)
    log.append("joined", step=4)
    torn, *whole = (tmp_path / EVENTS_FILE).read_bytes().splitlines()
    assert len(torn) == 9
    assert [msgspec.json.decode(line, type=Event).fields for line in whole] == [{"step": 3}, {"step": 4}]
