"""The exercises of ``07_gpu_memory``."""

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, number
from helpers.exercises.written import Trial, trials

_WEIGHT = {"float32": 4, "bfloat16": 2, "mixed": 2}  # bytes of a number that computes
_STATE = {"float32": 4, "bfloat16": 2, "mixed": 4}  # bytes of a number that is kept
_KEPT = {"sgd": 0, "momentum": 1, "adamw": 2}  # numbers a trained parameter


def _fixed(parameters: int, trained: int, precision: str, optimizer: str) -> int:
    weights = _WEIGHT[precision] * parameters
    gradients = _WEIGHT[precision] * trained
    copies = 4 * trained if precision == "mixed" else 0
    return weights + gradients + copies + _KEPT[optimizer] * _STATE[precision] * trained


def _tried(
    setting: str, precision: str, optimizer: str, *slips: tuple[int, str], trained: int = 1000
) -> Trial:
    given = {"parameters": 1000, "trained": trained, "precision": precision, "optimizer": optimizer}
    return Trial(setting, given, _fixed(**given), slips)


_TRIALS = (
    _tried(
        "plain SGD in float32",
        "float32",
        "sgd",
        (4_000, "Every trained parameter has a gradient as well."),
        (2_000, "These are numbers. How many bytes has each?"),
    ),
    _tried(
        "momentum in float32",
        "float32",
        "momentum",
        (8_000, "Momentum keeps one number for each parameter."),
    ),
    _tried(
        "AdamW in float32",
        "float32",
        "adamw",
        (12_000, "AdamW keeps two numbers for each parameter, and not one."),
    ),
    _tried(
        "AdamW in pure 16 bits",
        "bfloat16",
        "adamw",
        (16_000, "In pure 16 bits every number has two bytes."),
        (12_000, "In pure 16 bits the states have two bytes a number, too."),
    ),
    _tried(
        "SGD in mixed precision",
        "mixed",
        "sgd",
        (4_000, "Mixed precision keeps a copy of the weights in float32."),
    ),
    _tried(
        "AdamW in mixed precision",
        "mixed",
        "adamw",
        (12_000, "The float32 copy of the weights and the states: which of them is missing?"),
        (8_000, "In mixed precision the states are float32."),
    ),
    _tried(
        "a tenth trained, the rest frozen",
        "bfloat16",
        "adamw",
        (8_000, "A frozen weight has neither a gradient nor states."),
        (800, "The frozen weights are still in memory."),
        trained=100,
    ),
    _tried(
        "a tenth trained, in mixed precision",
        "mixed",
        "adamw",
        (7_000, "The float32 copy is there for the trained weights alone."),
        trained=100,
    ),
)

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
    "the fixed part": Exercise(
        "Three sums: weights, gradients, states. For each ask: how many numbers, of how many "
        "bytes? In mixed precision the copy of the weights is one more number that is kept.",
        trials(*_TRIALS),
        dots=3,
        minutes=12,
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
