"""Every interactive figure: sliders above a picture that is drawn again at each move.

The picture is one element of HTML whose bytes change. So there is exactly one, in ipywidgets 7 and
8, nothing is left in the output area, and it has an alternative text, which ``ipywidgets.Image``
cannot have. Without ipywidgets a reader gets the still figure.
"""

import base64
import html
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from helpers import plots
from helpers.memory import estimate
from helpers.noise import CriticalBatch
from helpers.plan import RunPlan
from helpers.schedule import lr_factors, scale_lr
from helpers.shapes import SHAPES
from helpers.sweep import SweepResult

try:
    import ipywidgets
except ImportError:
    ipywidgets = None

Shown = tuple[plots.Picture, str]


def batch_explorer(
    batch_sizes: Sequence[int], noise: Sequence[float], speed: Sequence[float]
) -> Any:  # noqa: ANN401
    """Return a slider over batch sizes with the noise and the speed that were measured there."""

    def show(batch_size: int) -> Shown:
        position = list(batch_sizes).index(batch_size)
        picture = plots.noise_and_speed(batch_sizes, noise, speed, chosen=batch_size)
        seconds = 10_000 / speed[position]
        text = (
            f"Batch <b>{batch_size:,}</b>: noise {noise[position]:.2f} times the gradient, "
            f"{speed[position]:,.0f} examples per second, {seconds:,.1f} s for 10,000 examples."
        )
        return picture, text

    return _explorer(show, {"batch_size": ("batch size", list(batch_sizes), batch_sizes[0])})


def accumulation_explorer(
    splits: Sequence[int], kept: Sequence[int], seconds: Sequence[float]
) -> Any:  # noqa: ANN401
    """Return a slider over the number of micro-batches, with the bytes and the time measured."""

    def show(micro_batches: int) -> Shown:
        position = list(splits).index(micro_batches)
        picture = plots.cost_of_accumulation(splits, kept, seconds, chosen=micro_batches)
        text = (
            f"<b>{micro_batches}</b> micro-batches: {kept[position] / kept[0]:.1%} of the memory "
            f"for activations, {seconds[position] / seconds[0]:.2f} times the time."
        )
        return picture, text

    return _explorer(show, {"micro_batches": ("micro-batches", list(splits), splits[0])})


def devices_explorer(examples: int, batch_size: int, devices: Sequence[int]) -> Any:  # noqa: ANN401
    """Return sliders over devices and accumulation, with the updates that are left in an epoch."""

    def show(chosen: int, accumulation: int) -> Shown:
        plan = RunPlan(examples, batch_size, devices=chosen, accumulation=accumulation)
        picture = plots.updates_against_devices(
            examples, batch_size, devices, accumulation=accumulation, chosen=chosen
        )
        text = (
            f"Global batch <b>{plan.effective_batch_size:,}</b> = {batch_size} × {accumulation} × "
            f"{chosen}: {plan.total_steps:,} updates an epoch."
        )
        return picture, text

    return _explorer(
        show,
        {
            "chosen": ("devices", list(devices), devices[0]),
            "accumulation": ("accumulation", [1, 2, 4, 8], 1),
        },
    )


def rate_explorer(result: SweepResult, *, reference: int) -> Any:  # noqa: ANN401
    """Return a slider over the batch sizes of a sweep: measured best rate and both predictions."""

    def show(batch_size: int) -> Shown:
        picture = plots.rate_landscape(result, chosen=batch_size, reference=reference)
        first, best = result.best(reference).rate, result.best(batch_size).rate
        linear, root = (
            scale_lr(first, from_batch=reference, to_batch=batch_size, rule=rule)
            for rule in ("linear", "sqrt")
        )
        text = (
            f"Batch <b>{batch_size:,}</b>, from batch {reference:,} at {first:.2g}: the linear "
            f"rule gives {linear:.2g}, the square root {root:.2g}, and measured is "
            f"<b>{best:.2g}</b>."
        )
        return picture, text

    sizes = list(result.batch_sizes)
    return _explorer(show, {"batch_size": ("batch size", sizes, sizes[-1])})


