"""The settings of a plan as text that a tool reads: a call in Python, or lines of YAML."""

from decimal import Decimal
from typing import Any

from helpers.plan import RunPlan
from helpers.settings import TOOLS, differences, settings_for

CALLS = {
    "transformers": ("transformers", "TrainingArguments"),
    "unsloth": ("trl", "SFTConfig"),
}


def for_each_tool(plan: RunPlan, rate: float, *, decay: str) -> list[dict[str, Any]]:
    """Return for each tool its "name", its settings as "text", and "notes" on what differs.

    Where a tool cannot carry out the plan, "text" is empty and the first note says why.
    """
    notes = differences(plan)
    found = []
    for tool in TOOLS:
        try:
            text, refused = as_text(tool, settings_for(tool, plan, lr=rate, decay=decay)), []
        except ValueError as error:
            text, refused = "", [str(error)]
        found.append({"name": tool, "text": text, "notes": refused or notes[tool]})
    return found


def as_text(tool: str, settings: dict[str, Any]) -> str:
    """Return settings as a call for tools that are called, and as YAML for the others.

    >>> print(as_text("torchtune", {"batch_size": 8, "optimizer.lr": 2e-05}))
    batch_size: 8
    optimizer:
      lr: 0.00002
    """
    if tool in CALLS:
        module, name = CALLS[tool]
        lines = "".join(f"    {key}={value!r},\n" for key, value in settings.items())
        return f"from {module} import {name}\n\narguments = {name}(\n{lines})"
    lines, above = [], ""
    for key, value in settings.items():
        outer, _, inner = key.rpartition(".")
        if outer and outer != above:
            lines.append(f"{outer}:")
        above = outer
        lines.append(f"{'  ' if outer else ''}{inner}: {_scalar(value)}")
    return "\n".join(lines)


def _scalar(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, bool):
        return str(value).lower()
    # Many readers of YAML take 2e-05 for a word, since it has no point.
    return f"{Decimal(repr(value)):f}" if isinstance(value, float) else str(value)
