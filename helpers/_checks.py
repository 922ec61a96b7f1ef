"""Checks of arguments: each names the argument, the value given and what would do."""

import math
import operator
from collections.abc import Collection
from fractions import Fraction
from numbers import Rational
from typing import Any


def whole(name: str, value: Any, *, at_least: int = 1) -> int:  # noqa: ANN401
    """Return ``value`` as an int, or say why it is not a whole number of at least ``at_least``."""
    expected = f"{name} must be a whole number of at least {at_least}; got {value!r}"
    if isinstance(value, bool):
        raise TypeError(expected)
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(expected) from None
    if number < at_least:
        raise ValueError(expected)
    return number


def exact(name: str, value: Any) -> Fraction:  # noqa: ANN401
    """Return ``value`` as the fraction that its decimal digits spell: 0.07 is 7/100."""
    expected = f"{name} must be a finite number; got {value!r}"
    if isinstance(value, bool):
        raise TypeError(expected)
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))  # numpy's have numpy's parts
    if not isinstance(value, float):
        raise TypeError(expected)
    if not math.isfinite(value):
        raise ValueError(expected)
    return Fraction(repr(float(value)))


def positive(name: str, value: Any) -> float:  # noqa: ANN401
    """Return ``value`` as a float, or say why it is not a finite number above zero."""
    number = exact(name, value)
    if number <= 0:
        raise ValueError(f"{name} must be above zero; got {value!r}")
    return float(value)


def updates_or_share(name: str, value: Any) -> int | Fraction:  # noqa: ANN401
    """Return ``value``: an int as so many updates, a float as an exact share of the run."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a number of updates or a share; got {value!r}")
    if not isinstance(value, (float, Fraction)):
        return whole(name, value, at_least=0)
    share = exact(name, value)
    if not 0 <= share <= 1:
        raise ValueError(
            f"{name} as a share of the run must be from 0.0 to 1.0, and as updates an int of at "
            f"least 0; got {value!r}"
        )
    return share


def in_updates(length: int | Fraction, total_steps: int) -> int:
    """Return a checked number of updates as it is, and a share of the run rounded up."""
    return length if isinstance(length, int) else math.ceil(length * total_steps)


def one_of(name: str, value: Any, allowed: Collection[str]) -> str:  # noqa: ANN401
    """Return ``value``, or say which of the ``allowed`` words would do."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value
