"""What a training log says, and whether it agrees with itself and with a plan."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from helpers._checks import exact
from helpers.plan.run import RunPlan

# Each number by its name here, in the words of the start banners of Transformers (and with it
# Axolotl, TRL, LLaMA-Factory) and of Unsloth, and by its key in the settings of the four tools.
_WORDS = {
    "examples": (r"Num examples", r"num_examples"),
    "epochs": (r"num_train_epochs", r"num_epochs", r"epochs", r"Num Epochs"),
    "batch_size": (
        *(r"per_device_train_batch_size", r"micro_batch_size", r"batch_size"),
        *(r"Instantaneous batch size per device", r"Batch size per device"),
    ),
    "accumulation": (r"gradient_accumulation_steps", r"Gradient Accumulation steps"),
    "devices": (r"world_size", r"nproc[_-]per[_-]node", r"Num GPUs(?: used)?", r"Parallel GPUs"),
    "effective_batch_size": (
        *(r"Total batch size", r"Total train batch size(?: \(w\. [^)]*\))?"),
        r"Total batch size \([^)]*\)",
    ),
    "tokens": (r"total_num_tokens",),
    "max_steps": (r"max_steps",),
    "total_steps": (r"total_num_steps", r"Total steps", r"Total optimization steps"),
}
_NAMES = {
    "examples": "examples",
    "epochs": "epochs",
    "batch_size": "batch size of a device",
    "accumulation": "accumulation",
    "devices": "devices",
    "effective_batch_size": "examples an update",
    "tokens": "tokens",
    "max_steps": "max_steps",
    "total_steps": "updates in all",
    "steps_per_epoch": "updates an epoch",
}
_NUMBER = r"(\d[\d,_]*(?:\.\d+)?(?:e[+-]?\d+)?)"
# tqdm's without a name, as that of training has none, and that of notebooks
_BAR = re.compile(r"(?:^|[\n\r])[\s[]*(?:\d+%\|[^|\n\r]*\|)? *(\d+)/(\d+) (?:\[|\d+:\d\d)")
_TORCHTUNE = re.compile(r"\b\d+\|\d+\|Loss: [^|]*\|[^|]*\| *\d+/(\d+) \[")  # over one epoch
_EPOCH = re.compile(rf"['\"]epoch['\"]: ['\"]?{_NUMBER}|Epoch {_NUMBER}/")
_STEP = re.compile(r"['\"]step['\"]: ['\"]?(\d+)")
NEAR = 0.05  # a line's epoch and its bar may be an update apart


@dataclass(frozen=True)
class LogCheck:
    """What ``check_log`` found.

    ``numbers`` are those of the text, by the names of ``RunPlan``. ``effective_batch`` is what the
    examples, epochs and updates of the text come to, whatever else it says, or the batch that it
    names where it does not count; None if it tells neither. ``agrees``, ``contradicts`` and
    ``implies`` are sentences.
    """

    numbers: dict[str, int | float]
    effective_batch: int | None
    agrees: tuple[str, ...]
    contradicts: tuple[str, ...]
    implies: tuple[str, ...]

    def __repr__(self) -> str:
        parts = {
            "Agrees": self.agrees,
            "Contradicts": self.contradicts,
            "Implies": self.implies,
        }
        lines = [f"{name}: {line}" for name, found in parts.items() for line in found]
        return "\n  ".join(("LogCheck", *lines))


def check_log(plan: RunPlan | None, text: str) -> LogCheck:
    """Read a start banner, settings or lines of a training log, and hold them against a plan.

    It knows the wording of Transformers, Axolotl, Unsloth and torchtune, and their progress bars.
    A log is held against itself too, without a plan as well: examples, epochs and updates make an
    effective batch, and so do batch size, accumulation and devices.

    Tools round the updates of an epoch up or down, and stop inside the last epoch where a number
    of updates was asked for: none of these is a contradiction. The batch that counts is the one of
    the updates.

    Raises ``ValueError`` for a text without any of these numbers.

    >>> text = "Num examples = 800 | Num Epochs = 3 | Total batch size = 8 | Total steps = 75"
    >>> check_log(None, text).contradicts
    ('800 examples, 3 epochs and 75 updates make 32 examples an update, and the text says 8.',)
    """
    if plan is not None and not isinstance(plan, RunPlan):
        raise TypeError(f"plan must be a RunPlan or None; got {plan!r}")
    if not isinstance(text, str):
        raise TypeError(f"text must be that of a log; got {text!r}")
    numbers, twice = _read(text)
    lines = list(_epoch_lines(text))
    if "max_steps" in numbers:
        numbers.setdefault("total_steps", numbers["max_steps"])
    if not numbers and not lines:
        raise ValueError(
            f"text must hold numbers of a run, such as 'Num examples = 800'; got {text[:200]!r}"
        )
    contradicts, implies = list(twice), []
    named = _named_batch(numbers, contradicts, implies)
    batch = _counted_batch(numbers, named, contradicts, implies)
    for epoch, steps in lines[-1:]:
        implies.append(
            f"Epoch {float(epoch):g} after {steps:,} updates is about "
            f"{round(steps / epoch):,} updates an epoch."
        )
        if batch is None and "examples" in numbers:
            batch = round(numbers["examples"] * epoch / steps)
            implies.append(f"That is about {batch:,} examples an update.")
    batch = named if batch is None else batch
    agrees: list[str] = []
    if plan is not None:
        _compare(plan, numbers, batch, agrees, contradicts)
        _compare_lines(plan, lines, agrees, contradicts)
    return LogCheck(
        {name: _plain(value) for name, value in numbers.items()},
        batch,
        tuple(agrees),
        tuple(contradicts),
        tuple(implies),
    )


def _plain(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def _number(text: str) -> Fraction:
    return Fraction(text.replace(",", "").replace("_", ""))


def _read(text: str) -> tuple[dict[str, Fraction], list[str]]:
    """Return the numbers in a text, and sentences on those that it gives twice and differently."""
    numbers, twice = {}, []
    for name, words in _WORDS.items():
        found = []
        for word in words:
            pattern = rf"(?<![\w.-])(?<!eval_){word}['\"`]?\s*[:=]\s*['\"]?{_NUMBER}"
            found += [_number(match[1]) for match in re.finditer(pattern, text, re.IGNORECASE)]
        found = [value for value in found if value > 0]
        if not found:
            continue
        numbers[name] = found[-1]
        if name == "epochs":
            numbers[name] = min(found)  # banners round a part of an epoch up
        different = list(dict.fromkeys(found))
        if name not in ("epochs", "total_steps", "tokens") and len(different) > 1:
            values = " and ".join(f"{_plain(value):,}" for value in different)
            twice.append(f"{_NAMES[name]}: the text says {values}.")
    per_epoch, bars = _TORCHTUNE.findall(text), _bars(text)
    if per_epoch:
        numbers["steps_per_epoch"] = _number(per_epoch[-1])
    elif bars and "total_steps" not in numbers:
        numbers["total_steps"] = Fraction(bars[-1].total)
    return numbers, twice


class _Bar(NamedTuple):
    made: int
    total: int
    end: int


def _bars(text: str) -> list[_Bar]:
    """Return the progress bars of the training; those of evaluations are shorter."""
    bars = [_Bar(int(one[1]), int(one[2]), one.end()) for one in _BAR.finditer(text)]
    longest = max((bar.total for bar in bars), default=0)
    return [bar for bar in bars if bar.total == longest]


def _epoch_lines(text: str) -> Iterator[tuple[Fraction, int]]:
    """Yield (epoch, updates made) of the lines that tell both, or stand after a bar that does."""
    bars = _bars(text)
    for match in _EPOCH.finditer(text):
        epoch = _number(match[1] or match[2])
        end = max(text.find("}", match.end()), match.end())
        step = _STEP.search(text, text.rfind("{", 0, match.start()) + 1, end)
        before = [bar.made for bar in bars if bar.end <= match.start()]
        made = int(step[1]) if step else before[-1] if before else 0
        if epoch > 0 and made > 0:
            yield epoch, made


def _named_batch(
    numbers: dict[str, Fraction], contradicts: list[str], implies: list[str]
) -> int | None:
    """Return the effective batch that the text names, in one number or as a product."""
    total = numbers.get("effective_batch_size")
    sizes = [numbers.get(name) for name in ("batch_size", "accumulation", "devices")]
    size, accumulation, devices = sizes
    if None not in sizes:
        product = size * accumulation * devices
        if total is None:
            implies.append(f"{_times(*sizes)} = {int(product):,} examples an update.")
            return int(product)
        if product != total:
            contradicts.append(
                f"{_times(*sizes)} = {int(product):,} examples an update, and the text says "
                f"{int(total):,}."
            )
    elif total is not None and size is not None and accumulation is not None:
        share = total / (size * accumulation)
        if share.denominator == 1:
            implies.append(f"The batch of {int(total):,} is that of {_devices(int(share))}.")
        else:
            contradicts.append(
                f"No number of devices makes {int(total):,} of {int(size):,} a device × "
                f"{int(accumulation):,} accumulated."
            )
    return None if total is None else int(total)


def _times(size: Fraction, accumulation: Fraction, devices: Fraction) -> str:
    return f"{int(size):,} a device × {int(accumulation):,} accumulated × {_devices(int(devices))}"


def _devices(count: int) -> str:
    return f"{count:,} device" if count == 1 else f"{count:,} devices"


def _counted_batch(
    numbers: dict[str, Fraction], named: int | None, contradicts: list[str], implies: list[str]
) -> int | None:
    """Return the effective batch that examples, epochs and updates make; None without them."""
    examples, steps = numbers.get("examples"), numbers.get("total_steps")
    epochs = numbers.get("epochs", Fraction(1))
    if "steps_per_epoch" in numbers:
        steps, epochs = numbers["steps_per_epoch"], Fraction(1)
    elif "epochs" not in numbers:
        steps = None
    if examples is None or steps is None or ("max_steps" in numbers and named is None):
        return None
    counted = _batch_of(examples, epochs, steps)
    about = "" if _fits(examples, epochs, steps, counted) else "about "
    what = (
        f"{int(examples):,} examples, {_plain(epochs):,} epoch{'' if epochs == 1 else 's'} and "
        f"{int(steps):,} updates"
    )
    if named is None:
        implies.append(f"{what} make {about}{counted:,} examples an update.")
    elif _cut_off(examples, epochs, steps, named):
        implies.append(f"The run of {int(steps):,} updates ends inside its last epoch.")
        return named
    elif not _fits(examples, epochs, steps, named):
        contradicts.append(
            f"{what} make {about}{counted:,} examples an update, and the text says {named:,}."
        )
        if named % counted == 0 and not about:
            implies.append(
                f"{named:,} is {named // counted:,} × {counted:,}: as if each example counted "
                f"{named // counted:,} times, such as completions of a prompt, or devices that "
                f"each see all of the data."
            )
    else:
        return named
    return counted


def _fewest(examples: Fraction, epochs: Fraction, batch: int) -> int:
    return math.floor(examples // batch * epochs)


def _most(examples: Fraction, epochs: Fraction, batch: int) -> int:
    return math.ceil(math.ceil(examples / batch) * epochs)


def _fits(examples: Fraction, epochs: Fraction, steps: Fraction, batch: int) -> bool:
    """Return whether a batch makes so many updates, whichever way its tool rounds."""
    return _fewest(examples, epochs, batch) <= steps <= _most(examples, epochs, batch)


def _cut_off(examples: Fraction, epochs: Fraction, steps: Fraction, batch: int) -> bool:
    """Return whether the run ends inside its last epoch, as one of so many updates may."""
    before = math.ceil(epochs) - 1
    return _most(examples, Fraction(before), batch) < steps < _fewest(examples, epochs, batch)


def _batch_of(examples: Fraction, epochs: Fraction, steps: Fraction) -> int:
    """Return the effective batch that makes so many updates, or comes nearest."""
    near = examples * epochs / steps
    sizes = sorted(
        {max(1, math.floor(near) + off) for off in (0, 1)}, key=lambda size: abs(size - near)
    )
    return next((size for size in sizes if _fits(examples, epochs, steps, size)), sizes[0])


def _compare(
    plan: RunPlan,
    numbers: dict[str, Fraction],
    batch: int | None,
    agrees: list[str],
    contradicts: list[str],
) -> None:
    """Hold each number of the text against the plan's."""
    found = dict(numbers)
    if batch is not None:
        found["effective_batch_size"] = Fraction(batch)
    for name, value in found.items():
        planned = getattr(plan, name)
        if planned is None or name == "max_steps":
            continue
        planned = exact(name, planned)
        says = f"{_plain(value):,}"
        if value == planned or (name == "epochs" and value == math.ceil(planned)):
            agrees.append(f"{_NAMES[name]}: {says}.")
        else:
            contradicts.append(
                f"{_NAMES[name]}: {says} in the log, and {_plain(planned):,} in the plan"
                f"{_left_out(plan, name, int(value))}."
            )


