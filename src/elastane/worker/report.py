"""What the members tell each other with every step, beside gradients: a few bytes that ride along.

Everybody computes the same record of the step from the same reports, so anybody can write it down.
"""

from collections.abc import Iterable, Sequence

import msgspec

from elastane.core.checkpoints import ShareNote
from elastane.model.errors import DeterminismError


class VrankReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Tell what one virtual worker did in a step."""

    vrank: int
    samples: int
    values: dict[str, float]
    """What the script logged."""


class StepReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Tell what one worker did in a step."""

    vranks: list[VrankReport]
    optimizer_calls: list[int]
    """Calls of each optimizer's step in the first virtual worker's part of the loop body."""
    scheduler_calls: list[int]
    compute_s: float
    """Own compute time of all its virtual workers: forward until the last gradient, without waiting."""
    checksum: int | None = None
    """Of the state before the step, when it is due to be compared."""
    checkpoint: ShareNote | None = None
    """What it has to say about checkpoints, mostly nothing."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StepReport)


def pack_report(report: StepReport) -> bytes:
    """Encode a report for the other members."""
    return _encoder.encode(report)


def unpack_reports(payloads: Iterable[bytes]) -> list[StepReport]:
    """Decode all members' reports, in topology order."""
    return [_decoder.decode(payload) for payload in payloads]


def count_samples(reports: Sequence[StepReport], planned: int, step: int) -> int:
    """Return the samples that were trained; raise DeterminismError unless so many were planned."""
    trained = sum(vrank.samples for report in reports for vrank in report.vranks)
    if trained != planned:
        raise DeterminismError(
            f"{planned} samples were planned for step {step}, but the workers trained {trained}: they do "
            "not agree on the data; every worker needs the same data set"
        )
    return trained


def compute_seconds_per_vrank(reports: Sequence[StepReport]) -> list[float]:
    """Return each member's own compute time per virtual worker, in topology order.

    Empty for a step whose virtual workers had unequal parts, as the last of an epoch may: its times say
    nothing of the workers. A difference of one sample is what a batch policy makes in every step.
    """
    samples = [vrank.samples for report in reports for vrank in report.vranks]
    if max(samples) - min(samples) > 1 or not min(samples):
        return []
    return [report.compute_s / len(report.vranks) for report in reports]


def average_values(reports: Sequence[StepReport]) -> dict[str, float]:
    """Average every logged value over the virtual workers that logged it, weighted by their samples.

    The sums run in the order of virtual workers, whoever trained them, so the bits are always the same.
    """
    sums: dict[str, float] = {}
    weights: dict[str, int] = {}
    for report in reports:
        for vrank in report.vranks:
            for name, value in vrank.values.items():
                sums[name] = sums.get(name, 0.0) + value * vrank.samples
                weights[name] = weights.get(name, 0) + vrank.samples
    return {name: sums[name] / weights[name] for name in sums}
