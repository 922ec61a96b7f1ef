"""Functions of some lines that a student writes: called in settings, the simplest one first."""

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from helpers.exercises.reviews import Review, _plain, of_a_function


class Off(Exception):  # noqa: N818
    """What is off about an answer, said to the student."""


class Open(Exception):  # noqa: N818
    """The function is not written yet: it returns the dots."""


def written(attempt: Callable[[Callable[..., Any]], None]) -> Review:
    """Review a function by an ``attempt`` that calls it, and raises ``Off`` where it is wrong."""

    @of_a_function
    def review(answer: Callable[..., Any]) -> str | None:
        try:
            attempt(answer)
        except Open:
            return "unanswered"
        except Off as off:
            return str(off)
        return None

    return review


def called(answer: Callable[..., Any], setting: str, *arguments: object, **named: object) -> Any:  # noqa: ANN401
    """Return what a student's function returns; what it raises is told with its setting."""
    try:
        value = answer(*arguments, **named)
    except (Off, Open):
        raise
    except Exception as error:
        raise Off(f"with {setting} it raises {type(error).__name__}: {error}") from error
    if value is ...:
        raise Open
    return value


def as_number(value: object, setting: str, wanted: str) -> float:
    """Return a number of Python, numpy or torch as a float, or say that one is ``wanted``."""
    value = _plain(value)
    if not _is_number(value):
        raise Off(f"with {setting} it returns {value!r}. Return {wanted}.")
    return float(value)


class Trial(NamedTuple):
    """One call of a function that returns a number.

    ``setting`` says in words what is tried. ``right`` is the value, or ``ValueError`` where the
    function must refuse. ``slips`` are wrong values, each with the usual reason for it.
    """

    setting: str
    arguments: dict[str, Any]
    right: Any
    slips: tuple[tuple[float, str], ...] = ()


def trials(*each: Trial) -> Review:
    """Review a function by calling it in each setting, in order; say where it goes wrong first."""

    def attempt(answer: Callable[..., Any]) -> None:
        for trial in each:
            _try(answer, trial)

    return written(attempt)


def _try(answer: Callable[..., Any], trial: Trial) -> None:
    shown = ", ".join(f"{name}={_short(value)}" for name, value in trial.arguments.items())
    setting = f"{trial.setting} ({shown})"
    try:
        value = _plain(called(answer, setting, **copy.deepcopy(trial.arguments)))
    except Off as off:
        if trial.right is ValueError and isinstance(off.__cause__, ValueError):
            return
        raise
    returns = f"with {setting} it returns {value!r}"
    if trial.right is ValueError:
        raise Off(f"{returns}. No answer is right there: raise a ValueError.")
    if not _is(value, trial.right):
        reason = next((f" {words}" for slip, words in trial.slips if _is(value, slip)), "")
        raise Off(f"{returns}, which is not right.{reason}")
    if isinstance(value, float) and isinstance(trial.right, int):
        raise Off(f"{returns}. A count is a whole number: // divides so.")


def _is(value: object, wanted: float) -> bool:
    return _is_number(value) and math.isclose(value, wanted, rel_tol=1e-6, abs_tol=1e-12)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _short(value: Any) -> str:  # noqa: ANN401
    """Return an argument as it may be typed; a tensor as the lists of its numbers."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000:
        return f"{value:_}"
    return repr(value.tolist() if hasattr(value, "tolist") else value)
