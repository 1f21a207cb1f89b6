"""A process is told from a later one of the same number."""

import os
import subprocess
import sys

from elastane.agent.identity import is_alive, is_known_dead, read_birth, read_boot, read_own_birth


def test_a_living_process_is_recognised() -> None:
    born = read_own_birth()
    assert born == read_birth(os.getpid())
    assert born.startswith(f"{read_boot()}:")
    assert is_alive(os.getpid(), born)
    assert not is_known_dead(os.getpid(), born)


def test_another_process_of_the_number_is_not_the_one_that_was_meant() -> None:
    boot, _, ticks = read_own_birth().partition(":")
    for other in (f"{boot}:{int(ticks) + 1}", ""):
        assert not is_alive(os.getpid(), other)
    assert is_known_dead(os.getpid(), f"{boot}:{int(ticks) + 1}")


def test_of_another_machine_or_an_earlier_boot_nothing_is_known() -> None:
    assert not is_alive(os.getpid(), "another-boot:5")
    assert not is_known_dead(os.getpid(), "another-boot:5")


def test_what_has_ended_is_dead_even_before_it_is_collected() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        born = read_birth(process.pid)
        assert is_alive(process.pid, born)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert read_birth(process.pid) == ""
        assert is_known_dead(process.pid, born)
