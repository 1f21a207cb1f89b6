"""Render a comparison as one HTML page that needs nothing beside it: styles and pictures are in the page.

The page is made for somebody who did not run the simulation: it says first what came out, then shows it, then
says what was read, assumed and left out. Text from traces is escaped by the template engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from elastane.sim.cluster_text import describe_cluster
from elastane.sim.compare import MOST_JOBS_RECORDED
from elastane.sim.readers.history import compute_history
from elastane.sim.report.comparison import Comparison
from elastane.sim.report.figures import compute_tenants
from elastane.sim.report.human import say_change, say_duration, say_number, say_share
from elastane.sim.report.style import colour_of
from elastane.sim.report.wording import say_details, say_headline, say_overhead

MOST_TENANTS = 12
_NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:%|(?:d|h|min|s)\b))")

CAPTIONS: dict[str, tuple[str, str]] = {
    "jct": (
        "How long jobs take",
        "Read across: at one hour, the height of a line is the share of jobs that are done within an hour "
        "of their "
        "submission. The higher a line, the better.",
    ),
    "changes": (
        "Who gains, who loses",
        "Every job's completion time compared with the same job under {baseline}.",
    ),
    "sizes": (
        "Small and large jobs",
        "A policy may serve small jobs at the cost of large ones. Each dot is the mean over the jobs of one "
        "size; "
        "further left is better.",
    ),
    "queue": ("The queue", "Jobs that hold no device, whether new or preempted."),
    "devices": (
        "Are the devices busy, and with use?",
        "Pale: devices held by jobs. Full colour: the same weighted by GPU efficiency, that is speed per "
        "device "
        "relative to the best that the job reaches at any size. Pale without colour is held but little used.",
    ),
    "allocation": (
        "Who held what",
        "One row for each device, one colour for each job, empty where a device is idle. Devices are "
        "numbered "
        "by the report; which of several equal devices a job holds makes no difference.",
    ),
    "sweep": ("When one thing varies", "Mean completion time as one thing varies and all else stays."),
    "regimes": (
        "Where it pays off",
        "Mean completion time against {baseline} at every point; green is better, orange is worse.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Hold one picture with its heading and caption."""

    name: str
    title: str
    caption: str
    svg: Markup


def render_html(comparison: Comparison, pictures: Mapping[str, str]) -> str:
    """Return the page; `pictures` are SVG elements by the names of CAPTIONS."""
    environment = Environment(
        loader=PackageLoader("elastane.sim", "report"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": say_duration,
        "share": say_share,
        "number": say_number,
        "breakable": _breakable,
        "unbroken": _unbroken,
    }
    environment.globals["change"] = say_change
    policies = [run.policy for run in comparison.runs]
    return environment.get_template("report.html.j2").render(
        comparison=comparison,
        headline=say_headline(comparison),
        details=say_details(comparison),
        overhead=say_overhead(comparison.overhead),
        cluster=describe_cluster(comparison.cluster),
        pictures=_picture_list(pictures, comparison.baseline.policy),
        colours={policy: colour_of(place) for place, policy in enumerate(policies)},
        drawn="allocation" in pictures,
        most_drawn=MOST_JOBS_RECORDED,
        history=compute_history(comparison.trace.rows),
        tenants=compute_tenants(tuple(run.result.jobs for run in comparison.runs), MOST_TENANTS),
        longest_s=max(run.result.metrics.jct_mean_s for run in comparison.runs),
    )


def _breakable(name: str) -> str:
    """Let a policy's name break after the signs between its options (zero-width spaces)."""
    return name.replace(":", ":\u200b").replace(",", ",\u200b").replace("/", "/\u200b")


def _unbroken(sentence: str) -> str:
    """Keep numbers and their units on one line (no-break spaces)."""
    return _NUMBER_AND_UNIT.sub("\u00a0", sentence)


def _picture_list(pictures: Mapping[str, str], baseline: str) -> list[Picture]:
    return [
        Picture(
            name=name,
            title=CAPTIONS[name][0],
            caption=CAPTIONS[name][1].format(baseline=baseline),
            # Our own drawing: matplotlib escapes the texts in it.
            svg=Markup(_without_fixed_size(svg)),
        )
        for name, svg in pictures.items()
    ]


def _without_fixed_size(svg: str) -> str:
    """Return the SVG without width and height, so that it fits the page; the viewBox keeps its shape."""
    head, rest = svg.split(">", 1)
    kept = [part for part in head.split(" ") if not part.startswith(("width=", "height="))]
    return " ".join(kept) + ">" + rest