def _left_out(plan: RunPlan, name: str, value: int) -> str:
    """Return that a tool may leave out what is not full, where that makes the difference."""
    full = plan.examples // plan.effective_batch_size
    whole_epochs = plan.max_steps is None and isinstance(plan.epochs, int)
    fewer = {"steps_per_epoch": full, "total_steps": full * plan.epochs if whole_epochs else None}
    if plan.ramp is None and fewer.get(name) == value:
        return ", as if updates that are not full were left out (drop_last_update=True)"
    return ""


def _compare_lines(
    plan: RunPlan, lines: list[tuple[Fraction, int]], agrees: list[str], contradicts: list[str]
) -> None:
    """Hold the last line with an epoch against the plan: its epoch has two or more digits."""
    if not lines or plan.ramp is not None:
        return
    epoch, steps = lines[-1]
    digits = Fraction(1, 200)  # half of the last of two decimals
    low, high = epoch - digits, epoch + digits
    planned = Fraction(steps, plan.steps_per_epoch)
    says = f"after {steps:,} updates: epoch {float(epoch):g} in the log"
    if low * Fraction(1 - NEAR) <= planned <= high * Fraction(1 + NEAR):
        agrees.append(f"{says}.")
    else:
        contradicts.append(f"{says}, and {float(planned):.2f} in the plan.")
