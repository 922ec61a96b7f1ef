"""Learning rate over the updates of a run, and over batch sizes. Nothing here imports torch."""

import math
from fractions import Fraction

from helpers._checks import in_updates, one_of, positive, updates_or_share, whole

RULES = {"linear": 1.0, "sqrt": 0.5}
DECAYS = ("constant", "linear", "cosine", "trapezoid")


def scale_lr(lr: float, *, from_batch: int, to_batch: int, rule: str = "linear") -> float:
    """Return the learning rate that a scaling rule gives for another batch size.

    Both batch sizes are *effective* ones: per device × accumulation × devices. The rule "linear"
    multiplies the rate by the ratio of the batch sizes (Goyal et al. 2017, arXiv 1706.02677); it
    was made for SGD. The rule "sqrt" multiplies by the square root of the ratio (Malladi et al.
    2022, arXiv 2205.10287, for Adam). Neither is a law: measure.

    Raises ``ValueError`` or ``TypeError`` for a rate, batch size or rule that cannot be meant.

    >>> scale_lr(1e-3, from_batch=32, to_batch=128)
    0.004
    >>> scale_lr(1e-3, from_batch=16, to_batch=1024, rule="sqrt")
    0.008
    """
    ratio = whole("to_batch", to_batch) / whole("from_batch", from_batch)
    return positive("lr", lr) * ratio ** RULES[one_of("rule", rule, RULES)]


def lr_factors(
    total_steps: int,
    warmup_steps: int = 0,
    decay: str = "constant",
    *,
    decay_steps: int | float | Fraction | None = None,
) -> tuple[float, ...]:
    """Return the factor on the learning rate for each update of a run.

    Update k of a warmup of w gets k / w, so that no update is made at a rate of zero. After it the
    factor stays ("constant"), or falls in a straight line ("linear") or half a cosine ("cosine")
    that would be zero one update after the last. A "trapezoid" (warmup, stable, decay) stays, and
    falls in a straight line over the last ``decay_steps`` updates only: an int is a number of
    updates, a float from 0 to 1 a share of the run that rounds up. It does not begin to fall
    before the warmup is over.

    Transformers counts from 0: its update k gets (k − 1) / w, so its first update changes nothing.
    Its curve for a run of n + 1 updates, without the first, is the curve here for n.

    A warmup longer than the run is cut off where the run ends.

    Raises ``ValueError`` or ``TypeError`` if the numbers of updates are not whole or negative, for
    a trapezoid without ``decay_steps`` or with more of them than the run has.

    >>> lr_factors(5, warmup_steps=4)
    (0.25, 0.5, 0.75, 1.0, 1.0)
    >>> lr_factors(4, decay="linear")
    (1.0, 0.75, 0.5, 0.25)
    >>> lr_factors(7, 2, "trapezoid", decay_steps=3)
    (0.5, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25)
    """
    total = whole("total_steps", total_steps)
    warmup = whole("warmup_steps", warmup_steps, at_least=0)
    one_of("decay", decay, DECAYS)
    peak = max(warmup, 1)
    falling = _decay_steps(decay, decay_steps, total)
    last_full = peak if falling is None else max(peak, total - falling)

    def factor(update: int) -> float:
        if update <= peak:
            return update / peak
        done = max(0, update - last_full) / (total + 1 - last_full)
        if decay == "cosine":
            return (1 + math.cos(math.pi * done)) / 2
        return 1.0 if decay == "constant" else 1 - done

    return tuple(factor(update) for update in range(1, total + 1))


def _decay_steps(decay: str, given: float | Fraction | None, total: int) -> int | None:
    """Return the updates in which a trapezoid falls; None for the other decays."""
    if (given is None) == (decay == "trapezoid"):
        raise ValueError(
            f"decay_steps must be given with decay='trapezoid' and with no other; got "
            f"decay={decay!r} and decay_steps={given!r}"
        )
    if given is None:
        return None
    steps = in_updates(updates_or_share("decay_steps", given), total)
    if steps > total:
        raise ValueError(f"decay_steps must be at most the {total} updates of the run; got {given}")
    return steps
