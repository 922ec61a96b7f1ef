"""The largest batch that fits, by trying until memory runs out."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from helpers._checks import whole
from helpers.footprint import gib
from helpers.memory.tracker import Tracker, tracking
from helpers.oom import ASKED, says_out_of_memory, size_in

MOST_EXAMPLES = 2**30


def largest_batch(
    trial: Callable[[int], None],
    *,
    limit: int | None = None,
    at_most: int | None = None,
    report: Callable[[str], object] = print,
) -> int:
    """Return the largest batch size that ``trial`` gets through without running out of memory.

    The size doubles until memory runs out, then the gap is halved: at most 2·log₂(answer) + 2
    trials, each of which is reported, with the length of its longest example as an embedding saw
    it: where training meets a longer one, the answer does not hold.

    ``trial(batch_size)`` should build what it needs and make two whole updates or more, as the
    optimizer's states come with the first; on the longest examples, as those come some day. It
    returns nothing and lets the error out. Only memory that really ran out makes the batch smaller:
    ``torch.OutOfMemoryError``, or a ``RuntimeError`` that ``explain_oom`` knows. Any other error is
    passed on.
    Everything of a failed trial is let go before the next.

    ``limit`` is in bytes and counts the tensors that the trial makes or trains, on any device, so
    that the search works without a GPU. Without it a CPU may swap, or kill the process, long before
    its allocator says no. ``at_most`` is in examples: no larger batch is tried. Leave a margin
    below the answer: other examples, and fragments.

    Raises ``ValueError`` if not even one example fits, if memory never runs out and no ``at_most``
    is given, or if the trial keeps the error to itself; ``TypeError`` if it returns something.
    """
    if not callable(trial):
        raise TypeError(f"trial must be a function of a batch size; got {trial!r}")
    if limit is not None:
        whole("limit", limit)
    if at_most is not None:
        whole("at_most", at_most)
    fits, too_large = 0, 1
    while _fits(trial, too_large, limit, report):
        if too_large == at_most:
            return at_most
        fits, too_large = too_large, min(2 * too_large, at_most or 2 * too_large)
        if too_large > MOST_EXAMPLES:
            raise ValueError(
                f"trial must run out of memory at some size; it went through {fits:,} examples. "
                f"Does it use its batch size?"
            )
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        if _fits(trial, middle, limit, report):
            fits = middle
        else:
            too_large = middle
    return fits


def _fits(
    trial: Callable[[int], None],
    batch_size: int,
    limit: int | None,
    report: Callable[[str], object],
) -> bool:
    """Try one size and let go of all that it made."""
    with _lengths() as lengths:
        needed, refusal = _try(trial, batch_size, limit)
    # Here, after the handler: while it runs, the error holds the tensors of the failed trial.
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    name = f"batch size {batch_size:,}"
    if refusal is None:
        report(f"{name} fits" + (f" in {gib(needed)}" if needed else "") + _longest(lengths))
        return True
    report(f"{name} runs out of memory{_longest(lengths)}")
    if batch_size == 1:
        least = f"at least {gib(needed)}" if needed else "more than there is"
        bound = "" if limit is None else f", and the limit is {gib(limit)}"
        raise ValueError(f"trial must fit with one example; that needed {least}{bound}. {refusal}")
    return False


@contextmanager
def _lengths() -> Iterator[set[int]]:
    """Collect the lengths of the examples that go through an embedding."""
    lengths: set[int] = set()

    def note(module: nn.Module, given: tuple) -> None:
        if isinstance(module, nn.Embedding) and given and given[0].dim():
            lengths.add(given[0].shape[-1])

    handle = register_module_forward_pre_hook(note)
    try:
        yield lengths
    finally:
        handle.remove()


def _longest(lengths: set[int]) -> str:
    return f", with {max(lengths):,} tokens an example" if lengths else ""


def _try(
    trial: Callable[[int], None], batch_size: int, limit: int | None
) -> tuple[int, str | None]:
    """Run one trial; return the bytes that it needed, as far as known, and how memory ran out."""
    tracker = None if limit is None else Tracker(limit=limit)
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    try:
        with nullcontext() if tracker is None else tracking(tracker):
            result = trial(batch_size)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return _needed(tracker, str(error)), str(error)
    if tracker is not None and tracker.refused:
        raise ValueError(
            f"trial must let the out-of-memory error out; at batch size {batch_size:,} it kept it "
            f"to itself"
        )
    if result is not None:
        raise TypeError(f"trial must return nothing, as what it returns stays; got {result!r}")
    return _needed(tracker, ""), None


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out, on any device: by its type, or in words of ``explain_oom``."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and says_out_of_memory(str(error))


def _needed(tracker: Tracker | None, message: str) -> int:
    """Return the most bytes of a trial, with those that it asked for in vain; 0 if not known."""
    if tracker is not None:
        return tracker.most
    asked = size_in(message, ASKED) or 0
    there = torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else 0
    return there + asked
