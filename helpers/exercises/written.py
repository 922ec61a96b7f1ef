"""Functions of some lines that a student writes: called in settings, the simplest one first."""

from collections.abc import Callable
from typing import Any

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


def called(answer: Callable[..., Any], setting: str, *arguments: object) -> Any:  # noqa: ANN401
    """Return what a student's function returns; what it raises is told with its setting."""
    try:
        value = answer(*arguments)
    except (Off, Open):
        raise
    except Exception as error:
        raise Off(f"with {setting} it raises {type(error).__name__}: {error}") from None
    if value is ...:
        raise Open
    return value


def as_number(value: object, setting: str, wanted: str) -> float:
    """Return a number of Python, numpy or torch as a float, or say that one is ``wanted``."""
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Off(f"with {setting} it returns {value!r}. Return {wanted}.")
    return float(value)
