"""The arithmetic of a run: batches, updates and epochs, and who is in the last one.

A *step* is one update of the weights. A *micro-batch* is what one device puts through the model at
once; with accumulation, several of them make one step. Nothing here imports torch.
"""

from helpers.plan.backward import (
    Split,
    Splits,
    accumulation_for,
    infer_effective_batch,
    splits_for,
)
from helpers.plan.log import LogCheck, check_log
from helpers.plan.run import PlannedStage, ResumePoint, RunPlan
from helpers.plan.sizes import UpdateSizes

__all__ = [
    "LogCheck",
    "PlannedStage",
    "ResumePoint",
    "RunPlan",
    "Split",
    "Splits",
    "UpdateSizes",
    "accumulation_for",
    "check_log",
    "infer_effective_batch",
    "splits_for",
]
