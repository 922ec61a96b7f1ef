"""Hints, and automatic checks of a reader's answers.

A check works the right value out from its definition; no answer is written down here.
"""

import copy
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from helpers._checks import one_of
from helpers.plan import RunPlan
from helpers.schedule import scale_lr

Review = Callable[[Any], str | None]


@dataclass(frozen=True)
class Exercise:
    """A hint, and a review that returns what is wrong with an answer, or None."""

    hint: str
    review: Review


def _plain(answer: Any) -> Any:  # noqa: ANN401
    """Return a number of numpy or torch as one of Python, and anything else as it is."""
    return answer.item() if getattr(answer, "shape", None) == () else answer


def _number(right: float, *, too_small: str, too_large: str) -> Review:
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


def _numbers(*reviews: tuple[str, Review]) -> Review:
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


def _function(
    right: Callable[..., float], draw: Callable[[random.Random], dict[str, int]]
) -> Review:
    """Review a function by calling it for many sizes, drawn from a fixed seed."""

    def review(answer: object) -> str | None:
        if not callable(answer):
            return f"a function is asked for, not {answer!r}."
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


def _steps(examples: int, batch_size: int, accumulation: int, epochs: int) -> int:
    return RunPlan(examples, batch_size, accumulation=accumulation, epochs=epochs).total_steps


def _last_say(examples: int, batch_size: int) -> float:
    return batch_size / RunPlan(examples, batch_size).last_batch_size


def _sizes(*names: str) -> Callable[[random.Random], dict[str, int]]:
    """Return a draw of sizes that are often, but not always, divisible by one another."""
    ranges = {"examples": 60, "batch_size": 8, "accumulation": 4, "epochs": 4}
    return lambda generator: {name: generator.randint(1, ranges[name]) for name in names}


def _sums_and_counts(generator: random.Random) -> dict[str, list[int]]:
    """Draw the losses and targets of a few micro-batches, the last of them sometimes empty."""
    counts = [generator.randint(1, 9) for _ in range(generator.randint(1, 4))]
    counts.append(generator.randint(0, 2))
    return {"sums": [count * generator.randint(1, 5) for count in counts], "counts": counts}


_PILES = RunPlan(500, 64)
_SPREAD_GRID = (1e-5, 1e-1, 9)  # first rate, last rate, how many
_DROPPED = RunPlan(810, 8, epochs=3, drop_last=True)
_KEPT = _DROPPED.replace(drop_last=False)

