"""Learning rate over the updates of a run, and over batch sizes. Nothing here imports torch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from helpers._checks import in_updates, one_of, positive, updates_or_share, whole
from helpers._words import percent

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


class Factors(tuple[float, ...]):
    """The factor on the learning rate for each update of a run, as a tuple."""

    __slots__ = ()

    def at(self, step: int) -> float:
        """Return the factor of the update that follows ``step`` others.

        Past the end of the run it is the last one. As the function of torch's ``LambdaLR`` it
        serves however long the training goes on.

        >>> lr_factors(4, decay="linear").at(9)
        0.25
        """
        return self[min(whole("step", step, at_least=0), len(self) - 1)]


class Jump(NamedTuple):
    """What a run's next factor would have been, and what it is under another schedule."""

    step: int
    before: float
    after: float

    def __str__(self) -> str:
        words = f"After {self.step:,} updates the rate is at {percent(self.before)} of the full one"
        if self.before == self.after:
            return f"{words}, as before."
        times = f": {self.after / self.before:.3g} times" if self.before else ""
        return f"{words}, and goes on at {percent(self.after)}{times}."


def jump(before: Sequence[float], after: Sequence[float], step: int) -> Jump:
    """Return how the rate jumps where a run goes on after ``step`` updates with other factors.

    As when a run is made longer, and its decay with it. Past the end of either the last factor
    counts. Look at it before the run: a warmup is there for jumps like these.

    Raises ``ValueError`` or ``TypeError`` for no factors, or a step that is no whole number.

    >>> print(jump(lr_factors(500, decay="linear"), lr_factors(1000, decay="linear"), 400))
    After 400 updates the rate is at 20% of the full one, and goes on at 60%: 3 times.
    """
    for name, factors in (("before", before), ("after", after)):
        if not len(factors):
            raise ValueError(f"{name} must hold a factor for each update; got none")
    return Jump(whole("step", step, at_least=0), Factors(before).at(step), Factors(after).at(step))


