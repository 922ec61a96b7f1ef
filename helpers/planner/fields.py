"""The fields of the planner's form: what each is called, and how what was typed becomes a value."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any
from urllib.parse import urlencode

from helpers.footprint import OPTIMIZERS
from helpers.schedule import DECAYS, RULES
from helpers.shapes import ATTENTION, SHAPES

Number = int | float
ENDINGS = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9}
_NUMBER = re.compile(
    r"(-?(?:[0-9]{1,3}(?:[ ,_][0-9]{3})+|[0-9]+)?(?:\.[0-9]*)?(?:e[+-]?[0-9]{1,3})?) ?"
    f"([{''.join(ENDINGS)}]?)"
)


def number(text: str) -> Number:
    """Return "1,000", "2e4" or "375M" as an int, and "0.5", "1.0" or "2e-4" as a float.

    Raises ``ValueError`` for anything else.

    >>> number("375M"), number("50,000"), number("2e-4"), number("1.5")
    (375000000, 50000, 0.0002, 1.5)
    """
    found = _NUMBER.fullmatch(text)
    try:
        value = Fraction(re.sub("[ ,_]", "", found[1])) * ENDINGS[found[2]]
        whole = value.denominator == 1 and ("." not in found[1] or bool(found[2]))
        return value.numerator if whole else float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"must be a number such as 1,000 or 2e-4 or 375M; got {text!r}") from None


def share(text: str) -> Number:
    """Return "5%" as the float 0.05, and a number as it is.

    >>> share("7 %"), share("15"), share("0.05")
    (0.07, 15, 0.05)
    """
    if not text.endswith("%"):
        return number(text)
    return float(Fraction(str(number(text[:-1].strip()))) / 100)


def yes_or_no(text: str) -> bool:
    """Return "yes" as True and "no" as False."""
    if text not in ("yes", "no"):
        raise ValueError(f"must be yes or no; got {text!r}")
    return text == "yes"


@dataclass(frozen=True)
class Field:
    """A field of the form: its name in the address, its label, and what stands in it at first.

    ``read`` makes a value of the text. A field with ``choices`` offers these, by value; one whose
    ``read`` is ``yes_or_no`` is a box to tick. An empty field that is ``optional`` is None.
    """

    name: str
    label: str
    default: str
    read: Callable[[str], Any] = number
    hint: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False

    @property
    def kind(self) -> str:
        """How it is shown: "choice", "box" or "text"."""
        if self.choices:
            return "choice"
        return "box" if self.read is yes_or_no else "text"

    def value(self, text: str) -> Any:  # noqa: ANN401
        """Return what the text means, or raise ``ValueError`` that begins with the field's name."""
        text = text.strip()
        if not text and self.optional:
            return None
        try:
            return self.read(text)
        except ValueError as error:
            raise ValueError(f"{self.name} {error}") from None


def _named(names: Mapping[str, str] | tuple[str, ...]) -> dict[str, str]:
    return dict(names) if isinstance(names, Mapping) else {name: name for name in names}


GROUPS = {
    "The run": (
        Field("examples", "Examples in the data set", "800"),
        Field("batch_size", "Batch on one device", "8", hint="examples"),
        Field("accumulation", "Accumulation", "4", hint="micro-batches in an update"),
        Field("devices", "Devices", "1"),
        Field("epochs", "Epochs", "3", optional=True),
        Field("max_steps", "or updates in all", "", optional=True, hint="in place of epochs"),
        Field("warmup", "Warmup", "5%", share, hint="updates, as 15, or a share, as 5%"),
        Field(
            *("warmup_by", "The warmup counts", "updates", str),
            choices=_named(("updates", "examples", "tokens")),
        ),
        Field("tokens", "Tokens in the data set", "400,000", optional=True, hint="if you know"),
        Field("global_batch", "Batch to be made", "", optional=True, hint="to see how it can be"),
        Field(
            *("global_by", "That batch counts", "examples", str),
            choices=_named(("examples", "tokens")),
        ),
        Field("drop_last", "Leave out a last batch that is not full", "no", yes_or_no),
        Field("drop_last_update", "Leave out a last update that is not full", "no", yes_or_no),
    ),
    "The learning rate": (
        Field("lr", "Learning rate", "2e-4"),
        Field("decay", "After the warmup", "cosine", str, choices=_named(DECAYS)),
        Field("decay_steps", "Falling part", "20%", share, hint="updates, or a share"),
        Field("from_batch", "Batch it was made for", "", optional=True, hint="to scale the rate"),
        Field("rule", "Rule to scale by", "sqrt", str, choices=_named(tuple(RULES))),
    ),
    "The memory": (
        Field("shape", "Model", "llama3-8b", str, choices=_named(tuple(SHAPES))),
        Field("context", "Tokens in an example", "1,024", hint="padding included"),
        Field(
            *("trainable", "What is trained", "lora", str),
            choices={"full": "all weights", "lora": "adapters"},
        ),
        Field("rank", "Rank of the adapters", "16"),
        Field(
            *("base_bits", "Bits of the frozen weights", "4"),
            choices={"16": "16", "8": "8", "4": "4"},
        ),
        Field(
            *("precision", "Precision", "bfloat16", str),
            choices={
                "bfloat16": "bfloat16",
                "mixed": "mixed, 16 and 32",
                "float32": "float32",
            },
        ),
        Field("optimizer", "Optimizer", "adamw", str, choices=_named(OPTIMIZERS)),
        Field("attention", "Attention", "fused", str, choices=_named(ATTENTION)),
        Field(
            *("shard", "Divided among the devices", "0"),
            choices={
                "0": "nothing",
                "1": "states",
                "2": "states and gradients",
                "3": "weights as well",
            },
        ),
        Field("checkpointing", "Checkpoint activations", "yes", yes_or_no),
        Field("card", "Memory of a card", "24", hint="GB, as in its name: 10⁹ bytes"),
        Field("spare", "Part kept free", "10%", share, hint="for what no estimate sees"),
    ),
}
FIELDS = {one.name: one for group in GROUPS.values() for one in group}


# Starting points, as what differs from the form at first: the cases of notebook 09.
EXAMPLES = {
    name: urlencode(texts)
    for name, texts in {
        "8 B, adapters on 4 bits": {"batch_size": 4, "accumulation": 8},
        "124 M in full": {
            **{"shape": "gpt2-124m", "card": 16, "trainable": "full", "precision": "mixed"},
            **{"accumulation": 1, "checkpointing": "no"},
        },
        "13 B in full": {
            **{"shape": "llama-13b", "card": 40, "trainable": "full", "batch_size": 1},
            **{"accumulation": 8, "checkpointing": "no"},
        },
        "13 B, adapters": {
            **{"shape": "llama-13b", "card": 40, "base_bits": 16, "batch_size": 2},
        },
        "7 B in full on eight cards": {
            **{"shape": "llama-7b", "card": 80, "trainable": "full", "precision": "mixed"},
            **{"devices": 8, "shard": 2, "examples": 50_000, "epochs": 2, "tokens": ""},
            **{"batch_size": 4, "accumulation": 1},
        },
    }.items()
}


def defaults() -> dict[str, str]:
    """Return the text of each field as the page opens."""
    return {name: one.default for name, one in FIELDS.items()}


def values(texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the value of each field that can be read, and an error for each that cannot.

    A field that is not given has its default.
    """
    found, errors = {}, {}
    for name, one in FIELDS.items():
        try:
            found[name] = one.value(str(texts.get(name, one.default)))
        except ValueError as error:
            errors[name] = str(error)
    return found, errors
