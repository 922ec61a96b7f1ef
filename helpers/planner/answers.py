"""What the planner answers to the texts of its fields: numbers, words and pictures, as for JSON."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from helpers._checks import positive
from helpers.plan import RunPlan, splits_for
from helpers.planner.drawing import rate_picture
from helpers.planner.fields import FIELDS, values
from helpers.planner.fitting import fit
from helpers.planner.tools import for_each_tool
from helpers.schedule import lr_curve, scale_lr

PLAN = (
    *("examples", "batch_size", "accumulation", "devices", "epochs", "max_steps", "warmup"),
    *("warmup_by", "tokens", "drop_last", "drop_last_update"),
)
SPLIT = ("global_batch", "global_by", "batch_size", "devices", "context")
MEMORY = (
    *("shape", "batch_size", "context", "precision", "optimizer", "trainable", "rank"),
    *("base_bits", "checkpointing", "attention", "devices", "shard", "card", "spare"),
    "accumulation",
)
# Messages that do not begin with the name of a field.
BESIDE = {
    "no update would": "batch_size",
    "give epochs or": "max_steps",
    "tokens_per_example": "context",
}


def answer_json(fields: str) -> str:
    """Return ``answer`` for texts by field in a JSON object, with "width" in pixels beside them."""
    texts = json.loads(fields)
    return json.dumps(answer(texts, width=int(texts.pop("width", 640))))


def answer(texts: Mapping[str, str], *, width: int = 640) -> dict[str, Any]:
    """Return all that the planner shows for the texts of its fields.

    A field that is not given has its default. "errors" has a message for each field that cannot
    be meant, and "unused" the fields that make no difference. "plan", "splits", "rate", "memory"
    and "settings" are None where an error leaves nothing to say. Pictures are SVG, ``width`` pixels
    wide.

    >>> answer({"examples": "810", "epochs": "1"})["plan"]["figures"]["total_steps"]
    26
    """
    value, errors = values(texts)
    unused = _unused(value)
    errors = {name: text for name, text in errors.items() if name not in unused}
    given = {name: None if name in unused else value.get(name) for name in FIELDS}

    def tried(work: Callable[..., Any], needs: tuple[str, ...], *more: Any) -> Any:  # noqa: ANN401
        if errors.keys() & {*needs} or None in more:
            return None
        try:
            return work({name: given[name] for name in needs}, *more)
        except (ValueError, TypeError, OverflowError) as error:
            errors[_field_of(str(error))] = str(error)
            return None

    plan = tried(lambda of: RunPlan(**of), PLAN)
    rate = tried(_rate, ("lr", "from_batch", "rule"), plan)
    shown = {
        "plan": None if plan is None else _in_figures(plan),
        "splits": tried(_splits, SPLIT),
        "rate": tried(_curve, ("decay", "decay_steps"), plan, rate, width),
        "memory": tried(fit, MEMORY, width),
        "settings": tried(lambda of, *more: for_each_tool(*more, **of), ("decay",), plan, rate),
    }
    verdict = _verdict(plan, shown["memory"], errors)
    return {"verdict": verdict, "errors": errors, "unused": unused, **shown}


def _unused(value: Mapping[str, Any]) -> list[str]:
    unused = []
    if value.get("trainable") == "full":
        unused += ["rank", "base_bits"]
    if value.get("decay") != "trapezoid":
        unused.append("decay_steps")
    if value.get("from_batch", "") is None:
        unused.append("rule")
    if value.get("global_batch", "") is None:
        unused.append("global_by")
    return unused


def _field_of(message: str) -> str:
    """Return the field that an error belongs to, which it names first."""
    for start, name in BESIDE.items():
        if message.startswith(start):
            return name
    first = message.partition(" ")[0]
    return first if first in FIELDS else "examples"


def _verdict(
    plan: RunPlan | None, memory: Mapping[str, Any] | None, errors: Mapping[str, str]
) -> str:
    """Return the whole answer in a line."""
    words = []
    if plan is not None:
        updates = f"{plan.total_steps:,} {'update' if plan.total_steps == 1 else 'updates'}"
        words.append(f"{updates} of {plan.effective_batch_size:,} examples")
    if memory is not None:
        fits = "fits" if memory["fits"] else "does not fit"
        words.append(f"{memory['needed']} a device: {fits} the card of {memory['card']}")
    if errors:
        words.append(f"To be mended: {', '.join(FIELDS[name].label for name in errors)}")
    return "; ".join(words) + "."


def _in_figures(plan: RunPlan) -> dict[str, Any]:
    return {"figures": plan.as_dict(), "rows": plan.rows(), "notes": list(plan.notes)}


def _splits(of: Mapping[str, Any]) -> list[list[str]] | None:
    """Return the ways to make a batch, and those that come near: the first row is their head."""
    if of["global_batch"] is None:
        return None
    tokens = of["context"] if of["global_by"] == "tokens" else None
    found = splits_for(
        of["global_batch"],
        batch_size=of["batch_size"],
        devices=of["devices"],
        tokens_per_example=tokens,
    )
    ways = sorted({*found.nearest, *found.other_sizes}, key=lambda way: (way[1], way[0]))
    head = ["batch on a device", "accumulation", of["global_by"]]
    return [head, *([f"{way[1]:,}", f"{way[2]:,}", f"{way[0]:,}"] for way in ways)]


def _rate(of: Mapping[str, Any], plan: RunPlan) -> float:
    rate = positive("lr", of["lr"])
    if of["from_batch"] is None:
        return rate
    scaled = scale_lr(
        rate, from_batch=of["from_batch"], to_batch=plan.effective_batch_size, rule=of["rule"]
    )
    return float(f"{scaled:.4g}")


def _curve(of: Mapping[str, Any], plan: RunPlan, rate: float, width: int) -> dict[str, Any]:
    total, warmup = plan.total_steps, plan.warmup_steps
    points = lr_curve(total, warmup, of["decay"], decay_steps=of["decay_steps"])
    most = max(factor for _, factor in points)
    words = (
        f"Learning rate over {total:,} {'update' if total == 1 else 'updates'}: "
        f"{points[0][1] * rate:.3g} at the first, at most {most * rate:.3g}, "
        f"and {points[-1][1] * rate:.3g} at the last."
    )
    return {"peak": rate, "words": words, "picture": rate_picture(points, rate, words, width)}
