"""The exercises of ``08_data_parallel``."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from helpers.exercises.questions import ask, no, yes
from helpers.exercises.reviews import Exercise, number, of_a_function

if TYPE_CHECKING:
    from torch import Tensor

_PATIENCE = 1.0  # seconds after which a device that waits for the others has waited for ever
_SETTINGS = {  # the sum of the gradients of its targets, and how many they are, on each device
    "one device": [([6.0, 3.0], 3)],
    "two devices that have as many targets each": [([4.0, 2.0], 2), ([8.0, -6.0], 2)],
    "two devices, with 30 targets and 10": [([60.0, 30.0], 30), ([40.0, 10.0], 10)],
    "three devices, one of them without a target": [
        ([4.0, 8.0], 4),
        ([0.0, 0.0], 0),
        ([6.0, 2.0], 1),
    ],
}


@of_a_function
def _average(answer: Callable[..., Any]) -> str | None:
    """Review a function that each device calls with its own part of an update."""
    import torch

    for setting, held in _SETTINGS.items():
        sums = [torch.tensor(numbers, dtype=torch.float64) for numbers, _ in held]
        counts = [count for _, count in held]
        problem = _judged(_on_each(answer, sums, counts), sums, counts)
        if problem:
            return problem if problem == "unanswered" else f"with {setting}, {problem}"
    return None


def _on_each(
    function: Callable[..., Any], sums: Sequence["Tensor"], counts: Sequence[int]
) -> list[Any]:
    """Return what the function returns, or the error that it raises, on each device at once."""
    meeting = threading.Barrier(len(sums))
    sent: list[Any] = [None] * len(sums)
    returned: list[Any] = [None] * len(sums)

    def device(rank: int) -> None:
        def all_reduce(value: Any) -> Any:  # noqa: ANN401
            sent[rank] = value
            meeting.wait(_PATIENCE)
            total = sum(sent)
            meeting.wait(_PATIENCE)  # nobody sends again before all have added up
            return total

        try:
            returned[rank] = function(sums[rank].clone(), counts[rank], all_reduce)
        except Exception as error:
            returned[rank] = error

    threads = [threading.Thread(target=device, args=(rank,)) for rank in range(len(sums))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return returned


def _judged(returned: list[Any], sums: Sequence["Tensor"], counts: Sequence[int]) -> str | None:
    """Return what is wrong with what the devices return, or None."""
    waiting = [isinstance(value, threading.BrokenBarrierError) for value in returned]
    for rank, value in enumerate(returned):
        if isinstance(value, Exception) and not waiting[rank]:
            return f"device {rank} raises {type(value).__name__}: {value}"
    if any(waiting):
        rank = waiting.index(True)
        return (
            f"device {rank} waits for the others without end. All devices must call `all_reduce` "
            "equally often, those without a target too."
        )
    if any(value is ... for value in returned):
        return "unanswered"
    right = sum(sums) / sum(counts)
    for rank, value in enumerate(returned):
        if getattr(value, "shape", None) != right.shape:
            return f"device {rank} returns {value!r}, and not a gradient of two numbers."
        if not value.allclose(right, rtol=1e-9):
            return f"device {rank} returns {value.tolist()}. {_reason(value, sums, counts)}"
    return None


def _reason(value: "Tensor", sums: Sequence["Tensor"], counts: Sequence[int]) -> str:
    if value.allclose(sum(sums)):
        return "It is the sum. By what has it to be divided?"
    if value.allclose(sum(sums) / len(sums)):
        return "It is divided by the devices. A mean over targets is divided by targets."
    if min(counts) and value.allclose(sum(a / n for a, n in zip(sums, counts)) / len(sums)):
        return "That is the mean of the devices' own means. Which targets have too much weight?"
    if min(counts) and any(value.allclose(a / n) for a, n in zip(sums, counts)):
        return "That is the mean of one device alone. The others have sent nothing."
    return "Which two sums does the mean over all targets need?"


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
    "the average over devices": Exercise(
        "The mean over all targets is one sum divided by another. Each device has a part of both, "
        "and `all_reduce` adds the parts up.",
        _average,
        dots=3,
        minutes=12,
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
