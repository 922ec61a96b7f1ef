"""The look that all figures share: axes, colours, names at the ends of lines.

Batch size runs on a log₂ axis, learning rate on log₁₀. A batch size has the same colour and marker
in every figure. A limit or an ideal is a thin grey line with its name on it.
"""

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

GREY = "#767676"
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"  # Okabe and Ito 2008
MARKERS = "os^DvP*X<>hpd"


class Picture(Figure):
    """A figure that shows itself once in a notebook, with an alternative text.

    It is unknown to pyplot, so that nothing stays open and nothing is shown twice.
    """

    def __init__(self, alt: str, *, width: float = 6.4, height: float = 3.8) -> None:
        super().__init__(figsize=(width, height), dpi=100, layout="constrained")
        self.alt = alt

    def png(self) -> bytes:
        """Return the picture as a PNG file."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
        data = {
            "image/png": base64.b64encode(self.png()).decode("ascii"),
            "text/plain": f"Figure: {self.alt}",
        }
        return data, {"image/png": {"alt": self.alt}}


def batch_colour(batch_size: int) -> Any:  # noqa: ANN401
    """Return the colour of a batch size: dark for small, light for large."""
    return mpl.colormaps["viridis"](min(0.9, 0.09 * math.log2(batch_size)))


def batch_marker(batch_size: int) -> str:
    """Return the marker of a batch size."""
    return MARKERS[round(math.log2(batch_size)) % len(MARKERS)]


def new_axes(
    figure: Picture, x: str, y: str, *, rows_columns: tuple[int, int, int] = (1, 1, 1)
) -> Axes:
    """Add axes with these labels; (rows, columns, place) as for ``Figure.add_subplot``."""
    axes = figure.add_subplot(*rows_columns)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return axes


def batch_axis(axes: Axes, batch_sizes: Sequence[int]) -> None:
    """Make x a log₂ axis with a tick at each batch size, or at each number of pieces."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(batch_sizes), [f"{size:,}" for size in batch_sizes])
    axes.xaxis.set_minor_locator(NullLocator())


def plain_log_axis(axes: Axes) -> None:
    """Make y a logarithmic axis with plain numbers on it."""
    axes.set_yscale("log")
    plain_log_ticks(axes.yaxis)


def plain_log_ticks(axis: Axis) -> None:
    """Put ticks at 1, 2 and 5 times each power of ten of a logarithmic axis."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plain_numbers(axis)
    axis.set_minor_locator(NullLocator())


def log_x_axis(axes: Axes, *, labels: int = 8) -> None:
    """Make x logarithmic, with plain numbers, and with no more of them than there is room for.

    To be called when all is drawn, since the ticks depend on how far the axis reaches.
    """
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    plain_log_ticks(axes.xaxis)
    if 3 * math.log10(high / low) > labels:
        axes.xaxis.set_major_locator(LogLocator())


def plain_numbers(axis: Axis) -> None:
    """Write 20,000 for a tick, and not a power of ten."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def key(axes: Axes, text: str) -> None:
    """Write above the axes, small and grey, what the lines without a name are."""
    axes.set_title(text, loc="left", color=GREY, fontsize="small")


def mark_lost(axes: Axes, lost: Sequence[tuple[float, dict[str, Any]]]) -> float:
    """Put a cross for each (rate, look) of a run that was lost, above all that is drawn so far.

    Crosses at one rate stand one above the other. Returns which share of the height is below them.
    """
    low, high = axes.get_ylim()
    row = 0.07 * (high - low)
    rows: dict[float, int] = {}
    for rate, look in lost:
        rows[rate] = rows.get(rate, 0) + 1
        axes.plot(rate, high + (rows[rate] - 0.5) * row, "x", ms=8, mew=2, **look)
    top = high + max(rows.values(), default=0) * row
    axes.set_ylim(low, top)
    axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= high])
    return (high - low) / (top - low)


def explain_marks(axes: Axes, *, ring: str = "", lost: bool = False) -> None:
    """Write above the axes what a ring means, and a cross if there is one."""
    marks = []
    if ring:
        marks.append(_mark("o", ring, ms=10, mfc="none", mew=1.5))
    if lost:
        marks.append(_mark("x", "lost", ms=8, mew=2))
    if marks:
        corner = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
        axes.legend(handles=marks, ncols=2, frameon=False, fontsize="small", **corner)


def _mark(marker: str, label: str, **look: Any) -> Line2D:  # noqa: ANN401
    return Line2D([], [], ls="", marker=marker, label=label, color=GREY, mec=GREY, **look)


def name_ends(axes: Axes, ends: Sequence[tuple[float, float, str, Any]]) -> None:
    """Write each line's name beside its last point, no two on top of each other."""
    low, high = axes.get_ylim()
    apart = 0.065 * (high - low)
    position = -math.inf
    for x, y, name, colour in sorted(ends, key=lambda end: end[1]):
        position = max(y, position + apart)
        axes.annotate(
            name,
            (x, y),
            xytext=(1.02, (position - low) / (high - low)),
            textcoords="axes fraction",
            va="center",
            color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "alpha": 0.4, "lw": 0.8},
        )
