"""The exercises of ``05_critical_batch_size``."""

from helpers.exercises.reviews import Exercise, number

EXERCISES = {
    "examples at a large batch": Exercise(
        "First the updates, S_min × (1 + B_crit ÷ B). Each takes B examples.",
        number(
            200 * 100 * (1 + 50 / 200),
            too_small="Do more than the least updates, and each of them takes a whole batch.",
            too_large="At four times the critical batch the updates are nearly the least.",
        ),
    ),
    "noise scale by hand": Exercise(
        "Put the four numbers into both formulas, and divide the trace by the squared length.",
        number(
            (2.0 - 1.25) / (1 / 8 - 1 / 32) / ((32 * 1.25 - 8 * 2.0) / (32 - 8)),
            too_small="Which difference is divided by which difference of 1/B?",
            too_large="The squared length without noise is smaller than both that were measured.",
        ),
    ),
    "same batch in tokens": Exercise(
        "Tokens of a batch = sequences × context. Keep the product.",
        number(
            512 * 2048 / 8192,
            too_small="The context grows by less than that.",
            too_large="Longer sequences: fewer of them.",
        ),
    ),
}
