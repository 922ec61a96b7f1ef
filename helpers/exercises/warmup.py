"""The exercises of ``06_warmup``."""

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, number
from helpers.exercises.written import Trial, trials
from helpers.schedule import lr_factors


def _at(setting: str, update: int, total: int, warmup: int, *slips: tuple[float, str]) -> Trial:
    given = {"update": update, "total": total, "warmup": warmup}
    return Trial(setting, given, lr_factors(total, warmup, "linear")[update - 1], slips)


_CURVE = (
    _at(
        "the first update of a warmup", 1, 10, 4, (0.0, "No update should be made at a rate of 0.")
    ),
    _at("the middle of a warmup", 2, 10, 4, (1 / 4, "Updates count from 1.")),
    _at("the end of a warmup", 4, 10, 4, (3 / 4, "The last update of it has the full rate.")),
    _at(
        "the update after it",
        5,
        10,
        4,
        (1.0, "The line begins to fall at once."),
        (5 / 6, "The line is at zero one update after the last."),
    ),
    _at("the last update", 10, 10, 4, (0.0, "The line is at zero one update after the last.")),
    _at("no warmup", 1, 4, 0, (4 / 5, "The first update has the full rate.")),
    _at("no warmup, later", 3, 4, 0),
    _at("a warmup longer than the run", 3, 3, 6),
)

EXERCISES = {
    "a warmup in examples": Exercise(
        "Examples of the warmup = updates × batch size. Keep the product.",
        number(
            500 * 256 / 1024,
            too_small="The batch does not grow by that much.",
            too_large="Each update now sees four times the examples.",
        ),
        dots=1,
        minutes=3,
    ),
    "a warmup that is too long": Exercise(
        "Update k of a warmup of w has the share k ÷ w.",
        number(
            60 / 80,
            too_small="The last update is number 60.",
            too_large="The run ends before the warmup does.",
        ),
        dots=1,
        minutes=2,
    ),
    "stepped per micro-batch": Exercise(
        "Each update moves the schedule on by as many places as it has micro-batches.",
        number(
            1000 / 8,
            too_small="Divide once.",
            too_large="An update has eight micro-batches, and each moves the schedule on.",
        ),
        dots=2,
        minutes=4,
    ),
    "the curve of the rate": Exercise(
        "Three cases: in the warmup, at its end, after it. For the last one count the steps of the "
        "line from the full rate to zero.",
        trials(*_CURVE),
        dots=3,
        minutes=10,
    ),
}

QUESTIONS = (
    ask(
        "What does a warmup change most?",
        no(
            "The best loss that can be reached.",
            "At the best rate it hardly gained anything here.",
        ),
        no(
            "The number of updates of the run.",
            "It changes their rates, not their number.",
        ),
        yes(
            "The largest rate that the run survives.",
            "Near the limit it decides whether a run is lost.",
        ),
        verdict="P11",
    ),
    ask(
        "A warmup of 200 updates was copied into a run of 50. How far does the rate get?",
        yes(
            "To a quarter of what was set.",
            "Update k has the share k/w, and the last is 50/200.",
        ),
        no(
            "All the way: a tool shortens a warmup that is too long.",
            "It counts as it was told. Give it as a share of the run.",
        ),
        no(
            "To half of what was set.",
            "Half is the middle of a warmup. This run ends at a quarter of it.",
        ),
        verdict="P12",
    ),
    ask(
        "A batch that grows from 8 to 128 ends lower than a constant batch of 128. Does growing "
        "help?",
        no(
            "Yes: it won with the same examples.",
            "It also made more updates, and that alone could be the reason.",
        ),
        yes(
            "Not shown: a constant batch with as many updates must be beaten first.",
            "Here that constant batch ended no higher. The number of updates decided.",
        ),
        no(
            "No: growing a batch does harm.",
            "Large models saved updates that way. At this scale no effect of its own was seen.",
        ),
        verdict="P13",
    ),
    ask(
        "Accumulation is 4, the warmup is 100 updates, and the schedule is moved on at every "
        "micro-batch by mistake. After how many updates is the warmup over?",
        no("100", "It is moved on four times an update, so it runs ahead."),
        yes("25", "Four moves an update, so 100 moves are 25 updates."),
        no("400", "That is the other direction: it would be moved on too rarely."),
    ),
    ask(
        "How far does the first update of Adam move a weight?",
        no(
            "In proportion to its gradient.",
            "So does SGD. Adam divides by the size of the gradient.",
        ),
        no(
            "Hardly at all, since its averages begin at zero.",
            "That is corrected for: each average is divided by the weight it has collected so far.",
        ),
        yes(
            "By the whole learning rate, up or down.",
            "With no history, the gradient is divided by its own size. Later steps are smaller.",
        ),
    ),
)
