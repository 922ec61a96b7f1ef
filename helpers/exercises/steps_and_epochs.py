"""The exercises of ``02_steps_and_epochs``."""

from collections.abc import Callable
from typing import Any

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, function, number, numbers, some_sizes
from helpers.exercises.written import Off, called, written
from helpers.plan import RunPlan


def _steps(examples: int, batch_size: int, accumulation: int, epochs: int) -> int:
    return RunPlan(examples, batch_size, accumulation=accumulation, epochs=epochs).total_steps


def _try_epochs(batches_of: Callable[..., Any]) -> None:
    """Draw epochs of a few examples, then of many, where chance cannot give the order twice."""
    for examples, batch_size in ((1, 1), (4, 2), (5, 2), (3, 8), (100, 8)):
        _drawn(batches_of, examples, batch_size, epoch=0)
    first = _drawn(batches_of, 100, 8, epoch=0)
    if first == [*range(100)]:
        raise Off("the batches are whole, but the examples come in the order of the file.")
    if _drawn(batches_of, 100, 8, epoch=0) != first:
        raise Off(
            "epoch 0 comes out in another order when it is drawn again, so that no run could be "
            "repeated. Give the number of the epoch to the generator as its seed."
        )
    if _drawn(batches_of, 100, 8, epoch=1) == first:
        raise Off("epoch 1 has the order of epoch 0. Each epoch is to have an order of its own.")


def _drawn(batches_of: Callable[..., Any], examples: int, batch_size: int, epoch: int) -> list[int]:
    """Return the positions of an epoch in their order, or say what is off about its batches."""
    setting = f"examples={examples}, batch_size={batch_size}, epoch={epoch}"
    made = called(batches_of, setting, examples, batch_size, epoch)
    try:
        batches = [[int(position) for position in batch] for batch in made]
    except TypeError:
        raise Off(f"with {setting} a list of batches is asked for, not {made!r}.") from None
    positions = [position for batch in batches for position in batch]
    sizes = [len(batch) for batch in batches]
    missing = set(range(examples)) - set(positions)
    if missing:
        raise Off(f"with {setting} example {min(missing)} is in no batch; the sizes are {sizes}.")
    if len(positions) != examples or len(set(positions)) != examples:
        raise Off(
            f"with {setting} there are {len(positions)} examples in all batches. Each position "
            f"from 0 to {examples - 1} is to be there once."
        )
    whole, rest = divmod(examples, batch_size)
    if sizes != [batch_size] * whole + [rest] * (rest > 0):
        raise Off(f"with {setting} the sizes are {sizes}: all full, and what is left at the end.")
    return positions


_DROPPED = RunPlan(810, 8, epochs=3, drop_last=True)
_KEPT = _DROPPED.replace(drop_last=False)

EXERCISES = {
    "kept or dropped": Exercise(
        "Work out one epoch first. The short batch at its end is there three times, or not at all.",
        numbers(
            (
                "last batch kept",
                number(
                    _KEPT.total_steps,
                    too_small="The short batch at the end of an epoch is an update too.",
                    too_large="Divide by the batch size before multiplying by the epochs.",
                ),
            ),
            (
                "last batch dropped",
                number(
                    _DROPPED.total_steps,
                    too_small="Only a batch that is not full is dropped, once an epoch.",
                    too_large="Every epoch drops its short batch.",
                ),
            ),
        ),
        dots=2,
        minutes=4,
    ),
    "count the updates": Exercise(
        "Two roundings: examples to batches, then batches to updates. Which way does each go?",
        function(_steps, some_sizes("examples", "batch_size", "accumulation", "epochs")),
        dots=3,
        minutes=8,
    ),
    "tokens billed": Exercise(
        "Every epoch reads the whole file again.",
        number(
            RunPlan(1, 1, tokens=250_000, epochs=4).tokens_processed,
            too_small="Each pass over the file is processed anew.",
            too_large="The batch size does not change how many tokens there are.",
        ),
        dots=1,
        minutes=2,
    ),
    "records in a conversation": Exercise(
        "Count what is to be predicted, not what was said.",
        numbers(
            (
                "one record for the conversation",
                number(1, too_small="There is something to predict.", too_large="It stays whole."),
            ),
            (
                "one record for each target",
                number(
                    sum(role == "assistant" for role in ("system", *("user", "assistant") * 3)),
                    too_small="Every answer of the assistant is a target.",
                    too_large="What the user and the system say is given, not predicted.",
                ),
            ),
        ),
        dots=2,
        minutes=4,
    ),
    "the batches of an epoch": Exercise(
        "Shuffle the positions, then cut them into pieces. `torch.randperm` shuffles, and takes a "
        "`torch.Generator` with a seed; `split` cuts a tensor.",
        written(_try_epochs),
        dots=3,
        minutes=12,
    ),
}

QUESTIONS = (
    ask(
        "100 examples in batches of 8, the last batch kept. How many updates are in three epochs?",
        no(
            "36",
            "That leaves out the short batch at the end of each epoch. It is an update too.",
        ),
        yes("39", "Twelve full batches and a short one are 13 an epoch, three times."),
        no(
            "38",
            "That rounds 37.5 up once, at the end. Every epoch ends with a short batch of its own.",
        ),
    ),
    ask(
        "40 examples for 120 epochs, or 800 for 6: as many updates. How does the first model do "
        "on new questions?",
        no(
            "As well: what counts is the number of updates.",
            "Its loss on its own 40 goes to nearly zero, and on new questions it rises.",
        ),
        no(
            "Worse at the end, but as well if it is stopped at its best moment.",
            "Stopping helps, and does not close the gap.",
        ),
        yes(
            "Worse, also if it is stopped at its best moment.",
            "More epochs do not make up for missing data: it learns its few examples by heart.",
        ),
        verdict="P14",
    ),
    ask(
        "You have fresh text for a quarter of your updates. What do four passes over it cost, "
        "compared with text that is fresh all the time?",
        yes(
            "Next to nothing.",
            "Up to four passes were nearly free here, and were so at a much larger scale.",
        ),
        no(
            "Much: whatever is repeated hurts.",
            "It hurts when it is repeated often. At 64 passes the cost was plain to see.",
        ),
        no(
            "Less than nothing: the model learns this text all the better.",
            "It learns the text by heart then, and not the language.",
        ),
        verdict="P15",
    ),
    ask(
        "A conversation has a system message, two questions and two answers. How many training "
        "records does it make?",
        no("Five.", "That counts messages. Records are counted by what is to be predicted."),
        yes(
            "One or two.",
            "It stays whole, with two targets, or it becomes one record for each answer.",
        ),
        no(
            "Four.",
            "What the user says is given, not predicted, so questions are no records.",
        ),
        verdict="P23",
    ),
    ask(
        "At equal epochs and one learning rate, batch 8 ends lower than batch 64. What follows?",
        no(
            "Small batches are better.",
            "At equal updates it turned round: then the larger batch sees more examples.",
        ),
        no(
            "The run with batch 64 had a fault.",
            "It made an eighth of the updates. That is no fault, and it is enough.",
        ),
        yes(
            "Little, before one knows how many updates each made.",
            "Say what is held equal, epochs or updates, before you compare.",
        ),
    ),
)
