"""The exercises of ``01_batches``."""

import math
from collections.abc import Callable
from typing import Any

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, function, number, numbers, some_sizes
from helpers.exercises.written import Off, as_number, called, written
from helpers.plan import RunPlan


def _last_say(examples: int, batch_size: int) -> float:
    return batch_size / RunPlan(examples, batch_size).last_batch_size


_PILES = RunPlan(500, 64)

# For each setting its batches, as pairs of inputs and targets. A token is one of three.
_STEPS = (
    ("one example and one target", [([[0]], [[1]])]),
    ("two examples, one of them with padding", [([[0, 1], [2, 2]], [[1, 2], [0, -100]])]),
    ("two steps in a row", [([[0, 1]], [[1, 2]]), ([[0, 1]], [[2, 2]])]),
)


def _try_steps(step: Callable[..., Any]) -> None:
    """Make steps with a model of nine weights: for each token the scores of the next one."""
    import torch

    for setting, batches in _STEPS:
        model = torch.nn.Embedding.from_pretrained(torch.zeros(3, 3), freeze=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        for batch in batches:
            _try_step(step, setting, model, optimizer, *map(torch.tensor, batch))


def _try_step(
    step: Callable[..., Any],
    setting: str,
    model: Any,  # noqa: ANN401
    optimizer: Any,  # noqa: ANN401
    inputs: Any,  # noqa: ANN401
    targets: Any,  # noqa: ANN401
) -> None:
    import torch

    def loss_with(weight: torch.Tensor) -> torch.Tensor:
        scores = weight[inputs].flatten(0, 1)  # (positions, 3)
        return torch.nn.functional.cross_entropy(scores, targets.flatten(), ignore_index=-100)

    before = model.weight.detach().clone().requires_grad_()
    loss = loss_with(before)
    (gradient,) = torch.autograd.grad(loss, before)
    value = called(step, setting, model, optimizer, inputs, targets)
    after = model.weight.detach()
    if torch.equal(after, before):
        raise Off(f"with {setting} the weights are what they were. Which move changes them?")
    if not torch.allclose(after, before - gradient, atol=1e-6):
        first = torch.equal(before, torch.zeros(3, 3))
        why = (
            "Once backward, once update, and divide by the targets: −100 is none."
            if first
            else "Is the gradient of the step before still in it?"
        )
        raise Off(f"with {setting} the weights do not move by the gradient of this batch. {why}")
    value = as_number(value, setting, "the loss, as a number")
    if math.isclose(value, loss_with(after).item(), rel_tol=1e-5):
        raise Off(f"with {setting} it returns the loss after the update, not before it.")
    if not math.isclose(value, loss.item(), rel_tol=1e-5):
        raise Off(f"with {setting} the weights are right, but {value:g} is not the loss.")


EXERCISES = {
    "piles of papers": Exercise(
        "Count the full piles first. What is left over is a pile too.",
        numbers(
            (
                "changes of course",
                number(
                    _PILES.total_steps,
                    too_small="The last pile counts, though it is short.",
                    too_large="Each pile gives one change of course, not each paper.",
                ),
            ),
            (
                "papers in the last pile",
                number(
                    _PILES.last_batch_size,
                    too_small="How many papers are in all full piles together?",
                    too_large="The last pile gets only what the full piles leave.",
                ),
            ),
        ),
        dots=1,
        minutes=3,
    ),
    "loss of an update": Exercise(
        "Add all token losses of the update, then divide once. By what?",
        number(
            (2 * 4.0 + 8 * 1.0) / (2 + 8),
            too_small="Did the division use more than the number of targets?",
            too_large="A mean of two means gives the two targets as much say as the eight.",
        ),
        dots=2,
        minutes=4,
    ),
    "halve the noise": Exercise(
        "The noise falls with the square root of the batch size.",
        number(
            (1 / 0.5) ** 2,
            too_small="At this factor the noise falls to more than half.",
            too_large="At this factor the noise falls to less than half.",
        ),
        dots=1,
        minutes=2,
    ),
    "the say of the last batch": Exercise(
        "Under a mean for each batch, what is the weight of one example in a batch of n?",
        function(_last_say, some_sizes("examples", "batch_size")),
        dots=3,
        minutes=8,
    ),
    "one training step": Exercise(
        "Six moves, and two are done: the batch is drawn and stacked. `token_loss` takes the "
        "scores that the model gives and the targets. Begin with an empty gradient.",
        written(_try_steps),
        dots=3,
        minutes=12,
    ),
}

QUESTIONS = (
    ask(
        "An answer with 2 targets and one with 20 are in a batch. You have the gradient of each, "
        "as a mean over its own targets. How do you get the gradient of the batch?",
        no(
            "By their plain average, since a gradient is linear.",
            "It is linear, but the loss divides once, by all 22 targets. The plain average gives "
            "the 2 targets as much say as the 20.",
        ),
        yes(
            "By an average weighted with the number of targets.",
            "Then every target has the same weight, 1 in 22, as in the loss of the whole batch.",
        ),
        no(
            "Not at all: the examples must go through the model together.",
            "Nothing in this model looks across examples, so gradients of single ones add up.",
        ),
        verdict="P1",
    ),
    ask(
        "The batch grows ninefold. What becomes of the noise of its gradient?",
        yes(
            "It falls to a third.",
            "It falls with the square root of the batch size, as the error of a survey does.",
        ),
        no(
            "It falls to a ninth.",
            "That would be 1/B. The variance falls so, and the noise is its root.",
        ),
        no(
            "It stays, since the model is the same.",
            "The model is, but more examples are averaged, and their differences partly cancel.",
        ),
        verdict="P2",
    ),
    ask(
        "Batch 64 puts many more examples through per second than batch 4. Each sees the same "
        "examples once, at its own best rate. Which ended lower here?",
        no(
            "Batch 64, because its gradients are steadier.",
            "They are, but it makes sixteen times fewer updates, and that weighed more.",
        ),
        no(
            "Neither: the same examples teach the same.",
            "What is learned depends on the updates made from them as well.",
        ),
        yes(
            "Batch 4, because it makes more updates.",
            "Faster through the data is not the same as learning faster.",
        ),
        verdict="P10",
    ),
    ask(
        "The batch is the whole training set. Is its gradient free of noise?",
        no(
            "Yes: there is no other batch that could be drawn.",
            "From this set there is none. Another set of the same text gives another gradient.",
        ),
        yes(
            "For this set yes, for the text that it comes from no.",
            "The whole set is itself a sample. The notebook compares two halves of one text.",
        ),
        no(
            "No, it is as noisy as a batch of one.",
            "Noise falls with the size of the sample, so it is much smaller, though not zero.",
        ),
        verdict="P16",
    ),
    ask(
        "What do you pay for a batch of one, if it has a learning rate of its own?",
        yes(
            "Time.",
            "Each update has a fixed cost, and small matrices leave the machine idle.",
        ),
        no(
            "A higher loss for the same number of examples.",
            "Here it was, example for example, as good as any other batch size.",
        ),
        no(
            "Nothing, if you are patient enough to find its rate.",
            "It took more than twice as long as batch 16 for the same examples.",
        ),
        verdict="P17",
    ),
    ask(
        "Batches of 10, and 2 examples are left for the last one. How much does each of the two "
        "count in its update?",
        no(
            "As much as any other example.",
            "Each batch divides by its own size, so fewer examples have more say each.",
        ),
        no(
            "A fifth of the others.",
            "It is the other way round: the update is as large, and is shared by fewer.",
        ),
        yes(
            "Five times as much as the others.",
            "It has a weight of 1/2 in its update, and the others have 1/10.",
        ),
        verdict="P18",
    ),
)
