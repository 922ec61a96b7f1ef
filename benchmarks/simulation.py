"""How long a simulated update of a 7 B model takes, and how much real memory."""

import json
import subprocess
import sys

from benchmarks.table import Report, Row, spread

ROUNDS = 3
SECONDS, GIBIBYTES = 10.0, 1.5

# In a process of its own, so that its largest size is that of the simulation.
SIMULATE = """
import json, resource, sys, time
from helpers.memory import simulate
started = time.perf_counter()
peak = simulate("llama-7b", batch_size=1, context=2048).peak
seconds = time.perf_counter() - started
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps([seconds, unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, peak]))
"""


def report() -> Report:
    """Simulate one update in bf16 with AdamW at a context of 2,048, in a few new processes."""
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", SIMULATE], check=True, stdout=subprocess.PIPE, text=True
            ).stdout
        )
        for _ in range(ROUNDS)
    ]
    seconds = [row[0] for row in found]
    memory = [row[1] / 2**30 for row in found]
    rows = [
        Row(f"simulation of 7 B, {unit}", f"{max(values):.2f} {unit}", spread(values),
            f"below {limit:g} {unit}", max(values) < limit)
        for unit, values, limit in (("s", seconds, SECONDS), ("GiB", memory, GIBIBYTES))
    ]  # fmt: skip
    return Report(rows, [f"The update that was simulated peaks at {found[0][2] / 2**30:.1f} GiB."])
