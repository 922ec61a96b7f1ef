"""Run the benchmarks, all or those that are named: ``python -m benchmarks [NAME ...]``."""

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence

import torch

from benchmarks import (
    accumulation,
    checkpoints,
    many_runs,
    notebook_times,
    peak,
    simulation,
    start_up,
    training,
)
from benchmarks.table import written

BENCHMARKS = {
    "start-up": start_up.report,
    "training": training.report,
    "peak": peak.report,
    "accumulation": accumulation.report,
    "many-runs": many_runs.report,
    "checkpoints": checkpoints.report,
    "simulation": simulation.report,
    "notebooks": notebook_times.report,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks and print one table; a missed target is printed, never an error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    names = parser.parse_args(arguments).names or list(BENCHMARKS)
    for name in names:
        if name not in BENCHMARKS:
            parser.error(f"NAME must be one of {', '.join(BENCHMARKS)}; got {name!r}")

    os.environ["TQDM_DISABLE"] = "1"  # our bars would run over the table
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, "
        f"Python {platform.python_version()}, {platform.machine()}\n"
    )
    reports = []
    for name in names:
        started = time.perf_counter()
        reports.append(BENCHMARKS[name]())
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    print(written(reports))


if __name__ == "__main__":
    main()
