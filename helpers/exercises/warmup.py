"""The exercises of ``06_warmup``."""

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, number

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
