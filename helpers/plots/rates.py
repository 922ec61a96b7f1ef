"""The figures of the learning rate: which is best, and which is too much."""

import math
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes

from helpers.plots.look import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Picture,
    batch_axis,
    batch_colour,
    batch_marker,
    explain_marks,
    key,
    log_x_axis,
    mark_lost,
    name_ends,
    new_axes,
)
from helpers.schedule import scale_lr
from helpers.sweep import Best, SweepResult

MARGIN = 0.08  # so that a ring at the end of a line is not cut by the frame


def loss_against_rate(rates: Sequence[float], losses: Mapping[int, Sequence[float]]) -> Picture:
    """Draw final held-out loss against learning rate, a line for each batch size.

    A run that was lost (NaN) is a cross at the upper edge; the best rate of a batch has a ring.
    A legend says so.
    """
    figure = Picture(
        f"final held-out loss against learning rate on a logarithmic axis, one line for each of "
        f"the batch sizes {', '.join(map(str, losses))}; a ring marks the best rate of each."
    )
    axes = new_axes(figure, "learning rate", "held-out loss (nats a token)")
    axes.margins(MARGIN)
    axes.set_xscale("log")
    ends, lost = [], []
    for batch_size, values in losses.items():
        colour, marker = batch_colour(batch_size), batch_marker(batch_size)
        axes.plot(rates, values, color=colour, marker=marker, ms=5, lw=1.8)
        finite = [(loss, rate) for loss, rate in zip(values, rates) if math.isfinite(loss)]
        if finite:
            loss, rate = min(finite)
            axes.plot(rate, loss, "o", ms=14, mfc="none", mec=colour, mew=1.5)
            ends.append(
                (*max((rate, loss) for loss, rate in finite), f"batch {batch_size}", colour)
            )
        lost += [(x, {"color": colour}) for x, y in zip(rates, values) if not math.isfinite(y)]
    mark_lost(axes, lost)
    explain_marks(axes, ring="best rate", lost=bool(lost))
    log_x_axis(axes)
    name_ends(axes, ends)
    return figure


def rate_landscape(
    result: SweepResult, *, chosen: int | None = None, reference: int | None = None
) -> Picture:
    """Draw held-out loss against learning rate, a line for each batch size of a sweep.

    A ring marks a measured best rate. A run that was lost, since it is not finite or ended worse
    than it began, is a cross at the upper edge. With a ``chosen`` batch size the others are faint,
    and grey lines show where the linear and the square-root rule put its best rate, from that of
    ``reference``.
    """
    sizes = ", ".join(map(str, result.batch_sizes))
    figure = Picture(
        f"final held-out loss against learning rate on a logarithmic axis for {result.optimizer}, "
        f"one line for each of the batch sizes {sizes}; rings mark the best rates and crosses at "
        f"the upper edge the runs that were lost."
    )
    axes = new_axes(figure, "learning rate", "held-out loss (nats a token)")
    axes.margins(MARGIN)
    axes.set_xscale("log")
    first = result.held_out[result.batch_sizes[0]][..., 0].nanmean().item()
    ends, lost = [], []
    for size in result.batch_sizes:
        strong = chosen in (None, size)
        colour, marker = batch_colour(size), batch_marker(size)
        look = {"color": colour, "alpha": 1.0 if strong else 0.25}
        losses = result.mean_loss(size).tolist()
        kept = [(x, y) for x, y in zip(result.learning_rates, losses) if y < first]
        lost += [(x, look) for x, y in zip(result.learning_rates, losses) if not y < first]
        if not kept:
            continue
        axes.plot(*zip(*kept), marker=marker, ms=5, lw=1.8, **look)
        best = result.best(size)
        axes.plot(
            best.rate, best.loss, "o", ms=13, mfc="none", mec=colour, mew=1.6, alpha=look["alpha"]
        )
        ends.append((*kept[-1], f"batch {size:,}", colour))
    below = mark_lost(axes, lost)
    explain_marks(axes, ring="best rate", lost=bool(lost))
    if chosen is not None and reference is not None:
        _mark_rules(axes, result.best(reference).rate, reference, chosen, below)
    log_x_axis(axes)
    name_ends(axes, ends)
    return figure


