"""Worker processes on this machine: started warm or cold, noticed when they end, nothing of them left."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from agent_world import Trial, is_gone, nothing_left_behind, wait_for

from elastane.agent.children import is_subreaper
from elastane.agent.launcher import Exited, PoolReported, Started

pytestmark = pytest.mark.process

Begin = Callable[..., Trial]

SLEEPER = "import time\nprint('up')\ntime.sleep(600)\n"


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Return a function that makes a launcher for a script; it is closed, and nothing may be left."""
    trials: list[Trial] = []

    def make(source: str, *, warm: bool = True, **changes: object) -> Trial:
        trials.append(Trial.begin(tmp_path, source, warm=warm, **changes))
        return trials[-1]

    with nothing_left_behind():
        yield make
        for trial in trials:
            trial.launcher.close()
            trial.launcher.close()


def zygote_pid() -> int:
    """Return the number of the preloaded parent; workers forked from it are younger."""
    wait_for("the preloaded parent", find_zygotes)
    return min(find_zygotes(), key=lambda child: child.create_time()).pid


def find_zygotes() -> list[psutil.Process]:
    return [c for c in psutil.Process().children() if "elastane.agent.zygote" in c.cmdline()]


both = pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])


@both
def test_a_worker_runs_its_script_with_its_context_and_its_exit_code_is_told(
    begin: Begin, warm: bool
) -> None:
    trial = begin(
        "import os, sys\n"
        "from elastane.worker.context import current_context\n"
        "c = current_context(os.environ)\n"
        "print(c.worker, c.arguments, os.environ['COLOUR'], os.environ['OMP_NUM_THREADS'])\n"
        "print('an error', file=sys.stderr)\n"
        "sys.exit(7)\n",
        warm=warm,
        intra_op_threads=3,
    )
    trial.start("w1", "--lr", "1", environment={"COLOUR": "red"})
    started = trial.started("w1")
    assert started == Started(worker="w1", pid=started.pid, warm=warm)
    assert trial.exit_code("w1") == 7
    assert trial.output("w1") == "w1 ('--lr', '1') red 3\nan error\n"


@both
def test_exit_handlers_finally_blocks_and_threads_run_to_their_end(begin: Begin, warm: bool) -> None:
    trial = begin(
        "import atexit, threading, time\n"
        "atexit.register(print, 'atexit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\n"
        "try:\n    raise SystemExit('a reason')\nfinally:\n    print('finally')\n",
        warm=warm,
    )
    trial.start("w1")
    assert trial.exit_code("w1") == 1
    assert trial.output("w1").splitlines() == ["finally", "a reason", "thread", "atexit"]


@both
def test_an_exception_is_shown_and_told_by_the_code(begin: Begin, warm: bool) -> None:
    trial = begin("def broken():\n    raise ValueError('no')\nbroken()\n", warm=warm)
    trial.start("w1")
    assert trial.exit_code("w1") == 1
    assert trial.output("w1").endswith("ValueError: no\n")


@both
def test_a_worker_does_not_pass_its_context_on_to_its_own_children(begin: Begin, warm: bool) -> None:
    trial = begin("import os\nprint('ELASTANE_WORKER' in os.environ)\n", warm=warm)
    trial.start("w1")
    assert trial.exit_code("w1") == 0
    assert trial.output("w1") == "False\n"


@both
def test_a_kill_loses_no_output_and_its_signal_is_told(begin: Begin, warm: bool) -> None:
    trial = begin(
        "import time\nprint('no newline', end='')\nprint(' up', end='')\ntime.sleep(600)\n", warm=warm
    )
    trial.start("w1")
    trial.started("w1")
    trial.wait_output("w1", "up")
    trial.launcher.kill("w1")
    assert trial.exit_code("w1") == -9
    assert trial.output("w1") == "no newline up"


@both
def test_a_worker_has_default_signal_handlers_and_a_session_of_its_own(begin: Begin, warm: bool) -> None:
    trial = begin(
        "import os, signal, sys\n"
        "names = ('SIGINT', 'SIGTERM', 'SIGUSR1', 'SIGCHLD')\n"
        "print([repr(signal.getsignal(getattr(signal, n))) for n in names])\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.getsid(0) == os.getpgid(0) == os.getpid())\n"
        "print(sys.stdin.read() == '', len(os.listdir('/proc/self/fd')))\n",
        warm=warm,
    )
    trial.start("w1")
    assert trial.exit_code("w1") == 0
    handlers, session, descriptors = trial.output("w1").splitlines()
    assert handlers.count("Handlers.SIG_DFL") == 3
    assert "default_int_handler" in handlers
    assert session == "set() True"
    assert descriptors == "True 4"  # input, output, error, and the listing itself


