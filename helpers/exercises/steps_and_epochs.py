"""The exercises of ``02_steps_and_epochs``."""

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, function, number, numbers, some_sizes
from helpers.plan import RunPlan


def _steps(examples: int, batch_size: int, accumulation: int, epochs: int) -> int:
    return RunPlan(examples, batch_size, accumulation=accumulation, epochs=epochs).total_steps


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