def _mark_rules(axes: Axes, rate: float, reference: int, chosen: int, below: float) -> None:
    """Draw where both rules put the best rate, with their names below the lost runs."""
    low, high = axes.get_xlim()
    for rule, name, height in (("linear", "linear rule", 0.97), ("sqrt", "√ rule", 0.87)):
        predicted = scale_lr(rate, from_batch=reference, to_batch=chosen, rule=rule)
        shown = min(max(predicted, low), high)
        axes.axvline(shown, color=GREY, lw=1)
        beyond = " →" if predicted > high else ""
        axes.annotate(
            f"{name}: {predicted:.2g}{beyond} ",
            (shown, height * below),
            xycoords=("data", "axes fraction"),
            ha="right",
            va="top",
            color=GREY,
            fontsize="small",
        )
    axes.set_xlim(low, high)


def best_rate_against_batch(bests: Mapping[str, Sequence[Best]]) -> Picture:
    """Draw the best learning rate against batch size for a few optimizers, beside both rules.

    A bar spans 95 % of all resamples of the seeds: see ``Best``. Grey lines start at the
    first point of each and rise with the batch and with its square root.
    """
    figure = Picture(
        f"best learning rate against batch size on two logarithmic axes, with bars over the seeds, "
        f"for {' and '.join(bests)}; grey lines show the linear and the square-root rule."
    )
    axes = new_axes(figure, "batch size (sequences)", "best learning rate")
    sizes = [best.batch_size for best in next(iter(bests.values()))]
    axes.set_yscale("log")
    batch_axis(axes, sizes)
    ends = []
    for (name, series), colour, marker in zip(bests.items(), (BLUE, ORANGE, GREEN), "os^"):
        rates = [best.rate for best in series]
        spans = [
            [b.rate - min(b.low, b.rate) for b in series],
            [max(b.high, b.rate) - b.rate for b in series],
        ]
        axes.errorbar(sizes, rates, spans, color=colour, marker=marker, ms=7, lw=1.5, capsize=3)
        axes.annotate(
            name,
            (sizes[-1], rates[-1]),
            (8, 0),
            textcoords="offset points",
            va="center",
            color=colour,
        )
        for power, style in ((1.0, "-"), (0.5, "--")):
            axes.plot(
                sizes,
                [rates[0] * (size / sizes[0]) ** power for size in sizes],
                style,
                color=GREY,
                lw=1,
            )
        ends.append(max(best.high for best in series))
    axes.set_ylim(top=8 * max(ends))
    axes.margins(x=0.18)
    key(axes, "grey: rate ∝ batch (solid), ∝ √batch (dashed)")
    return figure


def loss_by_warmup(
    results: Mapping[float, SweepResult],
    batch_size: int,
    *,
    chosen: tuple[float, float] | None = None,
) -> Picture:
    """Draw final held-out loss against learning rate at one batch size, a line for each warmup.

    A run that was lost, since it is not finite or ended worse than it began, is a cross at the
    upper edge. ``chosen`` is the (warmup, rate) of a run to mark with a ring.
    """
    figure = Picture(
        f"final held-out loss against learning rate on a logarithmic axis at batch size "
        f"{batch_size}, one line for each warmup of {', '.join(map(str, results))} updates; "
        "crosses at the upper edge are runs that were lost."
    )
    axes = new_axes(figure, "learning rate after warmup", "held-out loss (nats a token)")
    axes.margins(MARGIN)
    axes.set_xscale("log")
    ends, lost = [], []
    looks = zip(results.items(), mpl.colormaps["viridis"](_evenly(len(results))), "os^DvP")
    for (warmup, result), colour, marker in looks:
        first = result.held_out[batch_size][..., 0].nanmean().item()
        points = list(zip(result.learning_rates, result.mean_loss(batch_size).tolist()))
        kept = [(x, y) for x, y in points if y < first]
        lost += [(x, {"color": colour}) for x, y in points if not y < first]
        if not kept:
            continue
        axes.plot(*zip(*kept), marker=marker, color=colour, ms=6, lw=1.8)
        ends.append((*kept[-1], f"warmup {warmup}", colour))
        ring = [(x, y) for x, y in kept if chosen == (warmup, x)]
        if ring:
            axes.plot(*zip(*ring), "o", ms=14, mfc="none", mec=GREY, mew=2)
    mark_lost(axes, lost)
    explain_marks(axes, ring="chosen" if chosen else "", lost=bool(lost))
    log_x_axis(axes)
    name_ends(axes, ends)
    return figure


def _evenly(count: int) -> list[float]:
    return [0.85 * place / max(1, count - 1) for place in range(count)]
