"""What a worker's end means."""

from pathlib import Path

import pytest

from elastane.agent.last_words import explain_exit, name_signal, read_last_words


@pytest.mark.parametrize(
    ("code", "name", "meaning"),
    [
        (0, "", "ended by itself"),
        (3, "", "ended with an error (exit code 3)"),
        (75, "", "stopped by itself, since the others go on without it"),
        (-9, "SIGKILL", "killed from outside, or by the system because memory ran out"),
        (-11, "SIGSEGV", "crashed in native code: invalid memory access"),
        (-1, "SIGHUP", "ended by SIGHUP"),
        (-60, "signal 60", "ended by signal 60"),
    ],
)
def test_exit_codes_are_told_in_words(code: int, name: str, meaning: str) -> None:
    assert (name_signal(code), explain_exit(code)) == (name, meaning)


def test_the_last_traceback_of_a_log_is_found(tmp_path: Path) -> None:
    log = tmp_path / "w1.log"
    first = "Traceback (most recent call last):\nValueError: early\n"
    last = 'Traceback (most recent call last):\n  File "t.py", line 1\nKeyError: late'
    log.write_text(f"hello\n{first}more\n{last}\n\n")
    assert read_last_words(log) == last


def test_without_a_traceback_the_last_lines_are_told(tmp_path: Path) -> None:
    log = tmp_path / "w1.log"
    log.write_text("".join(f"line {i}\n" for i in range(2000)))
    assert read_last_words(log) == "\n".join(f"line {i}" for i in range(1988, 2000))


def test_bytes_that_are_no_text_and_very_long_lines_do_no_harm(tmp_path: Path) -> None:
    log = tmp_path / "w1.log"
    log.write_bytes(b"\xff" * 100_000)
    assert len(read_last_words(log)) == 2000


def test_a_missing_or_empty_log_has_nothing_to_say(tmp_path: Path) -> None:
    assert read_last_words(tmp_path / "w1.log") == ""
    (tmp_path / "w1.log").touch()
    assert read_last_words(tmp_path / "w1.log") == ""
