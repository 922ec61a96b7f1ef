"""Every figure of the notebooks, one function each.

Batch size runs on a log₂ axis, learning rate on log₁₀. A batch size has the same colour and marker
in every figure. A limit or an ideal is a thin grey line with its name on it.
"""

import base64
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib import patches
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from torch import Tensor

from helpers._checks import one_of
from helpers.footprint import COLOURS, PARTS, Breakdown
from helpers.noise import CriticalBatch, NoiseScale
from helpers.plan import RunPlan
from helpers.schedule import batch_ramp, scale_lr
from helpers.sweep import Best, SweepResult
from helpers.train import History

GREY = "#767676"
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"  # Okabe and Ito 2008
MARKERS = "os^DvP*X<>hpd"
HATCHES = ("", "//", "..", "\\\\", "xx")  # of the parts of memory
STACKED = ("parameters", "states", "gradients", "activations", "temporary")  # from the bottom


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


def _axes(
    figure: Picture, x: str, y: str, *, rows_columns: tuple[int, int, int] = (1, 1, 1)
) -> Axes:
    axes = figure.add_subplot(*rows_columns)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return axes


def _batch_axis(axes: Axes, batch_sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(batch_sizes), [f"{size:,}" for size in batch_sizes])
    axes.xaxis.set_minor_locator(NullLocator())


