"""The exercises of ``03_accumulation_equivalence``."""

import math
import random
from collections.abc import Callable
from typing import Any

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, function, number
from helpers.exercises.written import Off, as_number, called, written


def _sums_and_counts(generator: random.Random) -> dict[str, list[int]]:
    """Draw the losses and targets of a few micro-batches, the last of them sometimes empty."""
    counts = [generator.randint(1, 9) for _ in range(generator.randint(1, 4))]
    counts.append(generator.randint(0, 2))
    return {"sums": [count * generator.randint(1, 5) for count in counts], "counts": counts}


# For each setting its micro-batches, as pairs of inputs and targets. A token is one of three.
_UPDATES = (
    ("one micro-batch", [([[0]], [[1]])]),
    ("two micro-batches of two targets each", [([[0, 1]], [[1, 2]]), ([[1, 2]], [[2, 2]])]),
    (
        "one target in the first and three in the second",
        [([[0, 1]], [[1, -100]]), ([[1, 0, 2]], [[2, 2, 0]])],
    ),
    ("a micro-batch without a target", [([[0, 1]], [[1, 2]]), ([[2]], [[-100]])]),
)


def _try_updates(accumulate: Callable[..., Any]) -> None:
    """Accumulate on a model of nine weights: for each token the scores of the next one."""
    import torch

    for setting, numbers in _UPDATES:
        micro_batches = [tuple(map(torch.tensor, pair)) for pair in numbers]
        model = torch.nn.Embedding.from_pretrained(torch.eye(3), freeze=False)
        gone_backward = _watched(model)
        value = called(accumulate, setting, model, micro_batches)
        losses, gradients, counts = zip(*(_alone(*batch) for batch in micro_batches))
        _compare(setting, model.weight.grad, gradients, counts)
        value = as_number(value, setting, "the loss of the update, as a number")
        if math.isnan(value):
            raise Off(f"with {setting} the loss is no number: 0 ÷ 0 is in it.")
        if not math.isclose(value, sum(losses) / sum(counts), rel_tol=1e-5):
            raise Off(f"with {setting} the gradient is right, and {value:g} is not the loss.")
        if not all(gone_backward[1:]):
            raise Off(
                f"with {setting} the gradient is right, but a second micro-batch goes forward "
                "before the first went backward. Then both are in memory."
            )


def _watched(model: Any) -> list[bool]:  # noqa: ANN401
    """Return a list that notes at each forward pass whether there is a gradient yet."""
    noted: list[bool] = []
    model.register_forward_pre_hook(lambda model, _: noted.append(model.weight.grad is not None))
    return noted


def _alone(inputs: Any, targets: Any) -> tuple[float, Any, int]:  # noqa: ANN401
    """Return the sum of the token losses of a micro-batch, its gradient, and its targets."""
    import torch

    weight = torch.eye(3, requires_grad=True)
    scores = weight[inputs].flatten(0, 1)  # (positions, 3)
    loss = torch.nn.functional.cross_entropy(scores, targets.flatten(), reduction="sum")
    return loss.item(), torch.autograd.grad(loss, weight)[0], int((targets != -100).sum())


def _compare(setting: str, found: Any, gradients: tuple, counts: tuple[int, ...]) -> None:  # noqa: ANN401
    """Say which rule a gradient follows, if it is not the one that gives every target its say."""
    import torch

    if found is None:
        raise Off(f"with {setting} the weights have no gradient. Where does it go backward?")
    if not torch.isfinite(found).all():
        raise Off(f"with {setting} the gradient is no number: 0 ÷ 0 is in it.")
    means = sum(gradient / max(count, 1) for gradient, count in zip(gradients, counts))
    rules = (
        (sum(gradients) / sum(counts), ""),
        (means / len(counts), "It is the mean of means: few targets have the weight of many."),
        (means, "It is a sum of means. By what is to be divided?"),
        (sum(gradients), "The sum over the targets is there, and the division is not."),
        (gradients[-1] / max(counts[-1], 1), "It is that of the last micro-batch alone."),
    )
    why = next(
        (why for right, why in rules if torch.allclose(found, right, atol=1e-6)),
        "Add the losses of all targets, and divide by the number of targets in the update.",
    )
    if why:
        raise Off(f"with {setting} the gradient is off. {why}")


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
    "backward over micro-batches": Exercise(
        "First count the targets of the whole update. Then each micro-batch adds the sum of its "
        "token losses, divided by that number, and goes backward at once.",
        written(_try_updates),
        dots=3,
        minutes=12,
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
