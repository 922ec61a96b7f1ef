"""The exercises of ``03_accumulation_equivalence``."""

import random

from helpers.exercises.questions import ask, no, yes
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
        dots=2,
        minutes=4,
    ),
    "the loss of an accumulated update": Exercise(
        "Which two sums does the rule need? Divide last.",
        function(lambda sums, counts: sum(sums) / sum(counts), _sums_and_counts),
        dots=3,
        minutes=8,
    ),
    "accumulation for a recipe": Exercise(
        "Effective batch = a device at once × accumulation × devices.",
        number(
            96 / (4 * 2),
            too_small="The product would stay below the recipe.",
            too_large="Did you count both cards?",
        ),
        dots=1,
        minutes=2,
    ),
}

QUESTIONS = (
    ask(
        "Answers have different lengths. When is an accumulated update that of the large batch?",
        yes(
            "If all token losses are added, and divided once by all targets of the update.",
            "Then it is the same up to rounding, over whole training runs too.",
        ),
        no(
            "If the mean of each micro-batch is taken, and then the mean of the means.",
            "A target in a micro-batch with few targets then has more say than the others.",
        ),
        no(
            "Always: a sum can be cut into parts.",
            "The sum can. The division cannot, unless everybody divides by the same number.",
        ),
        verdict="P4",
    ),
    ask(
        "The divisor is right. Which of these still makes accumulation another training?",
        no("Layer norm.", "It looks at one position of one example, whoever stands beside it."),
        yes(
            "Batch norm.",
            "It divides by the spread of the examples that are in the model together, so a "
            "micro-batch is another function.",
        ),
        no(
            "Another order of the micro-batches.",
            "The order of a sum changes the rounding, and nothing else.",
        ),
        verdict="P4",
    ),
    ask(
        "Two micro-batches, and a limit on the length of the gradient. When do you clip?",
        no(
            "After each micro-batch.",
            "Then the last one speaks loudest, though all are equal.",
        ),
        no(
            "Before the first one.",
            "There is no gradient yet that could be too long.",
        ),
        yes(
            "Once, after the last micro-batch.",
            "What is limited is the gradient of the update, and only then is it there.",
        ),
        verdict="P4",
    ),
    ask(
        "A batch of 32 at once, or 32 micro-batches of one: which update takes longer?",
        no(
            "Neither: it is the same number of operations.",
            "It is, but a machine does small ones far less efficiently.",
        ),
        yes(
            "The 32 micro-batches.",
            "They are too small for the machine. With larger micro-batches the loss is small.",
        ),
        no("The batch of 32.", "It needs more memory, and less time."),
        verdict="P5",
    ),
    ask(
        "You add up the losses of eight micro-batches, and call backward once at the end. How "
        "much is kept for the backward pass?",
        yes(
            "The activations of all eight.",
            "Each graph lives until its backward pass. Go backward after each to save memory.",
        ),
        no(
            "The activations of one micro-batch.",
            "That is so only if each micro-batch goes backward before the next goes forward.",
        ),
        no(
            "Eight numbers, the losses.",
            "Each loss holds on to the graph that it came from.",
        ),
        verdict="P6",
    ),
    ask(
        "A batch of 8 fits on your only card. Same examples: plain batches of 8, or 64 as 8 × 8?",
        no(
            "64 as 8 × 8: its gradient is steadier.",
            "Steadier, and an eighth as many. Here that ended clearly higher.",
        ),
        yes(
            "Plain batches of 8: they make eight times as many updates.",
            "On one card accumulation is there to save memory, not to learn better.",
        ),
        no(
            "It makes no difference, as the examples are the same.",
            "The number of updates is not.",
        ),
    ),
)
