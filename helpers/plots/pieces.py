"""The figures of an update in pieces: micro-batches and devices."""

from collections.abc import Mapping, Sequence

from helpers.plan import RunPlan
from helpers.plots.look import (
    BLUE,
    ORANGE,
    Picture,
    batch_axis,
    name_ends,
    new_axes,
    plain_log_axis,
)


def gap_against_spread(spreads: Sequence[int], gaps: Mapping[str, Sequence[float]]) -> Picture:
    """Draw how far an accumulated gradient is from the whole one as the lengths spread out."""
    figure = Picture(
        "relative difference between accumulated and whole gradient against the spread of the "
        "answers' lengths; the mean of means rises from zero, the division by tokens stays at zero."
    )
    axes = new_axes(figure, "spread of the lengths (8 ± so many targets)", "difference ÷ gradient")
    looks = {"batches": (ORANGE, "s--", "mean of means"), "tokens": (BLUE, "o-", "by tokens")}
    ends = []
    for rule, values in gaps.items():
        colour, style, name = looks[rule]
        axes.plot(spreads, values, style, color=colour, ms=6)
        ends.append((spreads[-1], values[-1], name, colour))
    name_ends(axes, ends)
    return figure


def cost_of_accumulation(
    splits: Sequence[int],
    kept: Sequence[int],
    seconds: Sequence[float],
    *,
    chosen: int | None = None,
) -> Picture:
    """Draw bytes kept for the backward pass, and time, against the number of micro-batches."""
    figure = Picture(
        "two plots against the number of micro-batches that one batch is cut into: the bytes kept "
        "for the backward pass fall in proportion, and the time of the update rises.",
        width=8,
        height=3.4,
    )
    panels = (
        ("kept for backward (MiB)", [size / 2**20 for size in kept]),
        ("time (whole batch = 1)", [value / seconds[0] for value in seconds]),
    )
    for column, (label, values) in enumerate(panels, start=1):
        axes = new_axes(figure, "micro-batches in an update", label, rows_columns=(1, 2, column))
        axes.plot(splits, values, "o-", color=BLUE, ms=6)
        if chosen is not None:
            value = values[list(splits).index(chosen)]
            axes.plot(chosen, value, "D", color=ORANGE, ms=11, mec="black")
            axes.annotate(
                f"{value:.2g}", (chosen, value), (0, 12), textcoords="offset points", ha="center"
            )
        batch_axis(axes, splits)
        axes.set_ylim(0, 1.15 * max(values))
    return figure


def updates_against_devices(
    examples: int,
    batch_size: int,
    devices: Sequence[int],
    *,
    accumulation: int = 1,
    chosen: int = 1,
) -> Picture:
    """Draw the updates of an epoch against the number of devices, at a fixed size a device."""
    figure = Picture(
        f"updates in an epoch against the number of devices on logarithmic axes, for "
        f"{examples} examples and {batch_size} a device: twice the devices, half the updates."
    )
    axes = new_axes(figure, "devices", "updates in an epoch")
    plans = {
        count: RunPlan(examples, batch_size, devices=count, accumulation=accumulation)
        for count in devices
    }
    axes.plot(devices, [plan.total_steps for plan in plans.values()], "o-", color=BLUE, ms=7)
    plan = plans[chosen]
    axes.plot(chosen, plan.total_steps, "D", color=ORANGE, ms=11, mec="black")
    axes.annotate(
        f"{plan.total_steps} updates of {plan.effective_batch_size:,}",
        (chosen, plan.total_steps),
        (12, 8),
        textcoords="offset points",
    )
    batch_axis(axes, devices)
    plain_log_axis(axes)
    return figure