def _plain_log_axis(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _name_ends(axes: Axes, ends: Sequence[tuple[float, float, str, Any]]) -> None:
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


def noise_against_batch(batch_sizes: Sequence[int], noise: Sequence[float]) -> Picture:
    """Draw the noise of a gradient (a share of its length) against batch size, beside 1/√B."""
    figure = Picture(
        "log-log plot of the noise of the gradient, as a share of the gradient's length, against "
        "batch size; the measured points lie along a grey line of slope minus one half."
    )
    axes = _axes(figure, "batch size (sequences)", "noise ÷ length of the gradient")
    ideal = [noise[0] * (batch_sizes[0] / size) ** 0.5 for size in batch_sizes]
    axes.plot(batch_sizes, ideal, color=GREY, lw=1)
    axes.plot(batch_sizes, noise, "o", color=BLUE, ms=8)
    _batch_axis(axes, batch_sizes)
    _plain_log_axis(axes)
    middle = len(batch_sizes) // 2
    axes.annotate(
        "1/√B",
        (batch_sizes[middle], ideal[middle]),
        (10, 10),
        textcoords="offset points",
        color=GREY,
    )
    return figure


def loss_curves(
    histories: Mapping[int, History], *, along: str = "examples", title: str = ""
) -> Picture:
    """Draw held-out loss along "examples", "updates" or "seconds", a line for each batch size."""
    units = {
        "examples": "examples seen",
        "updates": "updates made",
        "seconds": "seconds of training",
    }
    one_of("along", along, tuple(units))
    figure = Picture(
        f"held-out loss against {units[along]}, one line for each of the batch sizes "
        f"{', '.join(map(str, histories))}."
    )
    axes = _axes(figure, units[along], "held-out loss (nats a token)")
    axes.set_title(title, loc="left", fontsize="medium")
    ends = []
    for batch_size, history in histories.items():
        x, losses = _curve(history, along)
        if along == "seconds":  # on a logarithmic axis, which has no place for the start
            x, losses = x[1:], losses[1:]
        colour = batch_colour(batch_size)
        axes.plot(x, losses, color=colour, marker=batch_marker(batch_size), ms=5, lw=1.8)
        ends.append((x[-1], losses[-1], f"batch {batch_size}", colour))
    if along == "seconds":
        axes.set_xscale("log")
    _name_ends(axes, ends)
    return figure


def _curve(history: History, along: str) -> tuple[list[float], list[float]]:
    """Return where along the run the held-out loss was measured, and what it was."""
    passed = {"examples": history.examples, "seconds": history.seconds}.get(along)
    steps, losses = zip(*sorted(history.held_out.items()))
    if passed is None:
        return list(steps), list(losses)
    return [passed[step - 1] if step else 0 for step in steps], list(losses)


def three_clocks(histories: Mapping[int, History], *, target: float) -> Picture:
    """Draw held-out loss against updates, examples and seconds, side by side.

    All axes of progress are logarithmic, so that equal distances are equal factors. A grey line
    is at the target loss.
    """
    figure = Picture(
        f"three panels of held-out loss, against updates, examples and seconds, with a line for "
        f"each of the batch sizes {', '.join(map(str, histories))}; the line that comes first to "
        "the target is another one in each panel.",
        width=9.6,
        height=3.6,
    )
    for place, along in enumerate(("updates", "examples", "seconds"), start=1):
        axes = _axes(figure, along, "held-out loss (nats a token)", rows_columns=(1, 3, place))
        axes.set_xscale("log")
        axes.axhline(target, color=GREY, lw=1)
        for batch_size, history in histories.items():
            x, losses = _curve(history, along)
            axes.plot(
                x[1:],
                losses[1:],
                color=batch_colour(batch_size),
                marker=batch_marker(batch_size),
                ms=5,
                lw=1.8,
                label=f"batch {batch_size:,}",
            )
    figure.axes[0].legend(frameon=False, fontsize="small")
    return figure


def loss_against_rate(rates: Sequence[float], losses: Mapping[int, Sequence[float]]) -> Picture:
    """Draw final held-out loss against learning rate, a line for each batch size.

    A run that diverged (NaN) is a cross at the upper edge; the best rate of a batch has a ring.
    """
    figure = Picture(
        f"final held-out loss against learning rate on a logarithmic axis, one line for each of "
        f"the batch sizes {', '.join(map(str, losses))}; a ring marks the best rate of each."
    )
    axes = _axes(figure, "learning rate", "held-out loss (nats a token)")
    axes.set_xscale("log")
    ends = []
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
    top = axes.get_ylim()[1]
    for batch_size, values in losses.items():
        for loss, rate in zip(values, rates):
            if not math.isfinite(loss):
                axes.plot(
                    rate, top, "x", color=batch_colour(batch_size), ms=9, mew=2, clip_on=False
                )
    _name_ends(axes, ends)
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
        axes = _axes(figure, "batch size (sequences)", label, rows_columns=(1, 2, column))
        axes.plot(batch_sizes, values, "o-", color=GREY, lw=1, ms=4)
        axes.plot(
            chosen,
            values[position],
            batch_marker(chosen),
            color=batch_colour(chosen),
            ms=13,
            mec="black",
        )
        _batch_axis(axes, batch_sizes)
        _plain_log_axis(axes)
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
    axes = _axes(figure, "batch size (sequences)", "examples per second")
    axes.plot(batch_sizes, speed, "o-", color=BLUE, ms=8)
    _batch_axis(axes, batch_sizes)
    _plain_log_axis(axes)
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


def repeats(
    passes: Sequence[float], training: Sequence[float], held_out: Sequence[float]
) -> Picture:
    """Draw training and held-out loss against how often each example was seen."""
    figure = Picture(
        "training loss and held-out loss against the number of passes over the data, at the same "
        "number of updates; they lie together for a few passes, then the training loss falls to "
        "nearly zero while the held-out loss rises."
    )
    axes = _axes(
        figure, "passes over the data, at the same number of updates", "loss (nats a token)"
    )
    axes.plot(passes, held_out, "o-", color=ORANGE, ms=7)
    axes.plot(passes, training, "s--", color=BLUE, ms=7)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(passes), [f"{count:g}" for count in passes])
    axes.xaxis.set_minor_locator(NullLocator())
    _name_ends(
        axes,
        [
            (passes[-1], held_out[-1], "held out", ORANGE),
            (passes[-1], training[-1], "training", BLUE),
        ],
    )
    return figure


