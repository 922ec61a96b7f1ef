"""The exercises of ``04_linear_scaling_limits``."""

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, number
from helpers.schedule import scale_lr

_SPREAD_GRID = (1e-5, 1e-1, 9)  # first rate, last rate, how many

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
