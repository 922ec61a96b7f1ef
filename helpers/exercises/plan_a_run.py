"""The exercises of ``09_plan_a_run``."""

from helpers.exercises.reviews import Exercise, number

EXERCISES = {
    "accumulation for 512": Exercise(
        "All cards together take 8 × 4 sequences at once.",
        number(
            512 / (8 * 4),
            too_small="The product would stay below 512.",
            too_large="Did you count all four cards?",
        ),
    ),
    "a batch from a log": Exercise(
        "First the updates of one epoch.",
        number(
            12_000 / (1125 / 3),
            too_small="The updates are those of all three epochs.",
            too_large="Every epoch passes over all examples once, and no more.",
        ),
    ),
    "minutes of a run": Exercise(
        "Updates × seconds, and a fifth more. Then minutes.",
        number(
            75 * 1.5 * 1.2 / 60,
            too_small="Is the fifth added?",
            too_large="A minute has 60 seconds.",
        ),
    ),
}