@both
def test_nothing_of_a_killed_workers_tree_is_left(begin: Begin, warm: bool) -> None:
    trial = begin(
        "import os, time\n"
        "for _ in range(2):\n"
        "    if os.fork() == 0:\n"
        "        os.fork()\n"
        "        os.write(1, b'child %d\\n' % os.getpid())\n"  # at once: two write here
        "        time.sleep(600)\n"
        "time.sleep(600)\n",
        warm=warm,
    )
    trial.start("w1")
    trial.started("w1")
    wait_for("four children", lambda: trial.output("w1").count("\n") == 4)
    children = [int(line.split()[1]) for line in trial.output("w1").splitlines()]
    trial.launcher.kill("w1")
    assert trial.exit_code("w1") == -9
    wait_for("its tree to be gone", lambda: trial.launcher.poll() == [] and all(map(is_gone, children)))


def test_the_tree_of_a_worker_that_ends_by_itself_is_gone_too(begin: Begin) -> None:
    trial = begin("import os, time\nchild = os.fork()\nif child == 0:\n    time.sleep(600)\nprint(child)\n")
    trial.start("w1")
    assert trial.exit_code("w1") == 0
    child = int(trial.output("w1"))
    wait_for("its child to be gone", lambda: trial.launcher.poll() == [] and is_gone(child))


def test_a_frozen_worker_can_be_killed(begin: Begin) -> None:
    trial = begin(SLEEPER)
    trial.start("w1")
    trial.started("w1")
    trial.launcher.signal("w1", signal.SIGSTOP)
    trial.launcher.signal("w1", signal.SIGTERM)
    trial.launcher.kill("w1")
    assert trial.exit_code("w1") in (-signal.SIGKILL, -signal.SIGTERM)


def test_signals_to_workers_that_are_gone_do_nothing(begin: Begin) -> None:
    trial = begin("")
    trial.start("w1")
    assert trial.exit_code("w1") == 0
    trial.launcher.signal("w1", signal.SIGTERM)
    trial.launcher.kill("w1")
    assert trial.launcher.poll() == []


def test_workers_outlive_their_parent_and_a_new_one_starts_the_next(begin: Begin) -> None:
    trial = begin(SLEEPER)
    trial.start("w1")
    trial.started("w1")
    trial.wait_output("w1", "up")
    parent = zygote_pid()
    os.kill(parent, signal.SIGKILL)
    wait_for("the parent to be gone", lambda: trial.launcher.poll() is None or is_gone(parent))
    trial.start("w2")
    assert trial.started("w2").warm
    trial.launcher.kill("w1")
    assert trial.exit_code("w1") == -9


def test_requests_that_a_dead_parent_did_not_answer_are_asked_of_the_next(begin: Begin) -> None:
    trial = begin(SLEEPER, preload=("json",))
    parent = zygote_pid()
    os.kill(parent, signal.SIGSTOP)
    for name in ("w1", "w2"):
        trial.start(name)
    os.kill(parent, signal.SIGKILL)
    assert [trial.started(name).warm for name in ("w1", "w2")] == [True, True]


def test_parents_that_die_again_and_again_are_given_up_for_cold_starts(begin: Begin) -> None:
    broken = begin("print('cold')\n", preload=("ctypes", "agent_deadly"))
    broken.start("w1")
    assert not broken.started("w1").warm
    assert broken.exit_code("w1") == 0
    broken.start("w2")
    assert not broken.started("w2").warm
    assert broken.exit_code("w2") == 0
    died = [n.fields for n in broken.seen if isinstance(n, PoolReported)]
    assert died == [
        {"code": 3, "asked_again": 1, "given_up": False},
        {"code": 3, "asked_again": 1, "given_up": True},
    ]


def test_a_request_can_be_taken_back_before_the_parent_is_ready(begin: Begin) -> None:
    trial = begin(SLEEPER)
    os.kill(zygote_pid(), signal.SIGSTOP)
    trial.start("w1")
    trial.launcher.signal("w1", signal.SIGTERM)
    assert trial.failure("w1") == "taken back"
    assert trial.output("w1") == ""


def test_a_request_that_hangs_in_the_parent_is_ended_with_it(begin: Begin) -> None:
    trial = begin(SLEEPER)
    trial.start("w1")
    trial.started("w1")
    parent = zygote_pid()
    os.kill(parent, signal.SIGSTOP)
    trial.start("w2")
    trial.launcher.signal("w2", signal.SIGTERM)
    trial.launcher.kill("w2")
    assert trial.failure("w2") == "taken back"
    assert is_gone(parent)
    trial.launcher.kill("w1")
    assert trial.exit_code("w1") == -9


def test_a_log_that_cannot_be_opened_is_a_failed_start(begin: Begin, tmp_path: Path) -> None:
    for warm in (True, False):
        trial = begin(SLEEPER, warm=warm)
        log = tmp_path / "logs" / "w1.log"
        log.mkdir(parents=True, exist_ok=True)
        trial.start("w1")
        assert "Is a directory" in trial.failure("w1")


def test_a_request_too_large_for_one_frame_is_a_failed_start(begin: Begin) -> None:
    trial = begin(SLEEPER)
    trial.start("w1", "x" * 100_000)
    assert "bytes; 65536 are possible" in trial.failure("w1")


def test_a_parent_that_cannot_be_replaced_is_done_without(begin: Begin, tmp_path: Path) -> None:
    trial = begin("print('cold')\n")
    parent = zygote_pid()
    (tmp_path / "logs" / "zygote.log").unlink()
    (tmp_path / "logs" / "zygote.log").mkdir()
    os.kill(parent, signal.SIGKILL)
    trial.start("w1")
    assert not trial.started("w1").warm
    assert trial.exit_code("w1") == 0
    kinds = [notice.kind for notice in trial.seen if isinstance(notice, PoolReported)]
    assert kinds == ["preloaded_parent_died", "preloaded_parent_failed"]


def test_a_launcher_for_a_folder_that_cannot_be_written_leaves_nothing_behind(
    begin: Begin, tmp_path: Path
) -> None:
    (tmp_path / "logs").write_text("")
    with pytest.raises(OSError, match="File exists"):
        begin(SLEEPER)
    assert not is_subreaper()


def test_each_forked_worker_draws_random_numbers_of_its_own(begin: Begin) -> None:
    trial = begin(
        "import random\nimport numpy\nimport torch\n"
        "print(torch.rand(1).item(), random.random(), numpy.random.rand())\n",
        preload=("torch",),
    )
    for name in ("w1", "w2"):
        trial.start(name)
    assert [trial.exit_code(name) for name in ("w1", "w2")] == [0, 0]
    drawn = {number for name in ("w1", "w2") for number in trial.output(name).split()}
    assert len(drawn) == 6


def test_many_workers_at_once_each_end_with_their_own_code(begin: Begin) -> None:
    trial = begin("import sys\nsys.exit(int(sys.argv[1]))\n")
    for code in range(20):
        trial.start(f"w{code}", str(code))
    assert [trial.exit_code(f"w{code}") for code in range(20)] == list(range(20))
    assert not [n for n in trial.seen if isinstance(n, Exited)]


def test_the_process_adopts_orphans_only_while_a_launcher_is_open(begin: Begin) -> None:
    assert not is_subreaper()
    first, second = begin(SLEEPER, warm=False), begin(SLEEPER, warm=False)
    first.launcher.close()
    assert is_subreaper()
    second.launcher.close()
    assert not is_subreaper()


def test_what_the_parent_preloaded_is_told(begin: Begin) -> None:
    trial = begin("import json, agent_world_that_is_not_there\n", preload=("xml.dom", "nonsense_package"))
    trial.start("w1")
    trial.exit_code("w1")
    (report,) = [n.fields for n in trial.seen if isinstance(n, PoolReported)]
    took_s = report.pop("took_s")
    assert isinstance(took_s, float)
    assert report == {
        "modules": 3,
        "failed": {"nonsense_package": "ModuleNotFoundError: No module named 'nonsense_package'"},
        "threads": 1,
        "cuda": False,
    }
