"""The review of a larger exercise: a function that is tried in simple settings first."""

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from helpers.exercises.reviews import Review, _plain, of_a_function


class Trial(NamedTuple):
    """One call of the function that is asked for.

    ``setting`` says in words what is tried. ``right`` is the value, or ``ValueError`` where the
    function must refuse. ``slips`` are wrong values, each with the usual reason for it.
    """

    setting: str
    arguments: dict[str, Any]
    right: Any
    slips: tuple[tuple[float, str], ...] = ()


def trials(*each: Trial) -> Review:
    """Review a function by calling it in each setting, in order; say where it goes wrong first."""

    @of_a_function
    def review(answer: Callable[..., Any]) -> str | None:
        return next(filter(None, (_problem(answer, trial) for trial in each)), None)

    return review


def _problem(function: Callable[..., Any], trial: Trial) -> str | None:
    shown = ", ".join(f"{name}={_short(value)}" for name, value in trial.arguments.items())
    where = f"with {trial.setting} ({shown})"
    try:
        value = _plain(function(**copy.deepcopy(trial.arguments)))
    except Exception as error:
        if trial.right is ValueError and isinstance(error, ValueError):
            return None
        return f"{where} it raises {type(error).__name__}: {error}"
    if value is ...:
        return "unanswered"
    if trial.right is ValueError:
        return f"{where} it returns {value!r}. No answer is right there: raise a ValueError."
    if _is(value, trial.right):
        if isinstance(value, float) and isinstance(trial.right, int):
            return f"{where} it returns {value!r}. A count is a whole number: // divides so."
        return None
    reason = next((f" {words}" for slip, words in trial.slips if _is(value, slip)), "")
    return f"{where} it returns {value!r}, which is not right.{reason}"


def _is(value: Any, wanted: float) -> bool:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isclose(value, wanted, rel_tol=1e-6, abs_tol=1e-12)


def _short(value: Any) -> str:  # noqa: ANN401
    """Return an argument as it may be typed; a tensor as the lists of its numbers."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000:
        return f"{value:_}"
    return repr(value.tolist() if hasattr(value, "tolist") else value)
