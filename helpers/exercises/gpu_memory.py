"""The exercises of ``07_gpu_memory``."""

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, number

EXERCISES = {
    "largest batch of a card": Exercise(
        "Two batches more cost 3 GiB. What is left at batch 0 is the fixed part.",
        number(
            (24 - 3.0) // 1.5,
            too_small="Is the fixed part counted once?",
            too_large="Part of the card is taken before the first example.",
        ),
        dots=2,
        minutes=5,
    ),
    "bytes of the logits": Exercise(
        "One number for each token of the batch and each entry of the vocabulary.",
        number(
            2 * 4096 * 32_000 * 4 / 2**20,
            too_small="Four bytes a number, for all sequences of the batch.",
            too_large="A MiB has 2^20 bytes.",
        ),
        dots=2,
        minutes=4,
    ),
    "gigabytes of a card": Exercise(
        "A GB on a data sheet has 10^9 bytes, a GiB has 2^30.",
        number(
            24e9 / 2**30,
            too_small="Divide once.",
            too_large="A GiB is larger than a GB, so there are fewer of them.",
        ),
        dots=1,
        minutes=2,
    ),
}

QUESTIONS = (
    ask(
        "The fullest moment of a step is the update. You halve the batch. What does the peak do?",
        yes(
            "It stays where it is.",
            "What is there in the update does not depend on the batch.",
        ),
        no(
            "It falls to half.",
            "Only what the batch decides could halve, and that is gone by then.",
        ),
        no(
            "It falls by the activations of half a batch.",
            "They are let go in the backward pass, before the update.",
        ),
        verdict="P3",
    ),
    ask(
        "The first step with AdamW fits, and the second runs out of memory. What is there now "
        "that was not there before?",
        no("The parameters.", "They are there from the start."),
        no("The activations.", "They come and go in every step, the first one too."),
        yes(
            "The optimizer states.",
            "They are made in the first update and stay. So test with two whole updates.",
        ),
    ),
    ask(
        "13 B parameters, all trained with AdamW in 16 bits, on a card of 40 GB. Which batch fits?",
        no(
            "One, with accumulation.",
            "The weights, gradients and states alone are more than twice the card.",
        ),
        yes(
            "None.",
            "It does not fit before the first example. Adapters would.",
        ),
        no(
            "Four, with checkpointing.",
            "Checkpointing saves activations. Here the fixed part is too large.",
        ),
        verdict="P19",
    ),
    ask(
        "“7 B on one card: batch 32.” What would make it a statement that can be checked?",
        no(
            "The learning rate.",
            "It is one number, whatever its value, and takes no room.",
        ),
        yes(
            "The method, the length, checkpointing and the card.",
            "Each part of such sentences is true for some setting, and for many others not.",
        ),
        no(
            "The number of examples in the data.",
            "Only those of one micro-batch are in memory at a time.",
        ),
        verdict="P20",
    ),
    ask(
        "A plan with an effective batch of 32 has the rate 2e-5. You have to go down to 8. What "
        "does the linear rule make of the rate?",
        no("1e-5", "Half is right from 16. From 32 the batch falls to a quarter."),
        no("8e-5", "The batch falls, so the rate falls as well."),
        yes("5e-6", "A quarter of the batch, a quarter of the rate."),
        verdict="P21",
    ),
)
