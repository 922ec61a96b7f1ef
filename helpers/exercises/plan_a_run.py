"""The exercises of ``09_plan_a_run``."""

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, number
from helpers.exercises.written import Trial, trials


def _tried(setting: str, batch: int, size: int, devices: int, *slips: tuple[float, str]) -> Trial:
    given = {"global_batch": batch, "batch_size": size, "devices": devices}
    accumulation, rest = divmod(batch, size * devices)
    return Trial(setting, given, ValueError if rest else accumulation, slips)


_TRIALS = (
    _tried("one device, all of it at once", 8, 8, 1),
    _tried(
        "one device",
        32,
        8,
        1,
        (8, "That is the batch on the device."),
    ),
    _tried(
        "several devices",
        256,
        4,
        8,
        (64, "All devices work at once. Divide by their number as well."),
        (512, "More devices need less accumulation."),
    ),
    _tried("a batch that the devices cannot share evenly", 100, 8, 4),
    _tried("a batch smaller than what the devices take at once", 8, 4, 4),
    _tried("sixteen devices", 512, 4, 16),
)

EXERCISES = {
    "accumulation for 512": Exercise(
        "All cards together take 8 × 4 sequences at once.",
        number(
            512 / (8 * 4),
            too_small="The product would stay below 512.",
            too_large="Did you count all four cards?",
        ),
        dots=1,
        minutes=2,
    ),
    "a batch from a log": Exercise(
        "First the updates of one epoch.",
        number(
            12_000 / (1125 / 3),
            too_small="The updates are those of all three epochs.",
            too_large="Every epoch passes over all examples once, and no more.",
        ),
        dots=1,
        minutes=3,
    ),
    "minutes of a run": Exercise(
        "Updates × seconds, and a fifth more. Then minutes.",
        number(
            75 * 1.5 * 1.2 / 60,
            too_small="Is the fifth added?",
            too_large="A minute has 60 seconds.",
        ),
        dots=1,
        minutes=3,
    ),
    "an accumulation for any batch": Exercise(
        "How many examples do all devices take at once? `divmod(a, b)` gives how often b goes into "
        "a, and what is left over.",
        trials(*_TRIALS),
        dots=3,
        minutes=10,
    ),
}

QUESTIONS = (
    ask(
        "The recipe uses batch 64. On your one card 4 fit at once. What do you change?",
        yes(
            "The accumulation, to 16.",
            "Then updates, warmup and rate stay those of the recipe.",
        ),
        no(
            "The batch, to 4, and nothing else.",
            "There would be sixteen times as many updates, at a rate that is not theirs.",
        ),
        no(
            "The batch, to 4, and the warmup with it.",
            "The rate belongs to the recipe's batch too. Keep the batch, and split it.",
        ),
    ),
    ask(
        "Which line of a plan is the roughest?",
        no("The number of updates.", "It is arithmetic, and exact."),
        no("The tokens processed.", "They are tokens × epochs, and exact."),
        yes("The time.", "It is good within a factor of two, or better after a few timed updates."),
    ),
    ask(
        "A log says 1,000 examples, 2 epochs and 126 updates. What was the batch?",
        no("8", "That is for 126 updates in one epoch. There were two epochs."),
        yes("16", "63 updates an epoch: 62 full ones of 16, and a last one of 8."),
        no("32", "That would be 32 updates an epoch."),
    ),
    ask(
        "A batch of 256 on two machines with 8 cards each, and 4 examples fit on a card. Which "
        "accumulation?",
        yes("4", "16 cards take 64 at once, and 256 ÷ 64 is 4."),
        no("8", "That counts the cards of one machine. The divisor is all cards."),
        no("64", "That counts one card."),
    ),
    ask(
        "Your plan says 75 updates, and the tool announces 74. What now?",
        no(
            "Nothing: it is one update.",
            "One today. The reason may cost an update in each epoch of another run.",
        ),
        no(
            "Change the rate until they agree.",
            "The rate has nothing to do with the count.",
        ),
        yes(
            "Find out what it leaves out before you start.",
            "Some tools drop the short batch or the short window at the end of an epoch.",
        ),
    ),
    ask(
        "Which of these statements held in these notebooks without any condition?",
        no(
            "Memory is proportional to the batch size.",
            "It is a straight line at best, and does not start at zero.",
        ),
        yes(
            "Bigger batches give steadier gradients.",
            "The noise falls with the square root of the batch size.",
        ),
        no(
            "Double the batch, double the learning rate.",
            "It held where rates are small. The best rate grew more slowly.",
        ),
        verdict="P2",
    ),
)
