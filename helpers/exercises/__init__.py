"""Checks of a reader's answers, hints, and questions on concepts: a file for each notebook.

A check works the right value out from its definition; no answer to an exercise is written down
here. What was answered is kept in the running kernel, and nowhere else.
"""

import textwrap

from helpers._checks import one_of, whole
from helpers.exercises import (
    accumulation_equivalence,
    batches,
    critical_batch_size,
    data_parallel,
    gpu_memory,
    linear_scaling_limits,
    plan_a_run,
    steps_and_epochs,
    warmup,
)
from helpers.exercises.questions import WIDTH, Quiz

NOTEBOOKS = (
    batches,
    steps_and_epochs,
    accumulation_equivalence,
    linear_scaling_limits,
    critical_batch_size,
    warmup,
    gpu_memory,
    data_parallel,
    plan_a_run,
)
EXERCISES = {
    name: exercise for notebook in NOTEBOOKS for name, exercise in notebook.EXERCISES.items()
}
HARDEST = 3  # dots
_answered: dict[str, bool] = {}  # whether the last answer to each exercise was right


def assess(name: str, answer: object) -> tuple[bool | None, str]:
    """Return (right, message); right is None for an exercise that is not answered yet.

    Raises ``ValueError`` for a name that is no exercise.
    """
    exercise = EXERCISES[one_of("name", name, EXERCISES)]
    parts = answer if isinstance(answer, (tuple, list)) else [answer]
    problem = "unanswered" if any(part is ... for part in parts) else exercise.review(answer)
    if problem == "unanswered":
        return None, f"“{name}” is waiting for your answer: put it in place of the dots."
    if problem:
        return False, f"“{name}”: not yet. {problem[0].upper()}{problem[1:]}"
    return True, f"“{name}”: right."


def check(name: str, answer: object) -> None:
    """Print whether ``answer`` is right, and if not, what is off; an ellipsis is no answer yet."""
    right, message = assess(name, answer)
    _answered[name] = bool(right)
    print(message)


def progress() -> None:
    """Print how many exercises are answered right, for each notebook that was checked so far."""
    started = [
        (number, list(notebook.EXERCISES))
        for number, notebook in enumerate(NOTEBOOKS, start=1)
        if _answered.keys() & notebook.EXERCISES.keys()
    ]
    if not started:
        print("No exercise has been checked yet.")
    for number, names in started:
        left = [f"“{name}”" for name in names if not _answered.get(name)]
        done = f"{len(names) - len(left)} of {len(names)} exercises answered right"
        print(f"Notebook {number:02}: {done}.")
        if left:
            text = f"  Still open: {', '.join(left)}."
            print(textwrap.fill(text, WIDTH, subsequent_indent="    "))


def about(name: str) -> None:
    """Print how hard an exercise is, in dots, and how long it takes, in minutes."""
    exercise = EXERCISES[one_of("name", name, EXERCISES)]
    dots = "●" * exercise.dots + "○" * (HARDEST - exercise.dots)
    print(f"“{name}”: {dots} ({exercise.dots} of {HARDEST}), about {exercise.minutes} minutes.")


def quiz(number: int) -> Quiz:
    """Return the questions on the concepts of a notebook, given by its number, from 1 to 9.

    It shows itself in a notebook: each answer is a fold that says why it is right, or why not.
    """
    number = whole("number", number)
    if number > len(NOTEBOOKS):
        raise ValueError(f"number must be that of a notebook, 1 to {len(NOTEBOOKS)}; got {number}")
    return Quiz(number, NOTEBOOKS[number - 1].QUESTIONS)


def require(name: str, answer: object) -> None:
    """Raise ``AssertionError`` that says what is off unless ``answer`` is right; for grading."""
    right, message = assess(name, answer)
    if not right:
        raise AssertionError(message)


def hint(name: str) -> None:
    """Print a hint for an exercise; ``ValueError`` for a name that is none."""
    print(EXERCISES[one_of("name", name, EXERCISES)].hint)