def named_curves(curves: Mapping[str, Mapping[int, float]], *, y: str) -> Picture:
    """Draw a few named series against updates made."""
    names = "; ".join(name.replace("\n", " ") for name in curves)
    figure = Picture(f"{y} against updates made, one line each for: {names}.")
    axes = _axes(figure, "updates made", y)
    ends = []
    for (name, curve), colour, style in zip(
        curves.items(), (BLUE, ORANGE, GREEN), ("o-", "s--", "^-."), strict=False
    ):
        axes.plot(list(curve), list(curve.values()), style, color=colour, ms=6)
        last = max(curve)
        ends.append((last, curve[last], name, colour))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _name_ends(axes, ends)
    return figure


def gap_against_spread(spreads: Sequence[int], gaps: Mapping[str, Sequence[float]]) -> Picture:
    """Draw how far an accumulated gradient is from the whole one as the lengths spread out."""
    figure = Picture(
        "relative difference between accumulated and whole gradient against the spread of the "
        "answers' lengths; the mean of means rises from zero, the division by tokens stays at zero."
    )
    axes = _axes(figure, "spread of the lengths (8 ± so many targets)", "difference ÷ gradient")
    looks = {"batches": (ORANGE, "s--", "mean of means"), "tokens": (BLUE, "o-", "by tokens")}
    ends = []
    for rule, values in gaps.items():
        colour, style, name = looks[rule]
        axes.plot(spreads, values, style, color=colour, ms=6)
        ends.append((spreads[-1], values[-1], name, colour))
    _name_ends(axes, ends)
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
        axes = _axes(figure, "micro-batches in an update", label, rows_columns=(1, 2, column))
        axes.plot(splits, values, "o-", color=BLUE, ms=6)
        if chosen is not None:
            value = values[list(splits).index(chosen)]
            axes.plot(chosen, value, "D", color=ORANGE, ms=11, mec="black")
            axes.annotate(
                f"{value:.2g}", (chosen, value), (0, 12), textcoords="offset points", ha="center"
            )
        _batch_axis(axes, splits)
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
    axes = _axes(figure, "devices", "updates in an epoch")
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
    _batch_axis(axes, devices)
    _plain_log_axis(axes)
    return figure


