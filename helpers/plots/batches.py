"""The figures of a batch: who is in it, its noise, its speed."""

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib import patches
from torch import Tensor

from helpers.plots.look import (
    BLUE,
    GREY,
    Picture,
    batch_axis,
    batch_colour,
    batch_marker,
    new_axes,
    plain_log_axis,
)


def noise_against_batch(batch_sizes: Sequence[int], noise: Sequence[float]) -> Picture:
    """Draw the noise of a gradient (a share of its length) against batch size, beside 1/√B."""
    figure = Picture(
        "log-log plot of the noise of the gradient, as a share of the gradient's length, against "
        "batch size; the measured points lie along a grey line of slope minus one half."
    )
    axes = new_axes(figure, "batch size (sequences)", "noise ÷ length of the gradient")
    ideal = [noise[0] * (batch_sizes[0] / size) ** 0.5 for size in batch_sizes]
    axes.plot(batch_sizes, ideal, color=GREY, lw=1)
    axes.plot(batch_sizes, noise, "o", color=BLUE, ms=8)
    batch_axis(axes, batch_sizes)
    plain_log_axis(axes)
    middle = len(batch_sizes) // 2
    axes.annotate(
        "1/√B",
        (batch_sizes[middle], ideal[middle]),
        (10, 10),
        textcoords="offset points",
        color=GREY,
    )
    return figure


def noise_and_speed(
    batch_sizes: Sequence[int], noise: Sequence[float], speed: Sequence[float], *, chosen: int
) -> Picture:
    """Draw noise and examples per second against batch size, with one batch size picked out."""
    figure = Picture(
        "two plots against batch size: the noise of the gradient falls, and the examples per "
        "second rise and then level off; the chosen batch size is marked in both.",
        width=8,
        height=3.4,
    )
    position = list(batch_sizes).index(chosen)
    panels = (("noise ÷ length of the gradient", noise), ("examples per second", speed))
    for column, (label, values) in enumerate(panels, start=1):
        axes = new_axes(figure, "batch size (sequences)", label, rows_columns=(1, 2, column))
        axes.plot(batch_sizes, values, "o-", color=GREY, lw=1, ms=4)
        axes.plot(
            chosen,
            values[position],
            batch_marker(chosen),
            color=batch_colour(chosen),
            ms=13,
            mec="black",
        )
        batch_axis(axes, batch_sizes)
        plain_log_axis(axes)
        axes.annotate(
            f"{values[position]:,.0f}" if values[position] >= 100 else f"{values[position]:.2g}",
            (chosen, values[position]),
            (0, 12),
            textcoords="offset points",
            ha="center",
        )
        axes.margins(y=0.2)
    return figure


def throughput(batch_sizes: Sequence[int], speed: Sequence[float]) -> Picture:
    """Draw examples per second against batch size, beside perfect scaling from the first."""
    figure = Picture(
        "log-log plot of examples per second against batch size; the points rise more slowly than "
        "the grey line of perfect scaling and level off."
    )
    axes = new_axes(figure, "batch size (sequences)", "examples per second")
    axes.plot(batch_sizes, speed, "o-", color=BLUE, ms=8)
    batch_axis(axes, batch_sizes)
    plain_log_axis(axes)
    top = axes.get_ylim()[1]
    axes.plot(
        batch_sizes, [speed[0] * size / batch_sizes[0] for size in batch_sizes], color=GREY, lw=1
    )
    axes.set_ylim(top=1.6 * top)
    axes.annotate(
        "twice the batch,\ntwice the speed",
        (batch_sizes[1], speed[0] * batch_sizes[1] / batch_sizes[0]),
        (-12, 14),
        textcoords="offset points",
        ha="right",
        color=GREY,
    )
    return figure


def epoch_orders(epochs: Sequence[Sequence[Tensor]]) -> Picture:
    """Draw who shares a batch with whom: a row for each epoch, a box for each batch."""
    figure = Picture(
        f"the examples in the order of {len(epochs)} epochs, one row an epoch, boxed into batches; "
        f"every number is in every row once, in other company each time.",
        width=8,
        height=0.6 + 0.6 * len(epochs),
    )
    axes = figure.add_subplot()
    count = sum(len(batch) for batch in epochs[0])
    colours = mpl.colormaps["viridis"]
    for row, batches in enumerate(epochs):
        start = 0
        for batch in batches:
            axes.add_patch(
                patches.Rectangle(
                    (start + 0.06, row - 0.42),
                    len(batch) - 0.12,
                    0.84,
                    fill=False,
                    ec="black",
                    lw=1.5,
                )
            )
            for offset, example in enumerate(batch.tolist()):
                share = example / max(count - 1, 1)
                axes.add_patch(
                    patches.Rectangle(
                        (start + offset + 0.12, row - 0.34), 0.76, 0.68, color=colours(share)
                    )
                )
                axes.text(
                    start + offset + 0.5,
                    row,
                    example,
                    ha="center",
                    va="center",
                    color="white" if share < 0.55 else "black",
                )
            start += len(batch)
    axes.set_xlim(0, count)
    axes.set_ylim(len(epochs) - 0.5, -0.5)
    axes.set_yticks(range(len(epochs)), [f"epoch {number}" for number in range(1, len(epochs) + 1)])
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure
