import math
import random
import re
from functools import partial
from pathlib import Path

import nbformat
import numpy
import pytest
import torch

from helpers import exercises
from helpers.exercises import EXERCISES, NOTEBOOKS, about, assess, check, hint, progress
from helpers.footprint import estimate
from helpers.model import token_loss
from helpers.shapes import SHAPES

FOLDER = Path(__file__).parent.parent / "notebooks"

NAME = "halve the noise"

# For each exercise: the right answer by hand, and wrong ones that readers are likely to give.
RIGHT = {
    "the linear rule": 0.0024,
    "other cards, same batch": 1,
    "a grid of rates": 10**0.5,
    "accumulation for 512": 16,
    "a batch from a log": 32,
    "minutes of a run": 2.25,
    "a warmup in examples": 125,
    "a warmup that is too long": 0.75,
    "stepped per micro-batch": 125,
    "largest batch of a card": 14,
    "bytes of the logits": 1000,
    "gigabytes of a card": 22.3517418,
    "examples at a large batch": 25_000,  # 125 updates
    "noise scale by hand": 8,  # trace 0.75 ÷ (3 ÷ 32) = 8, squared length (40 - 16) ÷ 24 = 1
    "same batch in tokens": 128,
    "piles of papers": (8, 52),
    "loss of an update": 1.6,
    "halve the noise": 4,
    "kept or dropped": (306, 303),
    "tokens billed": 1_000_000,
    "records in a conversation": (1, 3),
    "the say of a short micro-batch": 4,
    "accumulation for a recipe": 12,
    "the say on a device": 3,
    "fewer devices": 2,
    "bytes with split states": 38.5,
}
WRONG = {
    "the linear rule": [3e-4, 8.5e-4, 1.2e-3, 0.0768],
    "other cards, same batch": [0.5, 2, 2**0.5],
    "examples at a large batch": [125, 20_000, 5_000, 50_000, "25,000"],
    "noise scale by hand": [1, 6, 0.125, 32, None],
    "same batch in tokens": [512, 2048, 64, 1_048_576],
    "largest batch of a card": [16, 8, 13, 21, "14"],
    "bytes of the logits": [500, 250, 1048.576, 1e9, None],
    "gigabytes of a card": [24, 25.77, 20.8, "22.35"],
    "a warmup in examples": [500, 2000, 64, "125"],
    "a warmup that is too long": [1, 0.6, 4 / 3, 75],
    "stepped per micro-batch": [1000, 8000, 8, None],
    "accumulation for 512": [64, 128, 4, "16"],
    "a batch from a log": [10, 11, 96, None],
    "minutes of a run": [1.875, 135, 112.5],
    "a grid of rates": [10 ** (4 / 9), 10, 10 ** (4 / 7), "3.16"],
    "piles of papers": [(7, 52), (8, 64), (500, 52), (8, 12), 8, (8,), ("8", "52"), None],
    "loss of an update": [2.5, 1.0, 16, 0.8, True, "1.6"],
    "halve the noise": [2, 1.41, 8, 0.25],
    "kept or dropped": [(304, 303), (306, 304), (102, 101), (303, 303)],
    "tokens billed": [250_000, 4_000_000, 62_500],
    "records in a conversation": [(3, 1), (7, 7), (1, 7), (1, 1), (0, 3)],
    "the say of a short micro-batch": [1, 0.25, 2, 16],
    "accumulation for a recipe": [24, 96, 3, 8],
    "the say on a device": [1 / 3, 1, 9],
    "fewer devices": [1, 4, 0.5, 8],
    "bytes with split states": [112, 14, 5.5, 28],
}


def right_function(examples, batch_size, accumulation=1, epochs=1):
    """Count by walking, one example after the other."""
    updates = 0
    for _ in range(epochs):
        batches = len(range(0, examples, batch_size))
        updates += len(range(0, batches, accumulation))
    return updates


def last_say(examples, batch_size):
    last = [len(range(start, min(start + batch_size, examples))) for start in
            range(0, examples, batch_size)][-1]  # fmt: skip
    return batch_size / last


def pooled(sums, counts):
    """Give each target its micro-batch's mean, then take the mean over all of them."""
    each = [total / count for total, count in zip(sums, counts) for _ in range(count)]
    return sum(each) / len(each)


def step(model, optimizer, inputs, targets, *, empty=True, move=True, divide="mean", late=False):
    """Make one training step, or one with a slip."""
    if empty:
        optimizer.zero_grad()
    loss = token_loss(model(inputs), targets, "sum" if divide == "positions" else divide)
    if divide == "positions":
        loss = loss / targets.numel()
    loss.backward()
    if move:
        optimizer.step()
    return token_loss(model(inputs), targets) if late else loss.item()


def batches_of(examples, batch_size, epoch):
    order = [*range(examples)]
    random.Random(epoch).shuffle(order)
    return [order[start : start + batch_size] for start in range(0, examples, batch_size)]


def in_file_order(examples, batch_size, _):
    return torch.arange(examples).split(batch_size)


def another_each_time(examples, batch_size, _):
    return torch.randperm(examples).split(batch_size)


def always_the_same(examples, batch_size, _):
    return batches_of(examples, batch_size, 0)


def without_the_rest(examples, batch_size, epoch):
    return [batch for batch in batches_of(examples, batch_size, epoch) if len(batch) == batch_size]


def so_many_batches(examples, batch_size, _):
    return torch.arange(examples).chunk(batch_size)


def with_repeats(examples, batch_size, epoch):
    return [batch + batch[:1] for batch in batches_of(examples, batch_size, epoch)]


def accumulate(model, micro_batches, *, rule="tokens", at_once=True):
    """Go backward over micro-batches, right or with a slip."""
    counts = [int((targets != -100).sum()) for _, targets in micro_batches]
    total = torch.zeros(())
    for (inputs, targets), count in zip(micro_batches, counts):
        divisor = {
            "tokens": sum(counts),
            "means": max(count, 1) * len(counts),
            "sum of means": max(count, 1),
            "sum": 1,
            "0 ÷ 0": count * len(counts) if count == 0 else sum(counts),
            "last": max(count, 1),
        }[rule]
        if rule == "last":
            model.zero_grad()
        loss = token_loss(model(inputs), targets, "sum") / divisor
        if at_once:
            loss.backward()
        total = total + loss
    if not at_once:
        total.backward()
    return total.item()


def sweep_rates(fresh_model, batches, held_out, rates, *, empty=True, fresh=True, lost=True):
    """Return the losses at the end of a sweep, right or with a slip."""

    def loss_now():
        return token_loss(model(held_out[0]), held_out[1]).item()

    model = fresh_model()
    start, ends = loss_now(), []
    for rate in rates:
        model = fresh_model() if fresh else model
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        for batch in batches:
            step(model, optimizer, *batch, empty=empty)
        ends.append(loss_now() if loss_now() <= start or not lost else math.nan)
    return ends


def noise_scale_of_pairs(gradients):
    """From all pairs: half a squared difference is noise, a product of two examples is signal."""
    pairs = [(a, b) for i, a in enumerate(gradients) for b in gradients[i + 1 :]]
    noise = sum((a - b).square().sum().item() / 2 for a, b in pairs)
    signal = sum((a @ b).item() for a, b in pairs)
    return noise / signal if signal > 0 else math.inf


def bytes_by_table(parameters, trained, precision, optimizer):
    """Each trained parameter as in Rajbhandari et al. 2019, section 3.1; frozen ones have bytes."""
    frozen, each = {
        "float32": (4, {"sgd": 8, "momentum": 12, "adamw": 16}),
        "bfloat16": (2, {"sgd": 4, "momentum": 6, "adamw": 8}),
        "mixed": (2, {"sgd": 8, "momentum": 12, "adamw": 16}),
    }[precision]
    return frozen * (parameters - trained) + each[optimizer] * trained


def average_over_devices(gradient, targets, all_reduce):
    total, count = all_reduce(gradient), all_reduce(targets)
    return total / count


def accumulation_by_trying(global_batch, batch_size, devices):
    for accumulation in range(1, global_batch + 1):
        if accumulation * batch_size * devices == global_batch:
            return accumulation
    raise ValueError("no whole number of micro-batches makes this batch")


def share_of_rate(update, total, warmup):
    rising = update / max(warmup, 1)
    return min(rising, (total + 1 - update) / (total + 1 - max(warmup, 1)) if total > warmup else 1)


FUNCTIONS = {
    "the loss of an accumulated update": pooled,
    "count the updates": right_function,
    "the say of the last batch": last_say,
    "one training step": step,
    "the batches of an epoch": batches_of,
    "backward over micro-batches": accumulate,
    "a sweep of rates": sweep_rates,
    "a noise scale of your own": noise_scale_of_pairs,
    "the fixed part": bytes_by_table,
    "the average over devices": average_over_devices,
    "an accumulation for any batch": accumulation_by_trying,
    "the curve of the rate": share_of_rate,
}
# Larger exercises: what students may write, and a word of the answer that helps them on.
SLIPS = {
    "one training step": [
        (partial(step, empty=False), "step before"),
        (partial(step, move=False), "which move changes"),
        (partial(step, divide="sum"), "divide by the targets"),
        (partial(step, divide="positions"), "divide by the targets"),
        (partial(step, late=True), "after the update"),
        (lambda *given: step(*given) and None, "Return the loss"),
        (lambda *given: step(*given) + 1, "is not the loss"),
    ],
    "the batches of an epoch": [
        (in_file_order, "order of the file"),
        (another_each_time, "as its seed"),
        (always_the_same, "order of its own"),
        (without_the_rest, "is in no batch"),
        (so_many_batches, "the sizes are"),
        (with_repeats, "to be there once"),
        (lambda examples, *_: torch.randperm(examples), "a list of batches"),
    ],
    "backward over micro-batches": [
        (partial(accumulate, rule="means"), "mean of means"),
        (partial(accumulate, rule="sum of means"), "sum of means"),
        (partial(accumulate, rule="sum"), "division is not"),
        (partial(accumulate, rule="last"), "last micro-batch alone"),
        (partial(accumulate, rule="0 ÷ 0"), "0 ÷ 0"),
        (partial(accumulate, at_once=False), "both are in memory"),
        (lambda *_: 1.0, "have no gradient"),
        (lambda *given: accumulate(*given) and None, "Return the loss"),
        (lambda *given: accumulate(*given) + 1, "is not the loss"),
    ],
    "a sweep of rates": [
        (partial(sweep_rates, empty=False), "empty gradient"),
        (partial(sweep_rates, fresh=False), "fresh model"),
        (partial(sweep_rates, lost=False), "is lost"),
        (lambda *given: sweep_rates(*given)[0], "one loss for each rate"),
        (lambda *given: [1.0 for _ in given[-1]], "for every batch"),
        (lambda *given: [None for _ in given[-1]], "a list of numbers"),
    ],
}


def numbers_in(text):
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)}


def test_every_exercise_is_tested():
    assert {*RIGHT, *FUNCTIONS} == set(EXERCISES)
    assert len(EXERCISES) == sum(len(part.EXERCISES) for part in NOTEBOOKS)
    assert set(WRONG) == set(RIGHT)


@pytest.mark.parametrize("part", NOTEBOOKS, ids=lambda part: part.__name__.split(".")[-1])
def test_a_notebook_asks_what_its_file_of_exercises_holds(part):
    (path,) = FOLDER.glob(f"*_{part.__name__.split('.')[-1]}.ipynb")
    code = [cell.source for cell in nbformat.read(path, as_version=4).cells]
    asked = [name for text in code for name in re.findall(r'^check\(\s*"([^"]+)"', text, re.M)]
    assert list(part.EXERCISES) == list(dict.fromkeys(asked))
    assert path.stem in part.__doc__


@pytest.mark.parametrize(("name", "answer"), (RIGHT | FUNCTIONS).items())
def test_right_answer(name, answer):
    assert assess(name, answer)[0] is True


@pytest.mark.parametrize(
    ("name", "answer"), [(name, answer) for name in WRONG for answer in WRONG[name]]
)
def test_wrong_answer_is_told_without_the_right_one(name, answer):
    right, message = assess(name, answer)
    assert right is False
    expected = RIGHT[name] if isinstance(RIGHT[name], tuple) else (RIGHT[name],)
    given_away = numbers_in(message) - numbers_in(repr(answer))
    assert given_away.isdisjoint(map(float, expected))


def floor_of_all(examples, batch_size, accumulation, epochs):
    return examples // batch_size // accumulation * epochs


def floor_of_updates(examples, batch_size, accumulation, epochs):
    return -(-examples // batch_size) // accumulation * epochs


def rounded_at_the_end(examples, batch_size, accumulation, epochs):
    return -(-examples * epochs // (batch_size * accumulation))


def raises(**_):
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    "function", [floor_of_all, floor_of_updates, rounded_at_the_end, raises, 3, lambda **_: "5"]
)
def test_wrong_function_is_shown_where_it_is_wrong(function):
    right, message = assess("count the updates", function)
    assert right is False
    assert "With examples=" in message or "A function is asked for" in message


@pytest.mark.parametrize(
    ("name", "answer", "word"), [(name, *slip) for name in SLIPS for slip in SLIPS[name]]
)
def test_a_slip_in_a_larger_exercise_is_told(name, answer, word):
    right, message = assess(name, answer)
    assert right is False
    assert word.lower() in message.lower()


@pytest.mark.parametrize("name", SLIPS)
def test_a_larger_exercise_is_open_at_first_and_no_answer_stops_it(name):
    assert EXERCISES[name].dots == 3
    assert assess(name, lambda *_: ...)[0] is None
    assert "raises ZeroDivisionError" in assess(name, lambda *_: 1 / 0)[1]
    assert "raises TypeError" in assess(name, lambda: 1)[1]
    assert "A function is asked for" in assess(name, 3)[1]


@pytest.mark.parametrize("part", NOTEBOOKS, ids=lambda part: part.__name__.split(".")[-1])
def test_a_notebook_shows_how_hard_and_how_long_as_about_does(part):
    (path,) = FOLDER.glob(f"*_{part.__name__.split('.')[-1]}.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    shown = re.findall(r"(●+)○*[^●\n]*?about (\d+) minutes", text)
    assert [(len(dots), int(minutes)) for dots, minutes in shown] == [
        (exercise.dots, exercise.minutes) for exercise in part.EXERCISES.values()
    ]


def test_mean_of_means_is_wrong_and_an_empty_micro_batch_is_no_crash():
    def mean_of_means(sums, counts):
        return sum(total / count for total, count in zip(sums, counts) if count) / len(counts)

    assert assess("the loss of an accumulated update", mean_of_means)[0] is False


def test_one_for_every_example_is_wrong():
    assert assess("the say of the last batch", lambda **_: 1.0)[0] is False


def own_mean(gradient, targets, all_reduce):
    return all_reduce(gradient / targets) / all_reduce(1)


def sent_only_with_targets(gradient, targets, all_reduce):
    return all_reduce(gradient) / all_reduce(targets) if targets else gradient


def from_zero(update, warmup, **_):
    return (update - 1) / warmup


def without_an_end(update, warmup, **_):
    return min(1, update / max(warmup, 1))


def to_the_last(update, total, warmup):
    return min(update / max(warmup, 1), (total - update) / (total - warmup))


def as_if_warm(update, total, warmup):
    return min(update / max(warmup, 1), (total + 1 - update) / (total + 1 - warmup))


# Wrong functions for the larger exercises, and the words that tell their writer why.
SLIPS_IN_TRIALS = {
    "a noise scale of your own": [
        (lambda gradients: gradients.var(0).sum() / gradients.mean(0).square().sum(), "one weight"),
        (lambda gradients: 1.0 * len(gradients), "examples that all agree"),
        (
            lambda gradients: (
                gradients.var(0).mean()
                / (gradients.mean(0).square().sum() - gradients.var(0).sum() / len(gradients))
            ),
            "Add the variances",
        ),
        (
            lambda gradients: (
                (trace := gradients.var(0).sum())
                / (gradients.mean(0).square().sum() - trace / len(gradients))
            ),
            "infinite",
        ),
        (lambda gradients: gradients.variance(), "AttributeError"),
        (3, "A function is asked for"),
    ],
    "the fixed part": [
        (lambda parameters, **_: 4 * parameters, "gradient"),
        (lambda parameters, **_: 2 * parameters, "bytes"),
        (lambda parameters, **_: 8 * parameters, "momentum"),
        (lambda parameters, **_: 8.0 * parameters, "whole number"),
        (
            lambda parameters, precision, optimizer, **_: bytes_by_table(
                parameters, parameters, precision, optimizer
            ),
            "frozen",
        ),
        (
            lambda parameters, trained, precision, optimizer: (
                bytes_by_table(parameters, trained, precision, optimizer)
                - (4 * trained if precision == "mixed" else 0)
            ),
            "copy of the weights",
        ),
    ],
    "the average over devices": [
        (lambda gradient, _, all_reduce: all_reduce(gradient), "divided"),
        (lambda gradient, _, all_reduce: all_reduce(gradient) / all_reduce(1), "divided"),
        (own_mean, "own means"),
        (lambda gradient, targets, _: gradient / targets, "one device alone"),
        (sent_only_with_targets, "without end"),
        (lambda *_: None, "returns None"),
        (lambda gradient, _: gradient, "TypeError"),
        ("a sum", "A function is asked for"),
    ],
    "an accumulation for any batch": [
        (lambda global_batch, batch_size, **_: global_batch / batch_size, "whole number"),
        (lambda global_batch, batch_size, **_: global_batch // batch_size, "several devices"),
        (
            lambda global_batch, batch_size, devices: global_batch // batch_size * devices,
            "More devices",
        ),
        (
            lambda global_batch, batch_size, devices: global_batch // (batch_size * devices),
            "raise a ValueError",
        ),
        (lambda **_: 1 / 0, "ZeroDivisionError"),
    ],
    "the curve of the rate": [
        (from_zero, "rate of 0"),
        (without_an_end, "begins to fall"),
        (to_the_last, "one update after the last"),
        (as_if_warm, "has the full rate"),
    ],
}


@pytest.mark.parametrize(
    ("name", "answer", "word"),
    [(name, answer, word) for name, slips in SLIPS_IN_TRIALS.items() for answer, word in slips],
)
def test_a_usual_slip_in_a_larger_exercise_is_told(name, answer, word):
    right, message = assess(name, answer)
    assert right is False
    assert word in message


@pytest.mark.parametrize("name", SLIPS_IN_TRIALS)
def test_a_larger_exercise_that_is_left_open_is_unanswered(name):
    assert assess(name, lambda *_, **__: ...)[0] is None


def test_the_fixed_part_is_that_of_the_estimate():
    parameters = SHAPES["llama-7b"].parameters
    for precision in ("float32", "bfloat16", "mixed"):
        for optimizer in ("sgd", "momentum", "adamw"):
            worked_out = estimate(
                "llama-7b", batch_size=1, context=64, precision=precision, optimizer=optimizer
            )
            known = worked_out.parameters + worked_out.gradients + worked_out.states
            by_hand = bytes_by_table(parameters, parameters, precision, optimizer)
            assert by_hand == pytest.approx(known, rel=1e-6)  # the counts of the steps come on top


@pytest.mark.parametrize("name", EXERCISES)
def test_unanswered_exercise_is_no_error(name, capsys):
    check(name, ...)
    assert "waiting for your answer" in capsys.readouterr().out
    assert assess(name, (3, ...))[0] is None


def test_function_left_open_is_unanswered():
    assert assess("count the updates", lambda **_: ...)[0] is None


def test_check_prints_the_message(capsys):
    check(NAME, RIGHT[NAME])
    assert capsys.readouterr().out == f"“{NAME}”: right.\n"


@pytest.mark.parametrize("name", EXERCISES)
def test_hint_does_not_hold_the_answer(name, capsys):
    hint(name)
    out = capsys.readouterr().out
    assert len(out) > 20
    answer = RIGHT.get(name, ())
    for value in answer if isinstance(answer, tuple) else (answer,):
        assert not re.search(rf"\b{value}\b", out)


@pytest.mark.parametrize("call", [check, assess])
def test_unknown_name_is_told(call):
    with pytest.raises(ValueError, match="name must be one of"):
        call("no such exercise", 1)
    with pytest.raises(ValueError, match="name must be one of"):
        hint("no such exercise")


def test_numbers_of_numpy_and_torch_count_and_a_function_may_empty_its_lists():
    for number in (numpy.int64(16), numpy.float32(16), torch.tensor(16)):
        assert assess("accumulation for 512", number)[0]
    assert not assess("accumulation for 512", math.nan)[0]

    def emptying(sums, counts):
        total, targets = 0, 0
        while sums:
            total, targets = total + sums.pop(), targets + counts.pop()
        return torch.tensor(total / targets, dtype=torch.float64)

    assert assess("the loss of an accumulated update", emptying)[0]


@pytest.fixture
def fresh(monkeypatch):
    """A kernel in which nothing was answered."""
    monkeypatch.setattr(exercises, "_answered", {})


def printed(capsys, call, *arguments):
    capsys.readouterr()
    call(*arguments)
    return capsys.readouterr().out


@pytest.mark.usefixtures("fresh")
def test_progress_counts_right_answers_of_the_notebooks_that_were_begun(capsys):
    assert printed(capsys, progress) == "No exercise has been checked yet.\n"
    check("piles of papers", ...)
    assert "Notebook 01: 0 of 5 exercises answered right." in printed(capsys, progress)
    for answer in ((8, 52), (8, 52), (7, 52)):  # right twice, then spoilt
        check("piles of papers", answer)
        check("halve the noise", 4)
    shown = printed(capsys, progress)
    assert "1 of 5" in shown
    assert "“piles of papers”" in shown
    assert "“halve the noise”" not in shown
    assert "Notebook 02" not in shown


@pytest.mark.usefixtures("fresh")
def test_progress_of_all_ends_with_nothing_open(capsys):
    for name, answer in (RIGHT | FUNCTIONS).items():
        check(name, answer)
    lines = printed(capsys, progress).splitlines()
    assert len(lines) == len(NOTEBOOKS)
    for line in lines:
        done, of = re.search(r"(\d+) of (\d+)", line).groups()
        assert done == of


@pytest.mark.usefixtures("fresh")
def test_an_unknown_name_counts_nowhere(capsys):
    with pytest.raises(ValueError, match="name must be one of"):
        check("no such exercise", 1)
    assert printed(capsys, progress) == "No exercise has been checked yet.\n"


@pytest.mark.parametrize("name", EXERCISES)
def test_every_exercise_says_how_hard_and_how_long_it_is(name, capsys):
    exercise = EXERCISES[name]
    assert exercise.dots in (1, 2, 3)
    assert 1 <= exercise.minutes <= 40
    shown = printed(capsys, about, name)
    assert shown.count("●") == exercise.dots
    assert shown.count("●") + shown.count("○") == 3
    assert f"about {exercise.minutes} minutes" in shown


def test_harder_takes_longer():
    minutes = {
        dots: [e.minutes for e in EXERCISES.values() if e.dots == dots] for dots in (1, 2, 3)
    }
    assert max(minutes[1]) < min(minutes[2]) <= max(minutes[2]) < min(minutes[3])