def run_timeline(plan: RunPlan, factors: Sequence[float]) -> Picture:
    """Draw the learning rate over the updates of a run, with the ends of its epochs."""
    figure = Picture(
        f"the factor on the learning rate over {plan.total_steps} updates, with a line at the end "
        f"of each epoch and the warmup shaded.",
        width=7,
        height=3,
    )
    axes = _axes(figure, "update", "factor on the learning rate")
    axes.axvspan(0, min(plan.warmup_steps, plan.total_steps), color=ORANGE, alpha=0.15, lw=0)
    axes.step(range(1, plan.total_steps + 1), factors, where="mid", color=BLUE)
    ends = range(plan.steps_per_epoch, plan.total_steps + 1, plan.steps_per_epoch)
    for end in ends[:: max(1, len(ends) // 20)]:
        axes.axvline(end, color=GREY, lw=1, ls=":")
    axes.set_ylim(0, 1.08)
    axes.set_xlim(0, plan.total_steps + 1)
    axes.set_title(
        "dotted: an epoch ends; shaded: warmup", loc="left", color=GREY, fontsize="small"
    )
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
            _axes(figure, x, y, rows_columns=(2, 2, 2 * row + column))
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
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    panels[0][0].legend(frameon=False, fontsize="small")
    return figure


def rate_landscape(
    result: SweepResult, *, chosen: int | None = None, reference: int | None = None
) -> Picture:
    """Draw held-out loss against learning rate, a line for each batch size of a sweep.

    A ring marks a measured best rate. A run that diverged, or that ended worse than it began, is a
    cross at the upper edge. With a ``chosen`` batch size the others are faint, and grey lines show
    where the linear and the square-root rule put its best rate, from that of ``reference``.
    """
    sizes = ", ".join(map(str, result.batch_sizes))
    figure = Picture(
        f"final held-out loss against learning rate on a logarithmic axis for {result.optimizer}, "
        f"one line for each of the batch sizes {sizes}; rings mark the best rates and crosses at "
        f"the upper edge the runs that diverged."
    )
    axes = _axes(figure, "learning rate", "held-out loss (nats a token)")
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
    top = axes.get_ylim()[1]
    for rate, look in lost:
        axes.plot(rate, top, "x", ms=9, mew=2, clip_on=False, **look)
    axes.set_ylim(top=top)
    if chosen is not None and reference is not None:
        _mark_rules(axes, result.best(reference).rate, reference, chosen)
    _name_ends(axes, ends)
    return figure


def _mark_rules(axes: Axes, rate: float, reference: int, chosen: int) -> None:
    low, high = axes.get_xlim()
    for rule, name, height in (("linear", "linear rule", 0.97), ("sqrt", "√ rule", 0.87)):
        predicted = scale_lr(rate, from_batch=reference, to_batch=chosen, rule=rule)
        shown = min(max(predicted, low), high)
        axes.axvline(shown, color=GREY, lw=1)
        beyond = " →" if predicted > high else ""
        axes.annotate(
            f"{name}: {predicted:.2g}{beyond} ",
            (shown, height),
            xycoords=("data", "axes fraction"),
            ha="right",
            va="top",
            color=GREY,
            fontsize="small",
        )
    axes.set_xlim(low, high)


def best_rate_against_batch(bests: Mapping[str, Sequence[Best]]) -> Picture:
    """Draw the best learning rate against batch size for a few optimizers, beside both rules.

    A bar runs from the lowest to the highest best rate of a single seed. Grey lines start at the
    first point of each and rise with the batch and with its square root.
    """
    figure = Picture(
        f"best learning rate against batch size on two logarithmic axes, with bars over the seeds, "
        f"for {' and '.join(bests)}; grey lines show the linear and the square-root rule."
    )
    axes = _axes(figure, "batch size (sequences)", "best learning rate")
    sizes = [best.batch_size for best in next(iter(bests.values()))]
    axes.set_yscale("log")
    _batch_axis(axes, sizes)
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
    axes.set_title(
        "grey: rate ∝ batch (solid), ∝ √batch (dashed)", loc="left", color=GREY, fontsize="small"
    )
    return figure


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
    axes = _axes(figure, "batch size (sequences)", "updates to the target")
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
    axes.set_yscale("log")
    _plain_log_axis(axes)
    axes.set_ylim(bottom=0.5 * lowest)
    _batch_axis(axes, batch_sizes)
    axes.margins(x=0.16)
    for x, y, name, colour in ends:
        axes.annotate(name, (x, y), (8, 0), textcoords="offset points", va="center", color=colour)
    axes.set_title(
        "grey: perfect scaling, ∝ 1/B; upright tick: the critical batch",
        loc="left",
        color=GREY,
        fontsize="small",
    )
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
    axes = _axes(figure, "examples ÷ least examples", "updates ÷ least updates")
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
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_locator(NullLocator())
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
    axes = _axes(figure, "held-out loss (nats a token)", "examples")
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
    _plain_log_axis(axes)
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
    axes = _axes(figure, "batch of the branch ÷ batch of the run", "loss added (nats a token)")
    ends = []
    looks = zip(losses.items(), (BLUE, ORANGE, GREEN, GREY), "os^D")
    for (name, by_factor), colour, marker in looks:
        factors = sorted(by_factor)
        added = [by_factor[factor] - by_factor[1] for factor in factors]
        axes.plot(factors, added, color=colour, marker=marker, ms=7, lw=1.5)
        ends.append((factors[-1], added[-1], name, colour))
    axes.axhline(tolerance, color=GREY, lw=1)
    _batch_axis(axes, factors)
    axes.annotate(
        "nearly free below", (factors[0], tolerance), (0, 4), textcoords="offset points", color=GREY
    )
    _name_ends(axes, ends)
    return figure


def memory_timeline(timeline: Sequence[tuple[str, Mapping[str, int]]]) -> Picture:
    """Draw the bytes at each instant of a step, stacked by part, from ``Measurement.timeline``."""
    figure = Picture(
        "stacked areas of the memory at each instant of one training step: activations rise in the "
        "forward pass and fall in the backward pass, gradients come meanwhile, and parameters and "
        "optimizer states are there all the time.",
        height=4.2,
    )
    axes = _axes(figure, "instant of the step (tensor operations)", "memory (MiB)")
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
    axes = _axes(figure, "batch size (sequences)", "peak of memory (MiB)")
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
    axes = _axes(figure, f"memory at the fullest moment ({unit})", "")
    for row, breakdown in enumerate(breakdowns.values()):
        left = 0.0
        for part in STACKED:
            width = breakdown.moments[breakdown.when][part] / size
            (bar,) = axes.barh(row, width, left=left, height=0.7, label=part if row == 0 else "")
            _mark_part(bar, part)
            left += width
        axes.annotate(
            f"{left:,.1f}", (left, row), (4, 0), textcoords="offset points", va="center", color=GREY
        )
    axes.set_yticks(range(len(breakdowns)), list(breakdowns))
    axes.set_ylabel("setting")
    axes.invert_yaxis()
    axes.margins(x=0.12)
    if card:
        axes.axvline(card * 1e9 / 2**30, color="black", lw=1.5)
        axes.annotate(
            f"card of {card:g} GB", (card * 1e9 / 2**30, 1.01), xycoords=("data", "axes fraction"),
            ha="center", va="bottom", fontsize="small",
        )  # fmt: skip
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    return figure


def loss_by_warmup(
    results: Mapping[float, SweepResult],
    batch_size: int,
    *,
    chosen: tuple[float, float] | None = None,
) -> Picture:
    """Draw final held-out loss against learning rate at one batch size, a line for each warmup.

    A run that diverged, or ended worse than it began, is a cross at the upper edge. ``chosen`` is
    the (warmup, rate) of a run to mark with a ring.
    """
    figure = Picture(
        f"final held-out loss against learning rate on a logarithmic axis at batch size "
        f"{batch_size}, one line for each warmup of {', '.join(map(str, results))} updates; "
        "crosses at the upper edge are runs that were lost."
    )
    axes = _axes(figure, "learning rate after warmup", "held-out loss (nats a token)")
    axes.set_xscale("log")
    ends, lost = [], []
    looks = zip(results.items(), mpl.colormaps["viridis"](_evenly(len(results))), "os^DvP")
    for (warmup, result), colour, marker in looks:
        first = result.held_out[batch_size][..., 0].nanmean().item()
        points = list(zip(result.learning_rates, result.mean_loss(batch_size).tolist()))
        kept = [(x, y) for x, y in points if y < first]
        lost += [(x, colour) for x, y in points if not y < first]
        if not kept:
            continue
        axes.plot(*zip(*kept), marker=marker, color=colour, ms=6, lw=1.8)
        ends.append((*kept[-1], f"warmup {warmup}", colour))
        ring = [(x, y) for x, y in kept if chosen == (warmup, x)]
        if ring:
            axes.plot(*zip(*ring), "o", ms=14, mfc="none", mec=GREY, mew=2)
    top = axes.get_ylim()[1]
    for order, (rate, colour) in enumerate(lost):
        beside = 1 + 0.05 * (order % max(1, len(results)))
        axes.plot(rate * beside, top, "x", ms=9, mew=2, color=colour, clip_on=False)
    axes.set_ylim(top=top)
    _name_ends(axes, ends)
    return figure


def _evenly(count: int) -> list[float]:
    return [0.85 * place / max(1, count - 1) for place in range(count)]


def rate_curves(curves: Mapping[str, Sequence[float]]) -> Picture:
    """Draw the factor on the learning rate over the updates of a run, a line for each way."""
    figure = Picture(
        f"factor on the learning rate against update, one line each for: {', '.join(curves)}."
    )
    axes = _axes(figure, "update", "share of the full rate")
    ends = []
    looks = zip(curves.items(), (BLUE, ORANGE, GREEN, GREY, "#CC79A7"), ("-", "--", "-.", ":", "-"))
    for (name, factors), colour, style in looks:
        axes.plot(range(1, len(factors) + 1), factors, style, color=colour, lw=2)
        ends.append((len(factors), factors[-1], name, colour))
    axes.set_ylim(bottom=0)
    _name_ends(axes, ends)
    return figure
