"""The figures of a run: its loss against what was spent on it."""

from collections.abc import Mapping, Sequence

from matplotlib.ticker import MaxNLocator, NullLocator

from helpers._checks import one_of
from helpers.plots.look import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Picture,
    batch_colour,
    batch_marker,
    log_x_axis,
    name_ends,
    new_axes,
)
from helpers.train import History


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
    axes = new_axes(figure, units[along], "held-out loss (nats a token)")
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
        log_x_axis(axes)
    name_ends(axes, ends)
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
        axes = new_axes(figure, along, "held-out loss (nats a token)", rows_columns=(1, 3, place))
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
        log_x_axis(axes, labels=4)
    figure.axes[0].legend(frameon=False, fontsize="small")
    return figure


def named_curves(curves: Mapping[str, Mapping[int, float]], *, y: str) -> Picture:
    """Draw a few named series against updates made."""
    names = "; ".join(name.replace("\n", " ") for name in curves)
    figure = Picture(f"{y} against updates made, one line each for: {names}.")
    axes = new_axes(figure, "updates made", y)
    ends = []
    for (name, curve), colour, style in zip(
        curves.items(), (BLUE, ORANGE, GREEN), ("o-", "s--", "^-."), strict=False
    ):
        axes.plot(list(curve), list(curve.values()), style, color=colour, ms=6)
        last = max(curve)
        ends.append((last, curve[last], name, colour))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    name_ends(axes, ends)
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
    axes = new_axes(
        figure, "passes over the data, at the same number of updates", "loss (nats a token)"
    )
    axes.plot(passes, held_out, "o-", color=ORANGE, ms=7)
    axes.plot(passes, training, "s--", color=BLUE, ms=7)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(passes), [f"{count:g}" for count in passes])
    axes.xaxis.set_minor_locator(NullLocator())
    name_ends(
        axes,
        [
            (passes[-1], held_out[-1], "held out", ORANGE),
            (passes[-1], training[-1], "training", BLUE),
        ],
    )
    return figure