def lr_factors(
    total_steps: int,
    warmup_steps: int = 0,
    decay: str = "constant",
    *,
    decay_steps: int | float | Fraction | None = None,
) -> Factors:
    """Return the factor on the learning rate for each update of a run.

    Update k of a warmup of w gets k / w, so that no update is made at a rate of zero. After it the
    factor stays ("constant"), or falls in a straight line ("linear") or half a cosine ("cosine")
    that would be zero one update after the last. A "trapezoid" (warmup, stable, decay) stays, and
    falls in a straight line over the last ``decay_steps`` updates only: an int is a number of
    updates, a float from 0 to 1 a share of the run that rounds up. It does not begin to fall
    before the warmup is over.

    Transformers counts from 0: its update k gets (k − 1) / w, so its first update changes nothing.
    After a warmup its curve for n + 1 updates, without the first, is the curve here for n; without
    a warmup the straight lines are the same.

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
    factor, _ = _factor(total, warmup_steps, decay, decay_steps)
    return Factors(factor(update) for update in range(1, total + 1))


def lr_curve(
    total_steps: int,
    warmup_steps: int = 0,
    decay: str = "constant",
    *,
    decay_steps: int | float | Fraction | None = None,
    points: int = 200,
) -> tuple[tuple[int, float], ...]:
    """Return some (update, factor) of ``lr_factors``, for drawing: as fast for any length of run.

    Evenly spaced, with the first, the last, and the two at which the curve bends. Other arguments
    and errors are those of ``lr_factors``.

    >>> lr_curve(1_000_000, 4, points=2)
    ((1, 0.25), (4, 1.0), (1000000, 1.0))
    """
    total = whole("total_steps", total_steps)
    factor, bends = _factor(total, warmup_steps, decay, decay_steps)
    gaps = min(whole("points", points, at_least=2), total) - 1
    updates = {1 + (total - 1) * gap // max(gaps, 1) for gap in range(gaps + 1)}
    updates |= {bend for bend in bends if bend <= total}
    return tuple((update, factor(update)) for update in sorted(updates))


def _factor(
    total: int, warmup_steps: int, decay: str, decay_steps: float | Fraction | None
) -> tuple[Callable[[int], float], tuple[int, int]]:
    """Return the factor of an update as a function, and the two updates at which it bends."""
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

    return factor, (peak, last_full)


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


class Stage(NamedTuple):
    """A number of updates at one effective batch size; None is all that are left of the run."""

    batch_size: int
    updates: int | None


@dataclass(frozen=True)
class BatchRamp:
    """Effective batch sizes that grow in stages; ``batch_ramp`` makes one.

    Every stage but the last has its number of updates, and the last lasts to the end of the run.

    Raises ``ValueError`` or ``TypeError`` for no stage, a stage that is not larger than the one
    before it, and a stage without an update.
    """

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        *limited, (size, rest) = _pairs(self.stages)
        if rest is not None:
            raise ValueError(
                f"stages must end with one of None updates, which lasts to the end of the run; "
                f"got {rest!r}"
            )
        stages = [
            Stage(whole("batch_size", size), whole("updates", updates)) for size, updates in limited
        ]
        stages.append(Stage(whole("batch_size", size), None))
        for before, after in pairwise(stages):
            if after.batch_size <= before.batch_size:
                raise ValueError(
                    f"a ramp's batch size must grow from stage to stage; got {after.batch_size} "
                    f"after {before.batch_size}"
                )
        object.__setattr__(self, "stages", tuple(stages))

    @property
    def ends(self) -> tuple[int, ...]:
        """The updates made when each stage but the last is over."""
        ends = [0]
        for stage in self.stages[:-1]:
            ends.append(ends[-1] + stage.updates)
        return tuple(ends[1:])

    def batch_sizes(self, total_steps: int) -> tuple[int, ...]:
        """Return the effective batch size of each update of a run, as ``lr_factors`` the rate.

        >>> batch_ramp(8, {2: 16}).batch_sizes(5)
        (8, 8, 16, 16, 16)
        """
        total = whole("total_steps", total_steps)
        sizes: list[int] = []
        for stage in self.stages:
            left = total - len(sizes)
            sizes += [stage.batch_size] * (left if stage.updates is None else stage.updates)
        return tuple(sizes[:total])


def _pairs(stages: Sequence[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    try:
        pairs = [(size, updates) for size, updates in stages]
    except (TypeError, ValueError):
        pairs = []
    if not pairs:
        raise ValueError(
            f"stages must be pairs (batch size, updates), at least one; got {stages!r}"
        )
    return pairs


def batch_ramp(
    batch_size: int,
    then: Mapping[int, int] | Sequence[int],
    *,
    by: str = "updates",
    tokens_per_example: int | None = None,
) -> BatchRamp:
    """Return a ramp that begins at one effective batch size and grows to others.

    ``then`` maps how much of the run has been made to the batch size from there on: {100: 16} is 16
    from update 101. A sequence doubles the batch at each of its numbers. They count updates, or
    tokens with ``by="tokens"``: then a stage is over with the update that reaches the number, and
    each example counts as ``tokens_per_example``.

    Raises ``ValueError`` or ``TypeError`` for numbers that are not whole, a batch that does not
    grow, stages that overlap, and a stage of less than one update.

    >>> batch_ramp(8, {100: 16, 300: 64}).stages[1]
    Stage(batch_size=16, updates=200)
    >>> batch_ramp(8, [1000, 5000], by="tokens", tokens_per_example=32).stages[:2]
    (Stage(batch_size=8, updates=4), Stage(batch_size=16, updates=8))
    """
    size = whole("batch_size", batch_size)
    each = _tokens_per_example(by, tokens_per_example)
    if isinstance(then, str) or not isinstance(then, (Mapping, Sequence)):
        raise TypeError(f"then must be a mapping or a sequence; got {then!r}")
    if isinstance(then, Mapping):
        sizes = [size, *(whole("then", larger) for larger in then.values())]
    else:
        sizes = [size * 2**doublings for doublings in range(len(then) + 1)]
    ends = [0, *(whole("then", end) for end in then)]
    stages, made = [], 0
    for size, (start, end) in zip(sizes, pairwise(ends)):
        one_update = 1 if by == "updates" else size * each
        if end <= start:
            raise ValueError(f"then must name rising numbers of {by}; got {end} after {start}")
        if end - start < one_update:
            raise ValueError(
                f"then must leave each stage an update; got {end - start:,} tokens at batch size "
                f"{size}, of which one update takes {one_update:,}"
            )
        updates = -(-(end - made) // one_update)
        stages.append(Stage(size, updates))
        made += updates * one_update
    return BatchRamp((*stages, Stage(sizes[-1], None)))


def _tokens_per_example(by: str, given: int | None) -> int | None:
    if (one_of("by", by, ("updates", "tokens")) == "tokens") == (given is None):
        raise ValueError(
            f"tokens_per_example must be given with by='tokens' and only then; got by={by!r} and "
            f"tokens_per_example={given!r}"
        )
    return None if given is None else whole("tokens_per_example", given)
