"""What an exercise is: a hint, and a review of the answer that says what is off.

A review works the right value out from its definition; no answer is written down here.
"""

import copy
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Review = Callable[[Any], str | None]


@dataclass(frozen=True)
class Exercise:
    """A hint, and a review that returns what is wrong with an answer, or None.

    ``dots`` says how hard it is: one for one idea and one line, two for two ideas at once, three
    for something of the subject to write. ``minutes`` is what it takes a student.
    """

    hint: str
    review: Review
    dots: int = field(kw_only=True)
    minutes: int = field(kw_only=True)


def _plain(answer: Any) -> Any:  # noqa: ANN401
    """Return a number of numpy or torch as one of Python, and anything else as it is."""
    return answer.item() if getattr(answer, "shape", None) == () else answer


def number(right: float, *, too_small: str, too_large: str) -> Review:
    """Review one number; say in which direction it is off, and what a usual reason is."""

    def review(answer: object) -> str | None:
        answer = _plain(answer)
        if isinstance(answer, bool) or not isinstance(answer, (int, float)) or answer != answer:
            return f"a number is asked for, not {answer!r}."
        if math.isclose(answer, right, rel_tol=1e-6):
            return None
        return (
            f"{answer:g} is too small. {too_small}"
            if answer < right
            else (f"{answer:g} is too large. {too_large}")
        )

    return review


def numbers(*reviews: tuple[str, Review]) -> Review:
    """Review a tuple of named numbers."""

    def review(answer: object) -> str | None:
        if not isinstance(answer, (tuple, list)) or len(answer) != len(reviews):
            names = ", ".join(name for name, _ in reviews)
            return f"{len(reviews)} numbers are asked for ({names}), not {answer!r}."
        for value, (name, part) in zip(answer, reviews):
            problem = part(value)
            if problem:
                return f"{name}: {problem}"
        return None

    return review


def of_a_function(review: Callable[[Callable[..., Any]], str | None]) -> Review:
    """Return the review of an answer that must be a function, before it is called."""

    def checked(answer: object) -> str | None:
        if not callable(answer):
            return f"a function is asked for, not {answer!r}."
        return review(answer)

    return checked


def function(
    right: Callable[..., float], draw: Callable[[random.Random], dict[str, int]]
) -> Review:
    """Review a function by calling it for many sizes, drawn from a fixed seed."""

    @of_a_function
    def review(answer: Callable[..., Any]) -> str | None:
        generator = random.Random(0)
        for _ in range(200):
            sizes = draw(generator)
            shown = ", ".join(f"{name}={value}" for name, value in sizes.items())
            expected = right(**sizes)
            try:
                value = _plain(answer(**copy.deepcopy(sizes)))
            except Exception as error:
                return f"with {shown} it raises {type(error).__name__}: {error}"
            if value is ...:
                return "unanswered"
            if not isinstance(value, (int, float)) or not math.isclose(value, expected):
                return f"with {shown} it returns {value!r}, which is not right."
        return None

    return review


def some_sizes(*names: str) -> Callable[[random.Random], dict[str, int]]:
    """Return a draw of sizes that are often, but not always, divisible by one another."""
    ranges = {"examples": 60, "batch_size": 8, "accumulation": 4, "epochs": 4}
    return lambda generator: {name: generator.randint(1, ranges[name]) for name in names}
