"""Hints, and automatic checks of a reader's answers: a file of exercises for each notebook.

A check works the right value out from its definition; no answer is written down here.
"""

from helpers._checks import one_of
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
    print(assess(name, answer)[1])


def require(name: str, answer: object) -> None:
    """Raise ``AssertionError`` that says what is off unless ``answer`` is right; for grading."""
    right, message = assess(name, answer)
    if not right:
        raise AssertionError(message)


def hint(name: str) -> None:
    """Print a hint for an exercise; ``ValueError`` for a name that is none."""
    print(EXERCISES[one_of("name", name, EXERCISES)].hint)
