"""Draw the plots of a report with matplotlib, as PNG files for light and dark pages alike."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing

from benchmarks.figures import Chart, Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # Okabe and Ito: told apart by everybody
PEERS = {"torchrun": COLOURS[1], "torchft": COLOURS[2]}
PIXELS_PER_INCH = 120
SHORTEST_S = 1e-3
"""Where the scale of durations begins: less than a fifth of the shortest step that is measured."""


def draw_chart(chart: Chart, path: Path) -> None:
    """Draw the points of every series, and the marks as vertical lines."""
    drawing, axes = _begin(3.6)
    for series, colour in zip(chart.series, COLOURS, strict=False):
        across, up = zip(*series.points, strict=True)
        axes.plot(across, up, ".", color=colour, label=series.label, markersize=5)
    top = max(y for series in chart.series for _, y in series.points) * 1.25
    for x, text in chart.marks:
        axes.axvline(x, color="0.45", linewidth=1, linestyle="--")
        axes.text(x, top, f" {text}", color="0.35", va="top", ha="left", fontsize=8)
    axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label, ylim=(0, top))
    axes.legend(frameon=False, loc="upper left")
    _finish(drawing, axes, path)


def draw_durations(title: str, figures: Sequence[Figure], path: Path) -> None:
    """Draw medians in seconds as points on a logarithmic scale, with lines from the smallest to the largest.

    What is shorter than the scale's beginning, noise below zero included, is drawn there.
    """
    drawing, axes = _begin(0.9 + 0.3 * len(figures))
    labels = [f"{figure.figure} ({figure.workload})" for figure in figures]
    for place, figure in enumerate(figures):
        low, middle, high = (max(v, SHORTEST_S) for v in (figure.min, figure.value, figure.max))
        colour = next((shade for peer, shade in PEERS.items() if peer in figure.figure), COLOURS[0])
        axes.hlines(place, low, high, color=colour, linewidth=2, alpha=0.4)
        axes.plot(middle, place, "o", color=colour, markersize=6)
    axes.set_yticks(range(len(figures)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.set(title=title, xlabel="seconds, logarithmic", xscale="log")
    axes.set_xlim(left=SHORTEST_S)
    _finish(drawing, axes, path)


def _begin(height_inches: float) -> tuple[Drawing, Axes]:
    # Without pyplot, which keeps drawings of its own and looks for a screen.
    drawing = Drawing(figsize=(8, height_inches), layout="constrained")
    FigureCanvasAgg(drawing)
    return drawing, drawing.add_subplot()


def _finish(drawing: Drawing, axes: Axes, path: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=PIXELS_PER_INCH, facecolor="white")
