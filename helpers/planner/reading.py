"""What somebody pasted: an out-of-memory error explained, or a log held against the plan."""

import json
from collections.abc import Mapping
from typing import Any

from helpers.footprint import gib
from helpers.oom import explain_oom, says_out_of_memory
from helpers.plan import LogCheck, RunPlan, check_log
from helpers.planner.answers import PLAN
from helpers.planner.fields import values


def read_json(given: str) -> str:
    """Return what ``read`` finds in the "text" of a JSON object whose other texts are fields."""
    texts = json.loads(given)
    return json.dumps(read(texts.pop("text"), texts))


def read(text: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return what an error or a log says, a log beside the plan of the fields if these make one.

    A "title", "lists" of sentences by heading, and "rows" of numbers.
    """
    if says_out_of_memory(text):
        error = explain_oom(text)
        return {
            "title": f"Out of memory: {error.cause}",
            "lists": {"What to do": [error.advice]},
            "rows": [[name, gib(size)] for name, size in error.known.items()],
        }
    plan = _plan(texts)
    try:
        log = check_log(plan, text)
    except ValueError as error:
        return {"title": "Nothing to read", "lists": {"Why": [str(error)]}, "rows": []}
    lists = {
        "It contradicts the plan, or itself": log.contradicts,
        "It implies": log.implies,
        "It agrees with the plan": log.agrees,
    }
    rows = [] if log.effective_batch is None else [["effective batch", f"{log.effective_batch:,}"]]
    return {
        "title": _title(log, plan),
        "lists": {heading: list(lines) for heading, lines in lists.items() if lines},
        "rows": rows,
    }


def _plan(texts: Mapping[str, str]) -> RunPlan | None:
    value, _ = values(texts)
    try:
        return RunPlan(**{name: value[name] for name in PLAN})
    except (KeyError, ValueError, TypeError, OverflowError):
        return None  # the form says what is wrong with it


def _title(log: LogCheck, plan: RunPlan | None) -> str:
    if log.contradicts:
        return "A log with a contradiction"
    return "A log" if plan is None or not log.agrees else "A log that agrees with the plan"
