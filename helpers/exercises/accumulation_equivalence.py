"""The exercises of ``03_accumulation_equivalence``."""

import random

from helpers.exercises.reviews import Exercise, function, number


def _sums_and_counts(generator: random.Random) -> dict[str, list[int]]:
    """Draw the losses and targets of a few micro-batches, the last of them sometimes empty."""
    counts = [generator.randint(1, 9) for _ in range(generator.randint(1, 4))]
    counts.append(generator.randint(0, 2))
    return {"sums": [count * generator.randint(1, 5) for count in counts], "counts": counts}


EXERCISES = {
    "the say of a short micro-batch": Exercise(
        "In a mean over n targets each has the weight 1/n. Both means then weigh the same.",
        number(
            (1 / 2) / (1 / 8),
            too_small="Compare the weight of one target, not of a whole micro-batch.",
            too_large="Compare one target of each, not all of them.",
        ),
    ),
    "the loss of an accumulated update": Exercise(
        "Which two sums does the rule need? Divide last.",
        function(lambda sums, counts: sum(sums) / sum(counts), _sums_and_counts),
    ),
    "accumulation for a recipe": Exercise(
        "Effective batch = a device at once × accumulation × devices.",
        number(
            96 / (4 * 2),
            too_small="The product would stay below the recipe.",
            too_large="Did you count both cards?",
        ),
    ),
}
