"""The exercises of ``04_linear_scaling_limits``."""

from helpers.exercises.reviews import Exercise, number
from helpers.schedule import scale_lr

_SPREAD_GRID = (1e-5, 1e-1, 9)  # first rate, last rate, how many

EXERCISES = {
    "the linear rule": Exercise(
        "By which factor does the batch grow? The rate grows by the same.",
        number(
            scale_lr(3e-4, from_batch=32, to_batch=256),
            too_small="Is it the linear rule, or the square root?",
            too_large="The batch does not grow by that much.",
        ),
    ),
    "other cards, same batch": Exercise(
        "Multiply batch size, accumulation and devices, before and after.",
        number(
            scale_lr(1.0, from_batch=4 * 1 * 4, to_batch=8 * 1 * 2),
            too_small="Fewer devices, but each holds more.",
            too_large="Each device holds more, but there are fewer of them.",
        ),
    ),
    "a grid of rates": Exercise(
        "From the first rate to the last there is one factor fewer than there are rates.",
        number(
            (_SPREAD_GRID[1] / _SPREAD_GRID[0]) ** (1 / (_SPREAD_GRID[2] - 1)),
            too_small="With this factor the grid ends before the last rate.",
            too_large="With this factor the grid ends beyond the last rate.",
        ),
    ),
}
