"""A plan read backwards: the accumulation for a global batch, the batch behind a log."""

from itertools import islice

from helpers._checks import whole
from helpers.plan.run import RunPlan


def accumulation_for(
    global_batch: int, *, batch_size: int, devices: int = 1, tokens_per_example: int | None = None
) -> int:
    """Return the accumulation that makes an effective batch of exactly ``global_batch``.

    It counts examples, or tokens if ``tokens_per_example`` is given.

    Raises ``ValueError`` if no whole number of micro-batches makes it, with the nearest that can be
    made and the sizes for a device that would fit.

    >>> accumulation_for(256, batch_size=4, devices=8)
    8
    >>> accumulation_for(524_288, batch_size=4, tokens_per_example=2048)
    64
    """
    each = 1 if tokens_per_example is None else whole("tokens_per_example", tokens_per_example)
    unit = whole("batch_size", batch_size) * whole("devices", devices) * each
    accumulation, rest = divmod(whole("global_batch", global_batch), unit)
    if rest == 0:
        return accumulation
    totals = [unit * times for times in (accumulation, accumulation + 1) if times]
    share, uneven = divmod(global_batch, devices * each)
    most = 0 if uneven else min(batch_size, share)
    # The largest five will do, and the search for them is over soon.
    sizes = list(islice((size for size in range(most, 0, -1) if share % size == 0), 5))[::-1]
    fitting = " or ".join(f"{size:,}" for size in sizes) or "none"
    raise ValueError(
        f"global_batch must be a multiple of batch_size × devices"
        f"{'' if each == 1 else ' × tokens_per_example'} = {unit:,}; got {global_batch:,}. Nearest "
        f"{'is' if len(totals) == 1 else 'are'} {' and '.join(f'{total:,}' for total in totals)}; "
        f"of the batch sizes up to {batch_size:,}, {fitting} would do for {global_batch:,}"
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
