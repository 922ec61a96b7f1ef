"""The exercises of ``04_linear_scaling_limits``."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, number
from helpers.exercises.written import Off, as_number, called, written
from helpers.schedule import scale_lr

_SPREAD_GRID = (1e-5, 1e-1, 9)  # first rate, last rate, how many

# For each setting its batches and rates; a batch holds inputs and targets, a token is one of three.
_SWEEPS = (
    ("one batch and one rate", [([[0]], [[1]])], [0.5]),
    ("three batches and one rate", [([[0]], [[1]]), ([[1]], [[2]]), ([[0]], [[1]])], [0.5]),
    ("one batch and two rates", [([[0]], [[1]])], [0.5, 1.0]),
    ("a rate that is too large", [([[0]], [[1]]), ([[0]], [[2]])], [0.5, 60.0, 1.0]),
)
_HELD_OUT = ([[0, 1]], [[1, 2]])


def _try_sweeps(final_losses: Callable[..., Any]) -> None:
    """Sweep with models of nine weights: for each token the scores of the next one."""
    import torch

    def fresh_model() -> torch.nn.Module:
        return torch.nn.Embedding.from_pretrained(torch.zeros(3, 3), freeze=False)

    held_out = tuple(map(torch.tensor, _HELD_OUT))
    for setting, numbers, rates in _SWEEPS:
        batches = [tuple(map(torch.tensor, pair)) for pair in numbers]
        made = called(final_losses, setting, fresh_model, batches, held_out, rates)
        if not hasattr(made, "__len__") or len(made) != len(rates):
            raise Off(f"with {setting} one loss for each rate is asked for, not {made!r}.")
        found = [as_number(loss, setting, "a list of numbers") for loss in made]
        _compare(setting, found, partial(_swept, batches, held_out, rates))


def _swept(
    batches: list,
    held_out: tuple,
    rates: list[float],
    *,
    keep_gradient: bool = False,
    keep_model: bool = False,
    name_lost: bool = True,
) -> list[float]:
    """Return the loss at the end for each rate, right or with a slip that students make."""
    import torch

    def loss_of(weight: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(weight[inputs].flatten(0, 1), targets.flatten())

    weight = torch.zeros(3, 3)
    start, found = loss_of(weight, *held_out).item(), []
    for rate in rates:
        weight = weight if keep_model else torch.zeros(3, 3)
        gradient = torch.zeros(3, 3)
        for batch in batches:
            at = weight.clone().requires_grad_()
            (new,) = torch.autograd.grad(loss_of(at, *batch), at)
            gradient = gradient + new if keep_gradient else new
            weight = weight - rate * gradient
        loss = loss_of(weight, *held_out).item()
        found.append(math.nan if name_lost and not loss <= start else loss)
    return found


def _compare(setting: str, found: list[float], swept: Callable[..., list[float]]) -> None:
    """Say which slip the losses come from, if they are off."""
    if _alike(found, swept()):
        return
    why = next(
        (
            why
            for why, how in (
                (
                    "A run that ends above the loss it began with is lost: NaN.",
                    {"name_lost": False},
                ),
                (
                    "Each rate begins with the first weights, in a fresh model.",
                    {"keep_model": True},
                ),
                ("Each update begins with an empty gradient.", {"keep_gradient": True}),
            )
            if _alike(found, swept(**how))
        ),
        "For each rate: a fresh model, an update for every batch, the loss on held-out text.",
    )
    raise Off(f"with {setting} the losses are off. {why}")


def _alike(found: list[float], wanted: list[float]) -> bool:
    return all(
        math.isclose(one, other, rel_tol=1e-4) or (math.isnan(one) and math.isnan(other))
        for one, other in zip(found, wanted)
    )


EXERCISES = {
    "the linear rule": Exercise(
        "By which factor does the batch grow? The rate grows by the same.",
        number(
            scale_lr(3e-4, from_batch=32, to_batch=256),
            too_small="Is it the linear rule, or the square root?",
            too_large="The batch does not grow by that much.",
        ),
        dots=1,
        minutes=2,
    ),
    "other cards, same batch": Exercise(
        "Multiply batch size, accumulation and devices, before and after.",
        number(
            scale_lr(1.0, from_batch=4 * 1 * 4, to_batch=8 * 1 * 2),
            too_small="Fewer devices, but each holds more.",
            too_large="Each device holds more, but there are fewer of them.",
        ),
        dots=2,
        minutes=4,
    ),
    "a grid of rates": Exercise(
        "From the first rate to the last there is one factor fewer than there are rates.",
        number(
            (_SPREAD_GRID[1] / _SPREAD_GRID[0]) ** (1 / (_SPREAD_GRID[2] - 1)),
            too_small="With this factor the grid ends before the last rate.",
            too_large="With this factor the grid ends beyond the last rate.",
        ),
        dots=2,
        minutes=5,
    ),
    "a sweep of rates": Exercise(
        "Two loops: over the rates outside, over the batches inside. What has to be new for each "
        "rate, and what for each batch?",
        written(_try_sweeps),
        dots=3,
        minutes=15,
    ),
}

QUESTIONS = (
    ask(
        "A run has a small rate. You take four times the batch and four times the rate. What does "
        "the linear rule promise?",
        no(
            "The best rate of the new batch.",
            "The best rate grew more slowly here, and that of SGD hardly at all.",
        ),
        yes(
            "Nearly the same run, while all rates are small.",
            "It carries a run over to another batch. It does not find the best one.",
        ),
        no(
            "A lower loss in as many updates.",
            "There are a quarter of the updates, each four times as long.",
        ),
        verdict="P7",
    ),
    ask(
        "Why does the rule end somewhere for plain SGD?",
        no(
            "The noise grows with the batch.",
            "It falls. That is why one would like to take longer steps.",
        ),
        no(
            "A large batch runs out of memory.",
            "The rule ends on machines with room to spare as well.",
        ),
        yes(
            "The valley sets a largest step, and the batch does not make it wider.",
            "Near 2 ÷ sharpness there is nothing left to scale, whatever the batch.",
        ),
        verdict="P7",
    ),
    ask(
        "A bowl of fixed shape, and rate × sharpness is 2.5. What do the steps do?",
        yes(
            "Each lands higher on the other side.",
            "Above 2 every step overshoots by more than it came from.",
        ),
        no(
            "They swing at the same height for ever.",
            "That would be exactly 2.",
        ),
        no(
            "They settle, only slowly.",
            "Below 2 they do. A real valley may catch them too, as it widens further out.",
        ),
    ),
    ask(
        "Few data, many passes, tuned rates: batch 4 ends lower than batch 32 at equal epochs. "
        "What explains most of it here?",
        no(
            "It finds flatter places because of its noise.",
            "Then it should win at equal updates as well. There the difference was nearly gone.",
        ),
        yes(
            "It makes eight times as many updates.",
            "At equal updates, batch 32 was hardly worse, if at all.",
        ),
        no(
            "It sees more examples.",
            "At equal epochs both see every example equally often.",
        ),
        verdict="P9",
    ),
    ask(
        "AdamW's best rate grew with the batch while all runs saw the same examples. And when all "
        "make the same number of updates?",
        no(
            "It grows as much.",
            "It moved much less. Fewer updates were a large part of what looked like the batch.",
        ),
        no(
            "It becomes meaningless, as the runs see different numbers of examples.",
            "Each comparison holds one thing equal. One has to say which.",
        ),
        yes(
            "It moves much less.",
            "With few updates each must go further, and that looks like a rule for batches.",
        ),
    ),
)
