"""What repeated runs say: a mean, how sure it is, and whether it is on one side of a bound.

A number that training produced is one draw: another seed gives another. Several draws tell how far
their mean can be trusted, and a statement about it is *borne out*, *contradicted*, or *not decided*
by so few of them.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

FEWEST = 3  # of replicates: two say hardly anything about their own scatter
PASSES_BY_CHANCE = 0.05  # at most, of statements whose true mean lies just on the bound
FAILS_BY_CHANCE = 0.001
MOST_NEEDED = 1000  # replicates; beyond it is no use to say how many would decide


class Outcome(IntEnum):
    """What replicates say of a statement, from worst to best."""

    CONTRADICTED = 0
    NOT_DECIDED = 1
    BORNE_OUT = 2


@dataclass(frozen=True)
class Judgement:
    """A statement judged by replicates; join several with ``&``.

    ``distance`` is how many standard errors the mean lies on the right side of its bound (the
    nearest, of several), negative on the wrong one. ``words`` say the same to a reader, and
    ``needed`` is about how many replicates would decide what these leave open, if that is known.
    """

    outcome: Outcome
    distance: float
    words: str
    needed: int | None = None

    def __and__(self, other: "Judgement | bool") -> "Judgement":
        if not isinstance(other, Judgement):
            other = exactly(other)
        words = "; ".join(filter(None, (self.words, other.words)))
        known = [each.needed for each in (self, other) if each.needed is not None]
        outcome, distance = min(self.outcome, other.outcome), min(self.distance, other.distance)
        return Judgement(outcome, distance, words, max(known, default=None))

    __rand__ = __and__

    def __bool__(self) -> bool:
        raise TypeError(
            "a comparison of replicates has three outcomes, so it is neither true nor false. Join "
            "two with & in place of and, and use between(low, high) in place of low < x < high"
        )


def exactly(ok: Any) -> Judgement:  # noqa: ANN401
    """Return the judgement of a comparison that has no noise; ``TypeError`` if it is no truth."""
    true = truth(ok)
    outcome = Outcome.BORNE_OUT if true else Outcome.CONTRADICTED
    return Judgement(outcome, math.inf if true else -math.inf, "")


def truth(ok: Any) -> bool:  # noqa: ANN401
    """Return a truth value, also from a tensor or array of one; ``TypeError`` for anything else."""
    try:
        value = ok.item() if hasattr(ok, "item") else ok
    except (RuntimeError, ValueError):
        value = None
    if not isinstance(value, bool):
        raise TypeError(
            f"ok must be one comparison, true or false, or a judgement of replicates; got {ok!r}"
        )
    return value


class Replicates:
    """One number for each of several runs that differ only by chance, such as by their seed.

    ``values`` has at least three numbers, as a list or a tensor of one axis. Where two ways are
    compared, take the difference inside each seed, so that what the seed does to both drops out.
    With ``ratio`` the numbers are factors: their logarithms are averaged, and ``mean`` is their
    geometric mean.

    ``<``, ``>`` and ``between`` give a ``Judgement``. The mean in units of its standard error
    follows Student's t distribution (Student 1908) if the runs scatter normally. A statement is
    borne out if a mean just on the bound would show as much by chance in less than 5 of 100 times,
    and contradicted if that is so in less than 1 of 1,000 times on the other side. A run that is
    lost (NaN or infinite) leaves it undecided; if all are lost, it is contradicted.

    >>> higher = Replicates([0.31, 0.36, 0.33, 0.38])
    >>> higher
    0.345 ± 0.0155 (4 runs)
    >>> (higher > 0.15).outcome.name
    'BORNE_OUT'

    Raises ``ValueError`` for fewer than three numbers and for factors that are not above zero,
    ``TypeError`` for what are no numbers.
    """

    def __init__(self, values: Iterable[float], *, ratio: bool = False) -> None:
        given = values.tolist() if hasattr(values, "tolist") else values
        if isinstance(given, (str, float, int)) or not all(map(_is_number, given := list(given))):
            raise TypeError(f"values must be a list of numbers, one for each run; got {values!r}")
        if len(given) < FEWEST:
            raise ValueError(
                f"values must hold at least {FEWEST} numbers, one for each run; got {given}"
            )
        if ratio and any(value <= 0 for value in given):
            raise ValueError(f"values must be above zero to be factors; got {given}")
        self.values = tuple(map(float, given))
        self.ratio = ratio
        self.lost = sum(not math.isfinite(value) for value in self.values)
        self._scaled = [self._scale(value) for value in self.values]
        self._mean = math.nan if self.lost else statistics.fmean(self._scaled)

    def __len__(self) -> int:
        return len(self.values)

    def _scale(self, value: float) -> float:
        return math.log(value) if self.ratio else value

    @property
    def mean(self) -> float:
        """The mean, of factors the geometric one; NaN if a run is lost."""
        return math.exp(self._mean) if self.ratio else self._mean

    @property
    def error(self) -> float:
        """The standard error of the mean; of factors, of the mean of their logarithms."""
        if self.lost:
            return math.nan
        return statistics.stdev(self._scaled) / math.sqrt(len(self.values))

    def __gt__(self, bound: float) -> Judgement:
        return self._judge(bound, 1)

    def __lt__(self, bound: float) -> Judgement:
        return self._judge(bound, -1)

    def between(self, low: float, high: float) -> Judgement:
        """Return whether the mean is above ``low`` and below ``high``."""
        if not low < high:
            raise ValueError(f"low must be below high; got {low!r} and {high!r}")
        return min((self > low, self < high), key=lambda side: (side.outcome, side.distance))

    def _judge(self, bound: float, side: int) -> Judgement:
        if not _is_number(bound) or not math.isfinite(bound) or (self.ratio and bound <= 0):
            raise ValueError(f"the bound must be a finite number{self._above}; got {bound!r}")
        runs = len(self.values)
        if self.lost:
            outcome = Outcome.CONTRADICTED if self.lost == runs else Outcome.NOT_DECIDED
            return Judgement(outcome, -math.inf, f"{self.lost} of {runs} runs are lost")
        margin, error = side * (self._mean - self._scale(float(bound))), self.error
        distance = margin / error if error > 0 else math.copysign(math.inf, margin or -1.0)
        words = f"{abs(distance):.1f} standard errors from {bound:g}"
        if error == 0:
            words = f"{runs} runs, all alike, against {bound:g}"
        if chance_above(distance, runs - 1) < PASSES_BY_CHANCE:
            return Judgement(Outcome.BORNE_OUT, distance, words)
        if margin < 0 and chance_above(-distance, runs - 1) < FAILS_BY_CHANCE:
            return Judgement(Outcome.CONTRADICTED, distance, words)
        return Judgement(Outcome.NOT_DECIDED, distance, words, _needed(abs(distance), runs))

    @property
    def _above(self) -> str:
        return " above zero" if self.ratio else ""

    def __repr__(self) -> str:
        runs = len(self.values)
        if self.lost:
            return f"{self.lost} of {runs} runs lost"
        sign, error = ("×÷", math.exp(self.error)) if self.ratio else ("±", self.error)
        return f"{self.mean:.3g} {sign} {error:.3g} ({runs} runs)"


def every(outcomes: Iterable[Any]) -> Judgement:
    """Judge a statement that each run by itself bears out or not, such as "the run is lost".

    It is borne out if all of at least five do (if true of every second run, five in a row would
    come in 1 of 32 times), contradicted if none does, and otherwise not decided. ``distance`` is
    infinite where they agree, and 0 where not.

    >>> every([True] * 5).outcome.name, every([True] * 4 + [False]).outcome.name
    ('BORNE_OUT', 'NOT_DECIDED')
    """
    given = [truth(ok) for ok in outcomes]
    yes, runs = sum(given), len(given)
    if runs < FEWEST:
        raise ValueError(f"outcomes must hold at least {FEWEST}, one for each run; got {given}")
    words = f"{yes} of {runs} runs"
    if yes == 0:
        return Judgement(Outcome.CONTRADICTED, -math.inf, words)
    if yes == runs and 0.5**runs < PASSES_BY_CHANCE:
        return Judgement(Outcome.BORNE_OUT, math.inf, words)
    return Judgement(Outcome.NOT_DECIDED, 0.0, words, 5 if yes == runs else None)


def chance_above(t: float, freedom: int) -> float:
    """Return the chance that Student's t with so many degrees of freedom comes out above ``t``.

    The finite series for whole degrees of freedom (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4).

    >>> round(chance_above(2.92, 2), 3), round(chance_above(0.0, 7), 3)
    (0.05, 0.5)
    """
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * math.cos(angle) ** 2
        total += term
    inside = math.sin(angle) * total  # the chance between -t and t, with the sign of t
    if odd:
        inside = 2 / math.pi * (angle + inside)
    return (1 - inside) / 2


def _needed(distance: float, runs: int) -> int | None:
    """Return about how many runs would decide, if the mean and the scatter stay as they are."""
    for more in range(runs + 1, MOST_NEEDED + 1):
        if chance_above(distance * math.sqrt(more / runs), more - 1) < PASSES_BY_CHANCE:
            return more
    return None


def _is_number(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, (int, float)) and not isinstance(value, bool)
