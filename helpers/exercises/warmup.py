"""The exercises of ``06_warmup``."""

from helpers.exercises.reviews import Exercise, number

EXERCISES = {
    "a warmup in examples": Exercise(
        "Examples of the warmup = updates × batch size. Keep the product.",
        number(
            500 * 256 / 1024,
            too_small="The batch does not grow by that much.",
            too_large="Each update now sees four times the examples.",
        ),
    ),
    "a warmup that is too long": Exercise(
        "Update k of a warmup of w has the share k ÷ w.",
        number(
            60 / 80,
            too_small="The last update is number 60.",
            too_large="The run ends before the warmup does.",
        ),
    ),
    "stepped per micro-batch": Exercise(
        "Each update moves the schedule on by as many places as it has micro-batches.",
        number(
            1000 / 8,
            too_small="Divide once.",
            too_large="An update has eight micro-batches, and each moves the schedule on.",
        ),
    ),
}
