"""The exercises of ``01_batches``."""

from helpers.exercises.reviews import Exercise, function, number, numbers, some_sizes
from helpers.plan import RunPlan


def _last_say(examples: int, batch_size: int) -> float:
    return batch_size / RunPlan(examples, batch_size).last_batch_size


_PILES = RunPlan(500, 64)

EXERCISES = {
    "piles of papers": Exercise(
        "Count the full piles first. What is left over is a pile too.",
        numbers(
            (
                "changes of course",
                number(
                    _PILES.total_steps,
                    too_small="The last pile counts, though it is short.",
                    too_large="Each pile gives one change of course, not each paper.",
                ),
            ),
            (
                "papers in the last pile",
                number(
                    _PILES.last_batch_size,
                    too_small="How many papers are in all full piles together?",
                    too_large="The last pile gets only what the full piles leave.",
                ),
            ),
        ),
    ),
    "loss of an update": Exercise(
        "Add all token losses of the update, then divide once. By what?",
        number(
            (2 * 4.0 + 8 * 1.0) / (2 + 8),
            too_small="Did the division use more than the number of targets?",
            too_large="A mean of two means gives the two targets as much say as the eight.",
        ),
    ),
    "halve the noise": Exercise(
        "The noise falls with the square root of the batch size.",
        number(
            (1 / 0.5) ** 2,
            too_small="At this factor the noise falls to more than half.",
            too_large="At this factor the noise falls to less than half.",
        ),
    ),
    "the say of the last batch": Exercise(
        "Under a mean for each batch, what is the weight of one example in a batch of n?",
        function(_last_say, some_sizes("examples", "batch_size")),
    ),
}
