"""The exercises of ``07_gpu_memory``."""

from helpers.exercises.reviews import Exercise, number

EXERCISES = {
    "largest batch of a card": Exercise(
        "Two batches more cost 3 GiB. What is left at batch 0 is the fixed part.",
        number(
            (24 - 3.0) // 1.5,
            too_small="Is the fixed part counted once?",
            too_large="Part of the card is taken before the first example.",
        ),
    ),
    "bytes of the logits": Exercise(
        "One number for each token of the batch and each entry of the vocabulary.",
        number(
            2 * 4096 * 32_000 * 4 / 2**20,
            too_small="Four bytes a number, for all sequences of the batch.",
            too_large="A MiB has 2^20 bytes.",
        ),
    ),
    "gigabytes of a card": Exercise(
        "A GB on a data sheet has 10^9 bytes, a GiB has 2^30.",
        number(
            24e9 / 2**30,
            too_small="Divide once.",
            too_large="A GiB is larger than a GB, so there are fewer of them.",
        ),
    ),
}
