"""The exercises of ``08_data_parallel``."""

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, number

EXERCISES = {
    "the say on a device": Exercise(
        "In a mean over n targets each has the weight 1/n. Both means then weigh the same.",
        number(
            (1 / 10) / (1 / 30),
            too_small="Fewer targets on a device means more say for each of them.",
            too_large="Compare one target of each device, not all of them.",
        ),
        dots=2,
        minutes=4,
    ),
    "fewer devices": Exercise(
        "Global batch = a device at once × accumulation × devices.",
        number(
            (4 * 8) / (8 * 2),
            too_small="The product would stay below the recipe's.",
            too_large="Each of your devices holds more than those of the recipe.",
        ),
        dots=1,
        minutes=3,
    ),
    "bytes with split states": Exercise(
        "Parameters and gradients stay whole. Only the 12 bytes of the states are divided.",
        number(
            7 * (2 + 2 + 12 / 8),
            too_small="Parameters and gradients are not split in stage 1.",
            too_large="The states are split over all devices.",
        ),
        dots=2,
        minutes=5,
    ),
}

QUESTIONS = (
    ask(
        "Two devices have 12 and 36 targets in an update. When is it the update of one device "
        "with all 48?",
        no(
            "If each averages its own, and the two means are averaged.",
            "A target on the first device then has three times the say of the others.",
        ),
        yes(
            "If everybody divides by 48.",
            "All targets are counted over all devices before anyone divides.",
        ),
        no(
            "Never, as the numbers differ.",
            "Any numbers will do, if the divisor is that of all devices.",
        ),
        verdict="P22",
    ),
    ask(
        "You double the batch on each device. How many bytes does an update send?",
        no(
            "Twice as many.",
            "What is sent is the gradient, and it has the size of the model.",
        ),
        no(
            "Half as many.",
            "An epoch has half as many updates. Each sends as much as before.",
        ),
        yes(
            "As many as before.",
            "It sends the bytes of the parameters, whatever the batch.",
        ),
    ),
    ask(
        "You go from 1 to 4 devices, with 8 examples on each. What does the linear rule make of "
        "the rate?",
        yes(
            "Four times as much, for the global batch grew from 8 to 32.",
            "The rate follows the global batch, not the batch on a device.",
        ),
        no(
            "Nothing, for each device still has 8 examples.",
            "They make one update together, from 32 examples.",
        ),
        no(
            "A quarter, for the work is divided by four.",
            "The work is. The batch of an update is multiplied.",
        ),
    ),
    ask(
        "`set_epoch` was forgotten. What happens?",
        no(
            "All devices work on the same examples.",
            "Each still has its own share, the same one in each epoch.",
        ),
        yes(
            "Every epoch has the same order.",
            "Nothing crashes. At this scale the loss hardly showed it.",
        ),
        no("The run stops with an error.", "It goes on in silence, and so it is easily missed."),
    ),
    ask(
        "Parameters, gradients and states are split over the devices. What becomes of the update?",
        no(
            "It is another one, as each device sees a part of the model.",
            "The parts are fetched when they are needed. Each device computes with all of them.",
        ),
        no(
            "It is the same, and is made faster.",
            "More is sent than without the split. What is saved is memory.",
        ),
        yes(
            "It is the same up to rounding, for less memory and more that is sent.",
            "Splitting changes where numbers lie, and not what is computed.",
        ),
    ),
)
