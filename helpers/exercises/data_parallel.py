"""The exercises of ``08_data_parallel``."""

from helpers.exercises.reviews import Exercise, number

EXERCISES = {
    "the say on a device": Exercise(
        "In a mean over n targets each has the weight 1/n. Both means then weigh the same.",
        number(
            (1 / 10) / (1 / 30),
            too_small="Fewer targets on a device means more say for each of them.",
            too_large="Compare one target of each device, not all of them.",
        ),
    ),
    "fewer devices": Exercise(
        "Global batch = a device at once × accumulation × devices.",
        number(
            (4 * 8) / (8 * 2),
            too_small="The product would stay below the recipe's.",
            too_large="Each of your devices holds more than those of the recipe.",
        ),
    ),
    "bytes with split states": Exercise(
        "Parameters and gradients stay whole. Only the 12 bytes of the states are divided.",
        number(
            7 * (2 + 2 + 12 / 8),
            too_small="Parameters and gradients are not split in stage 1.",
            too_large="The states are split over all devices.",
        ),
    ),
}
