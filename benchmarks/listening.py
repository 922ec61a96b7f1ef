"""What a notebook says while it runs: its claims, the seconds of each cell, the peak of memory.

``gpu_check`` puts a cell before the first one that calls ``listen`` in the notebook's own kernel.
What was heard is written after each cell, so that it is there when the kernel is stopped.
"""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from helpers import claims
from helpers.device import pick, wait


def listen(shell: Any, file: str, cells: Sequence[str]) -> None:  # noqa: ANN401
    """Write to ``file``, as JSON, what the named cells say that ``shell`` runs from now on.

    A claim that is contradicted is written down and does not stop the notebook, so that all of
    them are heard.
    """
    waiting, device = iter(cells), pick()
    heard: dict[str, Any] = {"claims": [], "cells": {}, "peak_mib": None}
    started, running = 0.0, ""

    def note(text: str, ok: object, /, **measured: object) -> None:
        judged = claims._judgement(ok)
        distance = judged.distance if math.isfinite(judged.distance) else None
        numbers = claims._numbers(measured, judged.words).strip(" []")
        found = {"cell": running, "claim": text, "outcome": judged.outcome.name.lower()}
        heard["claims"].append(found | {"distance": distance, "numbers": numbers})

    def note_verdict(
        number: str, statement: str, finding: str, ok: object, /, **measured: object
    ) -> None:
        note(f"{number} “{statement}” {finding}", ok, **measured)

    def before(_: object) -> None:
        nonlocal started, running
        started, running = time.perf_counter(), next(waiting)

    def after(_: object) -> None:
        if not running:  # the cell that called this function
            return
        wait(device)
        heard["cells"][running] = round(time.perf_counter() - started, 2)
        if device.type == "cuda":
            heard["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
        Path(file).write_text(json.dumps(heard), "utf-8")

    claims.claim, claims.verdict = note, note_verdict
    shell.events.register("pre_run_cell", before)
    shell.events.register("post_run_cell", after)
