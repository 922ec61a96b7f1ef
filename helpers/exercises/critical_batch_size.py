"""The exercises of ``05_critical_batch_size``."""

import math

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, number
from helpers.exercises.written import Trial, trials


def _noise_scale(answer: object) -> str | None:
    """Review a function from the gradients of examples to their noise scale."""
    import torch

    def tried(setting: str, rows: list[list[float]], *slips: tuple[float, str]) -> Trial:
        gradients = torch.tensor(rows, dtype=torch.float64)
        trace = gradients.var(0).sum().item()
        squared = gradients.mean(0).square().sum().item() - trace / len(rows)
        right = trace / squared if squared > 0 else math.inf
        return Trial(setting, {"gradients": gradients}, right, slips)

    return trials(
        tried("examples that all agree", [[2.0], [2.0], [2.0]]),
        tried(
            "one weight",
            [[1.0], [3.0]],
            (2 / 4, "The mean gradient has noise in it, too: take trace ÷ examples off."),
            (1 / 3.5, "Divide the squared differences by examples − 1, for the mean is not given."),
            (1 / 4, "Divide the squared differences by examples − 1, for the mean is not given."),
            (3 / 2, "Upside down: the noise stands above the line."),
        ),
        tried(
            "two weights",
            [[1.0, 1.0], [3.0, 2.0], [2.0, 3.0]],
            (1 / (8 - 2 / 3), "Add the variances of all weights up. Their mean is not asked for."),
            (2 / 8, "The mean gradient has noise in it, too: take trace ÷ examples off."),
        ),
        tried("three weights", [[2.0, 0.0, 1.0], [2.0, 1.0, 1.0], [5.0, 2.0, -1.0]]),
        tried(
            "noise that hides the gradient",
            [[1.0], [-1.0]],
            (-2.0, "The squared length comes out below zero: then the noise scale is infinite."),
        ),
    )(answer)


EXERCISES = {
    "examples at a large batch": Exercise(
        "First the updates, S_min × (1 + B_crit ÷ B). Each takes B examples.",
        number(
            200 * 100 * (1 + 50 / 200),
            too_small="Do more than the least updates, and each of them takes a whole batch.",
            too_large="At four times the critical batch the updates are nearly the least.",
        ),
        dots=2,
        minutes=5,
    ),
    "noise scale by hand": Exercise(
        "Put the four numbers into both formulas, and divide the trace by the squared length.",
        number(
            (2.0 - 1.25) / (1 / 8 - 1 / 32) / ((32 * 1.25 - 8 * 2.0) / (32 - 8)),
            too_small="Which difference is divided by which difference of 1/B?",
            too_large="The squared length without noise is smaller than both that were measured.",
        ),
        dots=3,
        minutes=8,
    ),
    "same batch in tokens": Exercise(
        "Tokens of a batch = sequences × context. Keep the product.",
        number(
            512 * 2048 / 8192,
            too_small="The context grows by less than that.",
            too_large="Longer sequences: fewer of them.",
        ),
        dots=1,
        minutes=2,
    ),
    "a noise scale of your own": Exercise(
        "First the trace: `gradients.var(0)` is the variance of each weight over the examples. "
        "Then the squared length of the mean, less the noise that is left in it.",
        _noise_scale,
        dots=3,
        minutes=15,
    ),
}

QUESTIONS = (
    ask(
        "You are far above the critical batch size and double the batch. How many updates does "
        "the target take now?",
        no(
            "Half as many.",
            "So it is far below the critical batch. Here the least number is nearly reached.",
        ),
        yes(
            "Hardly fewer.",
            "The updates are near their least. Nearly all of the further examples are wasted.",
        ),
        no(
            "Twice as many.",
            "The examples double. The updates do not rise.",
        ),
        verdict="P8",
    ),
    ask(
        "What does a run spend exactly at the critical batch size?",
        yes(
            "Twice the least updates, and twice the least examples.",
            "It is the corner of the curve: (2 − 1) × (2 − 1) = 1.",
        ),
        no(
            "The least of both.",
            "No batch size has both. What saves the one spends the other.",
        ),
        no(
            "The least updates, and twice the least examples.",
            "The least updates cost examples without end.",
        ),
    ),
    ask(
        "Batch 256 puts more examples through per second than batch 64, and comes later to the "
        "target. How can that be?",
        no(
            "It cannot: the timing must be wrong.",
            "Examples per second and examples needed are two things.",
        ),
        no(
            "Its gradients are noisier.",
            "They are steadier, and that is what no longer pays.",
        ),
        yes(
            "It needs many more examples.",
            "Past the critical batch the examples buy less than the machine gains.",
        ),
        verdict="P10",
    ),
    ask(
        "The noise scale near the end of a run is 60, and the fitted critical batch is 20. What "
        "do you make of it?",
        no(
            "One of the two was measured wrongly.",
            "They answer different questions, and need not agree.",
        ),
        yes(
            "The noise scale is a hint: it is about one update, at that moment.",
            "The critical batch is about a whole run to a target, with its own optimizer.",
        ),
        no(
            "The critical batch is 60 as well, if only the fit had more points.",
            "Other work finds the noise scale far below it. It is no law in either direction.",
        ),
    ),
    ask(
        "Why may a long run begin with a small batch and grow it?",
        yes(
            "The critical batch begins near nothing, and grows.",
            "Early on a large batch wastes examples. Later the same batch is nearly free.",
        ),
        no(
            "At the start there is less memory.",
            "What an example takes in memory stays the same over the run.",
        ),
        no(
            "A small batch needs no learning rate.",
            "Each batch size needs a rate of its own.",
        ),
    ),
)
