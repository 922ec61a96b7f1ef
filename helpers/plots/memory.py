"""The figures of memory: by instant, by batch, by setting."""

from collections.abc import Mapping, Sequence
from typing import Any

from helpers.footprint import COLOURS, PARTS, Breakdown
from helpers.plots.look import BLUE, GREY, ORANGE, Picture, new_axes

HATCHES = ("", "//", "..", "\\\\", "xx")  # of the parts of memory
STACKED = ("parameters", "states", "gradients", "activations", "temporary")  # from the bottom


def memory_timeline(timeline: Sequence[tuple[str, Mapping[str, int]]]) -> Picture:
    """Draw the bytes at each instant of a step, stacked by part, from ``Measurement.timeline``."""
    figure = Picture(
        "stacked areas of the memory at each instant of one training step: activations rise in the "
        "forward pass and fall in the backward pass, gradients come meanwhile, and parameters and "
        "optimizer states are there all the time.",
        height=4.2,
    )
    axes = new_axes(figure, "instant of the step (tensor operations)", "memory (MiB)")
    layers = [[parts[part] / 2**20 for _, parts in timeline] for part in STACKED]
    drawn = axes.stackplot(range(len(timeline)), layers, labels=STACKED, lw=0.4, edgecolor="white")
    for area, part in zip(drawn, STACKED):
        _mark_part(area, part)
    top = 1.12 * max(sum(parts.values()) for _, parts in timeline) / 2**20
    axes.set_ylim(0, top)
    axes.margins(x=0)
    moments = [moment for moment, _ in timeline]
    for moment in dict.fromkeys(moments):
        start = moments.index(moment)
        axes.axvline(start, color=GREY, lw=1)
        axes.annotate(f" {moment}", (start, 0.98 * top), va="top", color=GREY)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)
    return figure


def _mark_part(area: Any, part: str) -> None:  # noqa: ANN401
    position = PARTS.index(part)
    area.set_facecolor(COLOURS[position])
    area.set_hatch(HATCHES[position])
    area.set_edgecolor("white")


def memory_against_batch(
    batch_sizes: Sequence[int],
    measured: Sequence[int],
    estimated: Sequence[int],
    *,
    fixed: float,
    slope: float,
) -> Picture:
    """Draw the peak of memory in bytes against batch size, with the fitted line and its start.

    Crosses are what ``estimate`` gives. A dashed grey line goes through the origin and the largest
    batch: what "proportional" would mean.
    """
    figure = Picture(
        "peak of memory against batch size: the measured points lie on a straight line that starts "
        "above zero, at the fixed part, and the estimates lie on the points."
    )
    axes = new_axes(figure, "batch size (sequences)", "peak of memory (MiB)")
    last = batch_sizes[-1]
    axes.plot([0, last], [0, measured[-1] / 2**20], "--", color=GREY, lw=1)
    axes.plot([0, last], [fixed / 2**20, (fixed + slope * last) / 2**20], color=BLUE, lw=1.5)
    axes.plot(batch_sizes, [size / 2**20 for size in measured], "o", color=BLUE, ms=8)
    axes.plot(batch_sizes, [size / 2**20 for size in estimated], "x", color=ORANGE, ms=8, mew=2)
    axes.annotate(
        f"measured: {fixed / 2**20:.1f} MiB + {slope / 2**20:.2f} MiB × batch",
        (0.45, 0.35), xycoords="axes fraction", color=BLUE,
    )  # fmt: skip
    axes.annotate("× estimated", (0.45, 0.27), xycoords="axes fraction", color=ORANGE)
    axes.annotate("dashed: proportional", (0.45, 0.19), xycoords="axes fraction", color=GREY)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    return figure


def memory_bars(breakdowns: Mapping[str, Breakdown], *, card: float | None = None) -> Picture:
    """Draw a bar of the fullest moment of each breakdown, by part; ``card`` is a line, in GB.

    GB are the 10⁹ bytes of a data sheet; the axis is in GiB, 2³⁰ bytes, or MiB for a small model.
    """
    peaks = [breakdown.peak for breakdown in breakdowns.values()]
    unit, size = ("MiB", 2**20) if max(peaks) < 2**29 and card is None else ("GiB", 2**30)
    figure = Picture(
        f"bars of memory by part for {', '.join(breakdowns)}"
        + (f", beside the line of a card of {card:g} GB." if card else "."),
        height=1.4 + 0.42 * len(breakdowns),
    )
    axes = new_axes(figure, f"memory at the fullest moment ({unit})", "")
    for row, breakdown in enumerate(breakdowns.values()):
        left = 0.0
        for part in STACKED:
            width = breakdown.at_peak[part] / size
            (bar,) = axes.barh(row, width, left=left, height=0.7, label=part if row == 0 else "")
            _mark_part(bar, part)
            left += width
        axes.annotate(
            f"{left:,.1f}", (left, row), (4, 0), textcoords="offset points", va="center",
            color=GREY, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )  # fmt: skip
    axes.set_yticks(range(len(breakdowns)), list(breakdowns))
    axes.set_ylabel("setting")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * max([*peaks, (card or 0) * 1e9]) / size)  # room for the last number
    if card:
        axes.axvline(card * 1e9 / 2**30, color="black", lw=1.5, zorder=0)
        axes.annotate(
            f"card of {card:g} GB", (card * 1e9 / 2**30, 1.01), xycoords=("data", "axes fraction"),
            ha="center", va="bottom", fontsize="small",
        )  # fmt: skip
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    return figure
