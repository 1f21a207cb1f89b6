"""The console entry point: which commands there are, and how every error ends in one clear message.

Commands return their exit code. Nothing that loads torch is imported here: `elastane ps` answers at once.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import typer

from elastane.cli import act, agent, chaos, checkpoints, doctor, joins, look, run, stop
from elastane.cli.exits import Exit, compute_exit, describe_error
from elastane.cli.groups import with_groups
from elastane.cli.output import Output
from elastane.cli.torchrun import translate_torchrun
from elastane.model.errors import ElastaneError

USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
"""What the parser raises for all it cannot read; where it is defined differs between typer's versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyCommand:
    """Describe a command whose module loads much (numpy, matplotlib): imported only when it is called."""

    module: str
    function: str
    help: str


HEAVY_COMMANDS = {
    "autoscale": HeavyCommand(
        module="elastane.cli.autoscale",
        function="autoscale",
        help="Show what a job's autoscaler measured, predicts and decided, and draw it.",
    ),
    "sim": HeavyCommand(
        module="elastane.cli.sim",
        function="sim",
        help="Replay a trace of jobs under several scheduling policies and compare them.",
    ),
    "profile": HeavyCommand(
        module="elastane.cli.profile",
        function="command",
        help="Measure a script's speed, efficiency and memory with each number of workers.",
    ),
}
"""Those whose module is not part of this installation are left out."""


def make_app(called: str | None = None) -> typer.Typer:
    """Return the parser with all commands; of the heavy ones only the `called` one is real."""
    app = typer.Typer(
        name="elastane",
        help="Elastic PyTorch training that never stops and never changes a bit of the result.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command()(with_groups(run.run))
    app.command()(with_groups(look.ps))
    app.command()(with_groups(look.show))
    app.command()(with_groups(joins.joins))
    app.command()(with_groups(look.events))
    app.command()(with_groups(look.logs))
    # "-1" must reach the argument and not be taken for a flag.
    app.command(context_settings={"ignore_unknown_options": True})(with_groups(act.scale))
    app.command()(with_groups(act.migrate))
    app.command()(with_groups(act.evict))
    app.command()(with_groups(stop.stop))
    app.command()(with_groups(run.resume))
    app.command()(with_groups(checkpoints.checkpoints))
    app.command("agent")(with_groups(agent.serve_node))
    app.command()(with_groups(chaos.chaos))
    app.command()(doctor.doctor)
    for name, heavy in HEAVY_COMMANDS.items():
        if importlib.util.find_spec(heavy.module) is not None:
            app.command(name, help=heavy.help)(_load(heavy) if called == name else _stand_in)
    return app


def _load(heavy: HeavyCommand) -> Callable[..., object]:
    function: Callable[..., object] = getattr(importlib.import_module(heavy.module), heavy.function)
    return function


def _stand_in() -> None:
    """Be listed in the help; never called."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with `arguments` (those of the process if None) and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    out = Output(as_json="--json" in given[: given.index("--") if "--" in given else None])
    try:
        app = make_app(given[0] if given else None)
        result = app(args=_translate(out, given), prog_name="elastane", standalone_mode=False)
    except USAGE_ERROR as error:
        return _fail_usage(out, error, given)
    except (typer.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except (ElastaneError, OSError) as error:
        code = compute_exit(error)
        out.fail(code, describe_error(error))
        return code
    return result if isinstance(result, int) else Exit.DONE


def _translate(out: Output, given: list[str]) -> list[str]:
    if given[:1] != ["run"]:
        return given
    translation = translate_torchrun(given[1:])
    for note in translation.notes:
        out.remark(note)
    return ["run", *translation.arguments]


def _fail_usage(out: Output, error: Exception, given: list[str]) -> int:
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    text = text.replace("Value error, ", "")  # how the parser begins what was not said by itself
    if type(error).__name__ == "NoArgsIsHelpError":
        out.remark(text, style="")
        return Exit.USAGE
    if given[:1] == ["run"] and text.startswith("No such option"):
        text = text.rstrip(".") + ". Arguments for the script come after `--`."
    out.fail(Exit.USAGE, text)
    return Exit.USAGE


if __name__ == "__main__":
    sys.exit(main())
