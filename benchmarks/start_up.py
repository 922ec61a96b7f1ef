"""How long it takes until ``helpers`` is there, and until a plan is made."""

import json
import subprocess
import sys
import time
from statistics import median

from benchmarks.table import Report, Row, spread
from helpers.plan import RunPlan

ROUNDS = 7
PLANS = 200
NOTEBOOK = "helpers.train, helpers.data, helpers.model, helpers.accumulate, helpers.device"

PLANNER = """
import json, sys, time
started = time.perf_counter()
import helpers.plan
print(json.dumps([time.perf_counter() - started, "torch" in sys.modules]))
"""

# Both times in one process: how long torch takes varies more than what comes on top of it.
ON_TOP_OF_TORCH = """
import json, time
started = time.perf_counter()
import torch
between = time.perf_counter()
import {modules}
print(json.dumps([between - started, time.perf_counter() - started]))
"""


def _fresh(code: str) -> list:
    """Run code in a new Python and return the JSON that it prints."""
    answer = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(answer.stdout)


def plan_in_full() -> RunPlan:
    """Make a plan for a trillion examples and ask it for everything it knows."""
    plan = RunPlan(10**12, 8, accumulation=3, devices=7, epochs=2.5, warmup=0.07, tokens=10**15)
    for name in dir(RunPlan):
        if isinstance(getattr(RunPlan, name), property):
            getattr(plan, name)
    repr(plan)
    plan._repr_html_()
    return plan


def report() -> Report:
    """Time imports in fresh processes, taking turns, and a plan in this one."""
    planner, bare, notebook = [], [], []
    for _ in range(ROUNDS):
        planner.append(_fresh(PLANNER))
        bare.append(_fresh(ON_TOP_OF_TORCH.format(modules="helpers")))
        notebook.append(_fresh(ON_TOP_OF_TORCH.format(modules=NOTEBOOK)))
    seconds = [took for took, _ in planner]
    with_torch = any(torch_is_there for _, torch_is_there in planner)
    bare_ratios, notebook_ratios = ([whole / torch for torch, whole in x] for x in (bare, notebook))

    plans = []
    for _ in range(PLANS):
        started = time.perf_counter()
        plan_in_full()
        plans.append((time.perf_counter() - started) * 1000)

    rows = [
        Row(
            "import helpers.plan leaves torch out",
            f"{median(seconds) * 1000:.0f} ms",
            spread([took * 1000 for took in seconds], 0),
            "no torch",
            not with_torch,
        ),
        Row(
            "import helpers, against import torch",
            f"{median(bare_ratios):.3f} ×",
            spread(bare_ratios, 3),
            "at most 1.05 ×",
            median(bare_ratios) <= 1.05,
        ),
        Row(
            "a notebook's imports, against import torch",
            f"{median(notebook_ratios):.3f} ×",
            spread(notebook_ratios, 3),
        ),
        Row(
            "RunPlan for 10¹² examples, all of it",
            f"{median(plans):.2f} ms",
            spread(plans),
            "below 1 ms",
            median(plans) < 1,
        ),
    ]
    took = median(torch for torch, _ in bare)
    return Report(
        rows,
        [
            f"Start-up: each import in a fresh process; import torch alone took {took:.2f} s. A "
            f"notebook's imports are {NOTEBOOK}. A plan is asked for every property, its text "
            "and its table."
        ],
    )
