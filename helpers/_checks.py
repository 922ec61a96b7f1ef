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
        return Fraction(value)
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


def one_of(name: str, value: Any, allowed: Collection[str]) -> str:  # noqa: ANN401
    """Return ``value``, or say which of the ``allowed`` words would do."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value
