"""How long each notebook takes, beside the time that the README gives for it."""

import re
import time
from pathlib import Path

from benchmarks.gpu_check import notebooks
from benchmarks.table import Report, Row

README = Path(__file__).parent.parent / "README.md"
STATED = re.compile(r"\(notebooks/(\w+)\.ipynb\) \|[^|]*\|[^|]*\| (\d*)([¼½¾]?) min \|")
PARTS = {"": 0, "¼": 15, "½": 30, "¾": 45}
LIMIT = 1800  # seconds for all of them


def stated() -> dict[str, int]:
    """Return the seconds on a CPU that the README gives for each notebook."""
    return {
        name: 60 * int(minutes or 0) + PARTS[part]
        for name, minutes, part in STATED.findall(README.read_text("utf-8"))
    }


def report() -> Report:
    """Run every notebook once; its time should be within a factor of two of the one stated."""
    found = notebooks(time.perf_counter() + LIMIT)
    rows = []
    for name, seconds in stated().items():
        taken = found[name]["seconds"]
        within = found[name]["finished"] and seconds / 2 <= taken <= seconds * 2
        shown = f"{taken:.0f} s" if found[name]["finished"] else found[name]["error"] or "too long"
        target = f"{seconds / 2:.0f} to {2 * seconds} s"
        rows.append(Row(f"notebook {name}", shown, "", target, within))
    return Report(rows)