EXERCISES = {
    "the linear rule": Exercise(
        "By which factor does the batch grow? The rate grows by the same.",
        _number(
            scale_lr(3e-4, from_batch=32, to_batch=256),
            too_small="Is it the linear rule, or the square root?",
            too_large="The batch does not grow by that much.",
        ),
    ),
    "other cards, same batch": Exercise(
        "Multiply batch size, accumulation and devices, before and after.",
        _number(
            scale_lr(1.0, from_batch=4 * 1 * 4, to_batch=8 * 1 * 2),
            too_small="Fewer devices, but each holds more.",
            too_large="Each device holds more, but there are fewer of them.",
        ),
    ),
    "a grid of rates": Exercise(
        "From the first rate to the last there is one factor fewer than there are rates.",
        _number(
            (_SPREAD_GRID[1] / _SPREAD_GRID[0]) ** (1 / (_SPREAD_GRID[2] - 1)),
            too_small="With this factor the grid ends before the last rate.",
            too_large="With this factor the grid ends beyond the last rate.",
        ),
    ),
    "examples at a large batch": Exercise(
        "First the updates, S_min × (1 + B_crit ÷ B). Each takes B examples.",
        _number(
            200 * 100 * (1 + 50 / 200),
            too_small="Do more than the least updates, and each of them takes a whole batch.",
            too_large="At four times the critical batch the updates are nearly the least.",
        ),
    ),
    "noise scale by hand": Exercise(
        "Put the four numbers into both formulas, and divide the trace by the squared length.",
        _number(
            (2.0 - 1.25) / (1 / 8 - 1 / 32) / ((32 * 1.25 - 8 * 2.0) / (32 - 8)),
            too_small="Which difference is divided by which difference of 1/B?",
            too_large="The squared length without noise is smaller than both that were measured.",
        ),
    ),
    "same batch in tokens": Exercise(
        "Tokens of a batch = sequences × context. Keep the product.",
        _number(
            512 * 2048 / 8192,
            too_small="The context grows by less than that.",
            too_large="Longer sequences: fewer of them.",
        ),
    ),
    "largest batch of a card": Exercise(
        "Two batches more cost 3 GiB. What is left at batch 0 is the fixed part.",
        _number(
            (24 - 3.0) // 1.5,
            too_small="Is the fixed part counted once?",
            too_large="Part of the card is taken before the first example.",
        ),
    ),
    "bytes of the logits": Exercise(
        "One number for each token of the batch and each entry of the vocabulary.",
        _number(
            2 * 4096 * 32_000 * 4 / 2**20,
            too_small="Four bytes a number, for all sequences of the batch.",
            too_large="A MiB has 2^20 bytes.",
        ),
    ),
    "gigabytes of a card": Exercise(
        "A GB on a data sheet has 10^9 bytes, a GiB has 2^30.",
        _number(
            24e9 / 2**30,
            too_small="Divide once.",
            too_large="A GiB is larger than a GB, so there are fewer of them.",
        ),
    ),
    "a warmup in examples": Exercise(
        "Examples of the warmup = updates × batch size. Keep the product.",
        _number(
            500 * 256 / 1024,
            too_small="The batch does not grow by that much.",
            too_large="Each update now sees four times the examples.",
        ),
    ),
    "a warmup that is too long": Exercise(
        "Update k of a warmup of w has the share k ÷ w.",
        _number(
            60 / 80,
            too_small="The last update is number 60.",
            too_large="The run ends before the warmup does.",
        ),
    ),
    "stepped per micro-batch": Exercise(
        "Each update moves the schedule on by as many places as it has micro-batches.",
        _number(
            1000 / 8,
            too_small="Divide once.",
            too_large="An update has eight micro-batches, and each moves the schedule on.",
        ),
    ),
    "accumulation for 512": Exercise(
        "All cards together take 8 × 4 sequences at once.",
        _number(
            512 / (8 * 4),
            too_small="The product would stay below 512.",
            too_large="Did you count all four cards?",
        ),
    ),
    "a batch from a log": Exercise(
        "First the updates of one epoch.",
        _number(
            12_000 / (1125 / 3),
            too_small="The updates are those of all three epochs.",
            too_large="Every epoch passes over all examples once, and no more.",
        ),
    ),
    "minutes of a run": Exercise(
        "Updates × seconds, and a fifth more. Then minutes.",
        _number(
            75 * 1.5 * 1.2 / 60,
            too_small="Is the fifth added?",
            too_large="A minute has 60 seconds.",
        ),
    ),
    "the say on a device": Exercise(
        "In a mean over n targets each has the weight 1/n. Both means then weigh the same.",
        _number(
            (1 / 10) / (1 / 30),
            too_small="Fewer targets on a device means more say for each of them.",
            too_large="Compare one target of each device, not all of them.",
        ),
    ),
    "fewer devices": Exercise(
        "Global batch = a device at once × accumulation × devices.",
        _number(
            (4 * 8) / (8 * 2),
            too_small="The product would stay below the recipe's.",
            too_large="Each of your devices holds more than those of the recipe.",
        ),
    ),
    "bytes with split states": Exercise(
        "Parameters and gradients stay whole. Only the 12 bytes of the states are divided.",
        _number(
            7 * (2 + 2 + 12 / 8),
            too_small="Parameters and gradients are not split in stage 1.",
            too_large="The states are split over all devices.",
        ),
    ),
    "the say of a short micro-batch": Exercise(
        "In a mean over n targets each has the weight 1/n. Both means then weigh the same.",
        _number(
            (1 / 2) / (1 / 8),
            too_small="Compare the weight of one target, not of a whole micro-batch.",
            too_large="Compare one target of each, not all of them.",
        ),
    ),
    "the loss of an accumulated update": Exercise(
        "Which two sums does the rule need? Divide last.",
        _function(lambda sums, counts: sum(sums) / sum(counts), _sums_and_counts),
    ),
    "accumulation for a recipe": Exercise(
        "Effective batch = a device at once × accumulation × devices.",
        _number(
            96 / (4 * 2),
            too_small="The product would stay below the recipe.",
            too_large="Did you count both cards?",
        ),
    ),
    "piles of papers": Exercise(
        "Count the full piles first. What is left over is a pile too.",
        _numbers(
            (
                "changes of course",
                _number(
                    _PILES.total_steps,
                    too_small="The last pile counts, though it is short.",
                    too_large="Each pile gives one change of course, not each paper.",
                ),
            ),
            (
                "papers in the last pile",
                _number(
                    _PILES.last_batch_size,
                    too_small="How many papers are in all full piles together?",
                    too_large="The last pile gets only what the full piles leave.",
                ),
            ),
        ),
    ),
    "loss of an update": Exercise(
        "Add all token losses of the update, then divide once. By what?",
        _number(
            (2 * 4.0 + 8 * 1.0) / (2 + 8),
            too_small="Did the division use more than the number of targets?",
            too_large="A mean of two means gives the two targets as much say as the eight.",
        ),
    ),
    "halve the noise": Exercise(
        "The noise falls with the square root of the batch size.",
        _number(
            (1 / 0.5) ** 2,
            too_small="At this factor the noise falls to more than half.",
            too_large="At this factor the noise falls to less than half.",
        ),
    ),
    "the say of the last batch": Exercise(
        "Under a mean for each batch, what is the weight of one example in a batch of n?",
        _function(_last_say, _sizes("examples", "batch_size")),
    ),
    "kept or dropped": Exercise(
        "Work out one epoch first. The short batch at its end is there three times, or not at all.",
        _numbers(
            (
                "last batch kept",
                _number(
                    _KEPT.total_steps,
                    too_small="The short batch at the end of an epoch is an update too.",
                    too_large="Divide by the batch size before multiplying by the epochs.",
                ),
            ),
            (
                "last batch dropped",
                _number(
                    _DROPPED.total_steps,
                    too_small="Only a batch that is not full is dropped, once an epoch.",
                    too_large="Every epoch drops its short batch.",
                ),
            ),
        ),
    ),
    "count the updates": Exercise(
        "Two roundings: examples to batches, then batches to updates. Which way does each go?",
        _function(_steps, _sizes("examples", "batch_size", "accumulation", "epochs")),
    ),
    "tokens billed": Exercise(
        "Every epoch reads the whole file again.",
        _number(
            RunPlan(1, 1, tokens=250_000, epochs=4).tokens_processed,
            too_small="Each pass over the file is processed anew.",
            too_large="The batch size does not change how many tokens there are.",
        ),
    ),
    "records in a conversation": Exercise(
        "Count what is to be predicted, not what was said.",
        _numbers(
            (
                "one record for the conversation",
                _number(1, too_small="There is something to predict.", too_large="It stays whole."),
            ),
            (
                "one record for each target",
                _number(
                    sum(role == "assistant" for role in ("system", *("user", "assistant") * 3)),
                    too_small="Every answer of the assistant is a target.",
                    too_large="What the user and the system say is given, not predicted.",
                ),
            ),
        ),
    ),
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
