"""The figures of the critical batch: updates against examples, and the noise scale."""

import math
from collections.abc import Mapping, Sequence

from helpers.noise import CriticalBatch, NoiseScale
from helpers.plots.look import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Picture,
    batch_axis,
    batch_colour,
    batch_marker,
    key,
    name_ends,
    new_axes,
    plain_log_axis,
    plain_log_ticks,
)


def steps_to_target(
    batch_sizes: Sequence[int], reached: Mapping[str, tuple[Sequence[float], CriticalBatch]]
) -> Picture:
    """Draw the updates to a target loss against batch size, measured and fitted.

    ``reached`` has for the name of each target the updates of every batch size, NaN where it was
    not reached, and the fit. Grey lines fall as 1/B: twice the batch, half the updates. A vertical
    tick on each curve is at its critical batch.
    """
    figure = Picture(
        f"log-log plot of the updates to a target loss against batch size, for {', '.join(reached)}"
        "; the points leave a grey line of perfect scaling, bend, and level off."
    )
    axes = new_axes(figure, "batch size (sequences)", "updates to the target")
    ends = []
    fine = [
        batch_sizes[0] * (batch_sizes[-1] / batch_sizes[0]) ** (part / 60) for part in range(61)
    ]
    for (name, (steps, fit)), colour, marker in zip(reached.items(), (BLUE, ORANGE, GREEN), "os^"):
        perfect = [fit.min_examples / size for size in fine]
        axes.plot(fine, perfect, color=GREY, lw=1)
        axes.plot(fine, [fit.steps(size) for size in fine], color=colour, lw=1.5, alpha=0.6)
        axes.plot(batch_sizes, steps, marker, color=colour, ms=8)
        axes.plot(fit.size, fit.steps(fit.size), "|", color=colour, ms=26, mew=2)
        ends.append((batch_sizes[-1], fit.steps(batch_sizes[-1]), name, colour))
    lowest = min(fit.min_steps for _, fit in reached.values())
    plain_log_axis(axes)
    axes.set_ylim(bottom=0.5 * lowest)
    batch_axis(axes, batch_sizes)
    axes.margins(x=0.16)
    for x, y, name, colour in ends:
        axes.annotate(name, (x, y), (8, 0), textcoords="offset points", va="center", color=colour)
    key(axes, "grey: perfect scaling, ∝ 1/B; upright tick: the critical batch")
    return figure


def trade_off(
    batch_sizes: Sequence[int],
    steps: Sequence[float],
    fit: CriticalBatch,
    *,
    chosen: int | None = None,
) -> Picture:
    """Draw updates against examples to a target loss, each as a multiple of the least, by batch.

    The grey hyperbola is (S/S_min - 1)(E/E_min - 1) = 1 (McCandlish et al. 2018, arXiv 1812.06162,
    eq. 2.11). With a ``chosen`` batch size the others are faint.
    """
    figure = Picture(
        "log-log plot of the updates to a target loss against the examples to it, each as a "
        "multiple of the least; the batch sizes lie along a hyperbola, small ones with few "
        "examples and many updates, large ones with few updates and many examples."
    )
    axes = new_axes(figure, "examples ÷ least examples", "updates ÷ least updates")
    curve = [1 + 2.0 ** (part / 8) for part in range(-48, 49)]
    axes.plot(curve, [1 + 1 / (x - 1) for x in curve], color=GREY, lw=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.annotate(
        "the critical batch", (2, 2), (-9, -14), textcoords="offset points", ha="right", color=GREY
    )
    axes.plot(2, 2, "+", color=GREY, ms=14, mew=1.5)
    for size, count in zip(batch_sizes, steps):
        if math.isnan(count):
            continue
        at = (size * count / fit.min_examples, count / fit.min_steps)
        alpha = 1.0 if chosen in (None, size) else 0.3
        look = {"color": batch_colour(size), "alpha": alpha}
        axes.plot(*at, batch_marker(size), ms=9, **look)
        axes.annotate(
            f"batch {size:,}", at, (5, 6), textcoords="offset points", rotation=35, **look
        )
    axes.set_xlim(0.5, 100)
    axes.set_ylim(0.5, 100)
    for axis in (axes.xaxis, axes.yaxis):
        plain_log_ticks(axis)
    return figure


def noise_and_critical_batch(
    noise: Mapping[float, NoiseScale], critical: Mapping[float, CriticalBatch]
) -> Picture:
    """Draw the noise scale and the critical batch, each by the held-out loss where it was measured.

    Bars span two standard errors. The loss falls from left to right, as it does in training.
    """
    figure = Picture(
        "noise scale and critical batch size on a logarithmic axis against held-out loss, which "
        "falls from left to right as in training; both rise, and bars show two standard errors."
    )
    axes = new_axes(figure, "held-out loss (nats a token)", "examples")
    series = (
        ("noise scale of the gradient", {x: (n.simple, n.low, n.high) for x, n in noise.items()}),
        ("critical batch, fitted", {x: (c.size, c.low, c.high) for x, c in critical.items()}),
    )
    for (name, points), colour, marker in zip(series, (BLUE, ORANGE), "os"):
        losses = sorted(points, reverse=True)
        middles = [points[x][0] for x in losses]
        spans = [
            [points[x][0] - points[x][1] for x in losses],
            [points[x][2] - points[x][0] for x in losses],
        ]
        axes.errorbar(
            losses, middles, spans, color=colour, marker=marker, ms=7, lw=1.5, capsize=3, label=name
        )
    plain_log_axis(axes)
    axes.invert_xaxis()
    axes.legend(frameon=False, loc="upper left")
    return figure


def branches(losses: Mapping[str, Mapping[int, float]], *, tolerance: float) -> Picture:
    """Draw how much more loss a branch with k times the batch ends at, a line for each start.

    ``losses`` has for the name of each start the final loss of each k, of which 1 is the run as it
    was. A grey line is at ``tolerance``: below it a larger batch is nearly free.
    """
    figure = Picture(
        "loss added by a branch against how many times larger its batch is, a line for each moment "
        "of training where the branches start; later starts bear larger batches."
    )
    axes = new_axes(figure, "batch of the branch ÷ batch of the run", "loss added (nats a token)")
    ends = []
    looks = zip(losses.items(), (BLUE, ORANGE, GREEN, GREY), "os^D")
    for (name, by_factor), colour, marker in looks:
        factors = sorted(by_factor)
        added = [by_factor[factor] - by_factor[1] for factor in factors]
        axes.plot(factors, added, color=colour, marker=marker, ms=7, lw=1.5)
        ends.append((factors[-1], added[-1], name, colour))
    axes.axhline(tolerance, color=GREY, lw=1)
    batch_axis(axes, factors)
    axes.annotate(
        "nearly free below", (factors[0], tolerance), (0, 4), textcoords="offset points", color=GREY
    )
    name_ends(axes, ends)
    return figure
