"""Turn the flags about checkpoints and recovery into a plan, and the environment that EDL's users know."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elastane.checkpoint.target import open_target
from elastane.cli.parse import parse_checkpoint_every
from elastane.model.errors import ConfigError
from elastane.model.records import CheckpointPlan, Recovery

APPROXIMATE_VARIABLE = "USE_APPX_RECOVERY"
"""EDL's switch for its approximate recovery."""
_APPROXIMATE = "approximate"


def make_checkpoint_plan(every: str | None, url: str, keep: int) -> CheckpointPlan:
    """Return how often and where a job takes checkpoints.

    Raises:
        ConfigError: the interval cannot be read, or there is no such place.
    """
    plan = CheckpointPlan(url=url, keep=keep)
    if every is not None:
        steps, seconds = parse_checkpoint_every(every)
        plan = CheckpointPlan(every_steps=steps, every_s=seconds, url=url, keep=keep)
    if not url:
        return plan
    open_target(url)  # a protocol without a plug-in is told of before a job is made
    local = "://" not in url
    return CheckpointPlan(
        every_steps=plan.every_steps,
        every_s=plan.every_s,
        url=str(Path(url).absolute()) if local else url,
        keep=keep,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryChoice:
    """Hold what becomes of a job that has lost a worker, and what is to be said about it, if anything."""

    recovery: Recovery
    remark: str = ""


def resolve_recovery(flag: str | None, environment: Mapping[str, str]) -> RecoveryChoice:
    """Return how a job recovers: by the flag, else by EDL's environment variable, else exactly.

    Approximate recovery redoes a step with fewer samples. With a fixed number of virtual workers the exact
    one costs no more, so that is done instead.

    Raises:
        ConfigError: the flag is unknown.
    """
    asked = flag
    if asked is None and environment.get(APPROXIMATE_VARIABLE, "0") not in ("", "0", "false", "False"):
        asked = _APPROXIMATE
    if asked == _APPROXIMATE:
        source = (
            "--recovery approximate"
            if flag
            else f"{APPROXIMATE_VARIABLE}={environment[APPROXIMATE_VARIABLE]}"
        )
        remark = f"{source}: recovery is exact, which with a fixed number of virtual workers costs no more"
        return RecoveryChoice(recovery=Recovery.EXACT, remark=remark)
    try:
        return RecoveryChoice(recovery=Recovery(asked or Recovery.EXACT))
    except ValueError:
        known = ", ".join([*Recovery, _APPROXIMATE])
        raise ConfigError(f"--recovery {asked} is unknown; there are: {known}") from None
