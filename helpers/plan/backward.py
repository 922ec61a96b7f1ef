"""A plan read backwards: the accumulation for a global batch, the batch behind a log."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from helpers._checks import whole
from helpers.plan.run import RunPlan


class Split(NamedTuple):
    """One way to make a global batch, which counts examples, or tokens if they were given."""

    global_batch: int
    batch_size: int
    accumulation: int


class Splits(NamedTuple):
    """How a global batch can be made of micro-batches, and what comes near it.

    ``exact`` is None if it cannot be made with the batch size asked for; ``nearest`` are the next
    global batches below and above that can; ``other_sizes`` are batch sizes for a device that make
    the very one: the largest five up to the one asked for, and the two above it.
    """

    exact: Split | None
    nearest: tuple[Split, ...]
    other_sizes: tuple[Split, ...]


def splits_for(
    global_batch: int, *, batch_size: int, devices: int = 1, tokens_per_example: int | None = None
) -> Splits:
    """Return the ways to make a global batch, in examples, or in tokens if so many an example.

    >>> found = splits_for(524_288, batch_size=6, tokens_per_example=512)
    >>> [(near.global_batch, near.accumulation) for near in found.nearest]
    [(522240, 170), (525312, 171)]
    >>> [(size.batch_size, size.accumulation) for size in found.other_sizes][-3:]
    [(4, 256), (8, 128), (16, 64)]
    """
    each = 1 if tokens_per_example is None else whole("tokens_per_example", tokens_per_example)
    unit = whole("batch_size", batch_size) * whole("devices", devices) * each
    accumulation, rest = divmod(whole("global_batch", global_batch), unit)
    exact = None if rest else Split(global_batch, batch_size, accumulation)
    nearest = tuple(
        Split(unit * times, batch_size, times)
        for times in ((accumulation, accumulation + 1) if rest else (accumulation,))
        if times
    )
    share, uneven = divmod(global_batch, devices * each)
    sizes = [] if uneven else [size for size in _divisors(share) if size != batch_size]
    below = [size for size in sizes if size < batch_size]
    chosen = [*below[-5:], *sizes[len(below) : len(below) + 2]]
    return Splits(
        exact, nearest, tuple(Split(global_batch, size, share // size) for size in chosen)
    )


def _divisors(number: int) -> list[int]:
    """Return the divisors of a number that are, or go with, one up to a million."""
    small = [n for n in range(1, min(math.isqrt(number), 10**6) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def accumulation_for(
    global_batch: int, *, batch_size: int, devices: int = 1, tokens_per_example: int | None = None
) -> int:
    """Return the accumulation that makes an effective batch of exactly ``global_batch``.

    It counts examples, or tokens if ``tokens_per_example`` is given.

    Raises ``ValueError`` if no whole number of micro-batches makes it, with what ``splits_for``
    finds: the nearest that can be made, and the sizes for a device that would fit.

    >>> accumulation_for(256, batch_size=4, devices=8)
    8
    >>> accumulation_for(524_288, batch_size=4, tokens_per_example=2048)
    64
    """
    found = splits_for(
        global_batch,
        batch_size=batch_size,
        devices=devices,
        tokens_per_example=tokens_per_example,
    )
    if found.exact is not None:
        return found.exact.accumulation
    tokens, times = tokens_per_example is not None, tokens_per_example or 1
    up_to = [split for split in found.other_sizes if split.batch_size < batch_size]
    above = found.other_sizes[len(up_to) :]
    totals = " and ".join(
        f"{split.global_batch:,} (accumulation {split.accumulation:,})" for split in found.nearest
    )
    raise ValueError(
        f"global_batch must be a multiple of batch_size × devices"
        f"{' × tokens_per_example' if tokens else ''} = {batch_size * devices * times:,}; got "
        f"{global_batch:,}{' tokens' if tokens else ''}. Nearest "
        f"{'is' if len(found.nearest) == 1 else 'are'} {totals}; of the batch sizes up to "
        f"{batch_size:,}, {_in_words(up_to)} would do, and above it {_in_words(above)}"
    )


def _in_words(splits: Sequence[Split]) -> str:
    """Write "1 (accumulation 25) or 5 (accumulation 5)"."""
    return (
        " or ".join(f"{one.batch_size:,} (accumulation {one.accumulation:,})" for one in splits)
        or "none"
    )


def infer_effective_batch(examples: int, steps: int, epochs: float = 1) -> int:
    """Return the smallest effective batch with which a run makes so many updates in all.

    For reading a log: examples and updates are printed, and the accumulation is not. With few
    updates some larger batches give as many.

    Raises ``ValueError`` if no batch size does, with the two that come nearest: then the log counts
    something else, such as micro-batches, or drops the last batch.

    >>> infer_effective_batch(29_450, 1841)
    16
    """
    whole("steps", steps)

    def updates(size: int) -> int:
        return RunPlan(examples, size, epochs=epochs).total_steps

    low, high = 1, whole("examples", examples)
    while low < high:  # a larger batch never makes more updates
        middle = (low + high) // 2
        if updates(middle) <= steps:
            high = middle
        else:
            low = middle + 1
    if updates(low) != steps:
        near = [size for size in (low - 1, low) if size]
        raise ValueError(
            f"steps must be what some batch size gives for {examples:,} examples and "
            f"epochs={epochs}; got {steps:,}, and "
            + ", ".join(f"batch {size:,} gives {updates(size):,}" for size in near)
        )
    return low