def critical_explorer(
    batch_sizes: Sequence[int], steps: Sequence[float], fit: CriticalBatch
) -> Any:  # noqa: ANN401
    """Return a slider over batch sizes: what each costs in updates and in examples."""
    measured = dict(zip(batch_sizes, steps))

    def show(batch_size: int) -> Shown:
        updates = measured[batch_size]
        text = (
            f"Batch <b>{batch_size:,}</b>: {updates:,.0f} updates, "
            f"<b>{updates / fit.min_steps:.1f} times</b> the least, and "
            f"{batch_size * updates:,.0f} examples, "
            f"<b>{batch_size * updates / fit.min_examples:.1f} times</b> the least."
        )
        return plots.trade_off(batch_sizes, steps, fit, chosen=batch_size), text

    sizes = [size for size, count in measured.items() if not math.isnan(count)]
    return _explorer(show, {"batch_size": ("batch size", sizes, sizes[len(sizes) // 2])})


def warmup_explorer(results: Mapping[float, SweepResult], batch_size: int) -> Any:  # noqa: ANN401
    """Return sliders over warmup and rate of a sweep: where the run lies, and what it measured."""
    rates = next(iter(results.values())).learning_rates
    shown = {f"{rate:.3g}": rate for rate in rates}

    def show(warmup: float, rate: str) -> Shown:
        result, column = results[warmup], rates.index(shown[rate])
        loss = result.mean_loss(batch_size)[column].item()
        start = result.held_out[batch_size][..., 0].nanmean().item()
        ended = f"ended at <b>{loss:.3f}</b>" if loss < start else "was <b>lost</b>"
        text = (
            f"Batch {batch_size:,}, rate {rate}, warmup over {warmup} updates: the run {ended}. "
            f"Its first update had a rate of {shown[rate] / max(1, warmup):.2g}."
        )
        chosen = (warmup, shown[rate])
        return plots.loss_by_warmup(results, batch_size, chosen=chosen), text

    return _explorer(
        show,
        {
            "warmup": ("warmup", list(results), next(iter(results))),
            "rate": ("learning rate", list(shown), list(shown)[len(shown) // 2]),
        },
    )


BATCHES = (1, 2, 4, 8, 16, 32, 64)
METHODS = {  # names short enough for the slider
    "bf16 Adam": {},
    "mixed Adam": {"precision": "mixed"},
    "8-bit Adam": {"optimizer": "adamw-8bit"},
    "adapters": {"trainable": "lora", "rank": 16},
    "4-bit base": {"trainable": "lora", "rank": 16, "base_bits": 4},
}


def memory_explorer(cards: Sequence[float] = (16, 24, 40, 80, 141)) -> Any:  # noqa: ANN401
    """Return sliders over model, method, batch, context and card, in GB: the bars, what fits."""

    def show(
        shape: str, method: str, batch_size: int, context: int, checkpointing: bool, card: float
    ) -> Shown:
        how = METHODS[method] | {"context": context, "checkpointing": checkpointing}
        peaks = {size: estimate(shape, batch_size=size, **how) for size in BATCHES}
        needed, room = peaks[batch_size], card * 1e9
        fitting = [size for size, breakdown in peaks.items() if breakdown.peak <= room]
        most = f"the largest that fits is <b>{max(fitting)}</b>" if fitting else "<b>none</b> fits"
        text = (
            f"{needed.peak / 2**30:,.1f} GiB at its fullest, in the {needed.when}; the card has "
            f"{room / 2**30:,.1f} GiB. Of the batch sizes here {most}."
        )
        return plots.memory_bars({f"batch {batch_size}": needed}, card=card), text

    return _explorer(
        show,
        {
            "shape": ("model", list(SHAPES), "llama-7b"),
            "method": ("method", list(METHODS), next(iter(METHODS))),
            "batch_size": ("batch size", list(BATCHES), 4),
            "context": ("context", [512, 1024, 2048, 4096], 1024),
            "checkpointing": ("checkpoints", [False, True], False),
            "card": ("card (GB)", list(cards), 80),
        },
    )


def plan_explorer() -> Any:  # noqa: ANN401
    """Return sliders over the arguments of a ``RunPlan``, with its table and its learning rate."""

    def show(drop_last: bool, warmup: float, **sizes: int) -> Shown:
        plan = RunPlan(**sizes, warmup=warmup / 100, drop_last=drop_last)
        factors = lr_factors(plan.total_steps, plan.warmup_steps, "cosine")
        return plots.run_timeline(plan, factors), plan._repr_html_()

    return _explorer(
        show,
        {
            "examples": ("examples", [10, 40, 91, 100, 400, 800, 810, 1600, 5000], 800),
            "batch_size": ("batch size", [1, 2, 4, 8, 10, 16, 32, 64], 8),
            "accumulation": ("accumulation", [1, 2, 3, 4, 8], 1),
            "devices": ("devices", [1, 2, 3, 4, 8], 1),
            "epochs": ("epochs", [1, 2, 3, 5, 10], 3),
            "warmup": ("warmup, %", [0, 3, 5, 10, 20], 5),
            "drop_last": ("drop last", [False, True], False),
        },
    )


def _explorer(
    show: Callable[..., Shown], controls: Mapping[str, tuple[str, list[Any], Any]]
) -> Any:  # noqa: ANN401
    """Join sliders, each a (label, options, first value), to what ``show`` makes of them."""
    at_start = {name: first for name, (_, _, first) in controls.items()}
    if ipywidgets is None:
        return show(**at_start)[0]

    # The bytes are kept, and not the figure: a second drawing of a figure is a little different.
    @lru_cache(maxsize=64)
    def drawn(**chosen: Any) -> tuple[str, str]:  # noqa: ANN401
        picture, text = show(**chosen)
        return _element(picture), text

    sliders = {
        name: ipywidgets.SelectionSlider(
            options=options,
            value=first,
            description=label,
            style={"description_width": "8em"},
        )
        for name, (label, options, first) in controls.items()
    }
    element, text = drawn(**at_start)
    image, words = ipywidgets.HTML(value=element), ipywidgets.HTML(value=text)

    def redraw(_: object) -> None:
        try:
            image.value, words.value = drawn(
                **{name: slider.value for name, slider in sliders.items()}
            )
        except ValueError as error:
            words.value = f"<b>No such run:</b> {error}"

    for slider in sliders.values():
        slider.observe(redraw, names="value")
    return ipywidgets.VBox([*sliders.values(), words, image])


def _element(picture: plots.Picture) -> str:
    """Return the picture as an element of HTML that holds its own bytes."""
    png = base64.b64encode(picture.png()).decode("ascii")
    return (
        f'<img src="data:image/png;base64,{png}" alt="{html.escape(picture.alt)}" '
        'style="max-width: 100%">'
    )
