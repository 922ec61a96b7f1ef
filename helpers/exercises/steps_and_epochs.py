"""The exercises of ``02_steps_and_epochs``."""

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
    ),
    "count the updates": Exercise(
        "Two roundings: examples to batches, then batches to updates. Which way does each go?",
        function(_steps, some_sizes("examples", "batch_size", "accumulation", "epochs")),
    ),
    "tokens billed": Exercise(
        "Every epoch reads the whole file again.",
        number(
            RunPlan(1, 1, tokens=250_000, epochs=4).tokens_processed,
            too_small="Each pass over the file is processed anew.",
            too_large="The batch size does not change how many tokens there are.",
        ),
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
    ),
}
