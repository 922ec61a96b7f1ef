"""The figures of a schedule: rate and batch over the updates of a run."""

import itertools
from collections.abc import Mapping, Sequence

from matplotlib.ticker import MaxNLocator

from helpers.plan import RunPlan
from helpers.plots.look import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Picture,
    key,
    name_ends,
    new_axes,
    plain_numbers,
)
from helpers.schedule import batch_ramp


def run_timeline(plan: RunPlan, factors: Sequence[float]) -> Picture:
    """Draw the learning rate over the updates of a run, with the ends of its epochs."""
    figure = Picture(
        f"the factor on the learning rate over {plan.total_steps} updates, with a line at the end "
        f"of each epoch and the warmup shaded.",
        width=7,
        height=3,
    )
    axes = new_axes(figure, "update", "factor on the learning rate")
    axes.axvspan(0, min(plan.warmup_steps, plan.total_steps), color=ORANGE, alpha=0.15, lw=0)
    axes.step(range(1, plan.total_steps + 1), factors, where="mid", color=BLUE)
    ends = range(plan.steps_per_epoch, plan.total_steps + 1, plan.steps_per_epoch)
    for end in ends[:: max(1, len(ends) // 20)]:
        axes.axvline(end, color=GREY, lw=1, ls=":")
    axes.set_ylim(0, 1.08)
    axes.set_xlim(0, plan.total_steps + 1)
    key(axes, "dotted: an epoch ends; shaded: warmup")
    return figure


def rate_and_batch(runs: Mapping[str, tuple[RunPlan, Sequence[float]]]) -> Picture:
    """Draw learning rate and batch of named runs over their updates, and over what they read.

    A run is its plan and the learning rate of each update. What is read are tokens where all plans
    know theirs, and examples otherwise. Raises ``ValueError`` for a rate too many or too few.
    """
    in_tokens = all(plan.tokens is not None for plan, _ in runs.values())
    read = "tokens" if in_tokens else "examples"
    figure = Picture(
        f"four panels: the learning rate above and the batch below, over updates at the left and "
        f"over {read} at the right, for {', '.join(runs)}.",
        width=8,
        height=4.6,
    )
    panels = [
        [
            new_axes(figure, x, y, rows_columns=(2, 2, 2 * row + column))
            for column, x in enumerate(("updates", read), start=1)
        ]
        for row, y in enumerate(("learning rate", "batch (sequences)"))
    ]
    # Broken lines let those below show where runs agree.
    looks = zip(itertools.cycle((BLUE, ORANGE, GREEN)), itertools.cycle(("-", "--", ":", "-.")))
    for (name, (plan, rates)), (colour, style) in zip(runs.items(), looks):
        if len(rates) != plan.total_steps:
            raise ValueError(
                f"runs must give each update a rate; got {len(rates)} rates for the "
                f"{plan.total_steps} updates of {name!r}"
            )
        ramp = plan.ramp or batch_ramp(plan.effective_batch_size, {})
        sizes = ramp.batch_sizes(plan.total_steps)
        each = plan.tokens / plan.examples if in_tokens else 1
        made = range(plan.total_steps + 1)
        for column, edges in enumerate((made, [each * plan.examples_after(n) for n in made])):
            for row, heights in enumerate((rates, sizes)):
                panels[row][column].stairs(
                    heights, edges, baseline=None, color=colour, ls=style, lw=1.8, label=name
                )
    for above, below in zip(*panels):
        for axes in (above, below):
            axes.xaxis.set_major_locator(MaxNLocator(4))
        above.set_ylim(bottom=0)
        below.set_yscale("log", base=2)
        for axis in (above.xaxis, below.xaxis, below.yaxis):
            plain_numbers(axis)
    panels[0][0].legend(frameon=False, fontsize="small")
    return figure


def rate_curves(curves: Mapping[str, Sequence[float]]) -> Picture:
    """Draw the factor on the learning rate over the updates of a run, a line for each way."""
    figure = Picture(
        f"factor on the learning rate against update, one line each for: {', '.join(curves)}."
    )
    axes = new_axes(figure, "update", "share of the full rate")
    ends = []
    looks = zip(curves.items(), (BLUE, ORANGE, GREEN, GREY, "#CC79A7"), ("-", "--", "-.", ":", "-"))
    for (name, factors), colour, style in looks:
        axes.plot(range(1, len(factors) + 1), factors, style, color=colour, lw=2)
        ends.append((len(factors), factors[-1], name, colour))
    axes.set_ylim(bottom=0)
    name_ends(axes, ends)
    return figure
