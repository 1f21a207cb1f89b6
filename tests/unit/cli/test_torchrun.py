"""torchrun's flags: translated, left out with a reason, or refused with what to write instead."""

import shlex

import pytest
from torch.distributed.run import get_args_parser

from elastane.cli.torchrun import COUNTS, NOT_NEEDED, REFUSED, SHORT, SWITCHES, translate_torchrun
from elastane.model.errors import ConfigError

STORE = "workers find each other through the job's store; no address or port is needed"


@pytest.mark.parametrize(
    ("line", "translated", "notes"),
    [
        ("train.py --workers 4 -- --lr 0.1", "train.py --workers 4 -- --lr 0.1", ()),
        ("--nproc-per-node 4 train.py", "train.py --workers 4", ()),
        ("--nproc_per_node=4 train.py", "train.py --workers 4", ()),
        ("--standalone --nnodes=1 --nproc-per-node=2 train.py", "train.py --workers 2", ()),
        ("--nnodes 1:1 train.py --name=x", "train.py --name=x", ()),
        ("--node-rank 0 train.py", "train.py", ()),
        ("train.py -- --nproc-per-node 4 --rdzv-id 5", "train.py -- --nproc-per-node 4 --rdzv-id 5", ()),
        (
            "--rdzv-backend c10d --rdzv_endpoint=host:29400 --max-restarts 3 train.py",
            "train.py",
            (
                f"not needed: --rdzv-backend, --rdzv_endpoint ({STORE})",
                "not needed: --max-restarts (a worker that dies is replaced while the others go on; "
                "the job itself never starts again)",
            ),
        ),
        (
            "-t 3 --run-path train.py",
            "train.py",
            (
                "not needed: -t (each worker's output is kept: see `elastane logs`)",
                "not needed: --run-path (a script always runs by its path)",
            ),
        ),
    ],
)
def test_flags_are_translated(line: str, translated: str, notes: tuple[str, ...]) -> None:
    translation = translate_torchrun(shlex.split(line))
    assert (shlex.join(translation.arguments), translation.notes) == (translated, notes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--nnodes 2 --nproc-per-node 4 train.py",
            "`--nnodes 2` is torchrun's; `elastane run` uses this machine, "
            "on which `--workers 8` asks for as many workers",
        ),
        (
            "--nnodes=1:4 --nproc-per-node 2 train.py",
            "`--nnodes 1:4` is torchrun's; `elastane run` uses this machine, "
            "on which `--workers 2:8` asks for as many workers",
        ),
        (
            "--nnodes many t.py",
            "`--nnodes many` is no number of nodes; leave it out and ask with `--workers`",
        ),
        ("--nnodes 4:1 t.py", "`--nnodes 4:1` is no number of nodes; leave it out and ask with `--workers`"),
        (
            "--node-rank 1 t.py",
            "`--node-rank 1` is torchrun's; nodes have no rank here, one `elastane run` uses this machine",
        ),
        (
            "--nproc-per-node gpu t.py",
            "`--nproc-per-node gpu` is torchrun's; say a number, for example `--workers 4`",
        ),
        ("-m package.train", "`-m` is torchrun's; here a script is given by the path of its file"),
        (
            "--no-python ./train",
            "`--no-python` is torchrun's; here the script must be a Python file that uses elastane",
        ),
        (
            "--shutdown-timeout 5 t.py",
            "`--shutdown-timeout` is torchrun's; here `--grace SECONDS` says how long workers have to leave",
        ),
        (
            "--nproc-per-node 4 --workers 2 t.py",
            "`--nproc-per-node 4` and `--workers` say the same; give one of them",
        ),
        (
            "t.py --rdzv-id",
            "`--rdzv-id` (one of torchrun's flags) has no value; `--workers` is all that is needed here",
        ),
    ],
)
def test_flags_that_ask_for_something_else_are_refused(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        translate_torchrun(shlex.split(line))
    assert str(caught.value) == message


def test_every_flag_of_torchrun_is_known() -> None:
    options = {option for action in get_args_parser()._actions for option in action.option_strings}
    unknown = {
        option
        for option in options - {"-h", "--help"}
        if SHORT.get(option, option.removeprefix("--").replace("_", "-"))
        not in {*NOT_NEEDED, *SWITCHES, *REFUSED, *COUNTS}
    }
    assert unknown == set()


def test_flags_take_values_as_torchrun_does() -> None:
    takes_value = {
        option.removeprefix("--")
        for action in get_args_parser()._actions
        for option in action.option_strings
        if option.startswith("--") and "_" not in option and action.nargs != 0
    }
    assert takes_value - {*REFUSED} == {*NOT_NEEDED, *COUNTS}
