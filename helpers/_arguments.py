"""What ``train`` is told, checked before any work."""

import math
from collections.abc import Sequence

from helpers._checks import one_of, positive, whole
from helpers.accumulate import NORMALIZE
from helpers.plan import RunPlan

GROW = ("accumulation", "batch_size")


def check_arguments(
    plan: RunPlan,
    *,
    lr: float,
    schedule: Sequence[float] | None,
    clip: float | None,
    normalize: str,
    grow: str,
    eval_every: int | None,
    seed: int,
) -> None:
    """Raise ``ValueError`` or ``TypeError`` for what cannot be meant in a run of this plan."""
    positive("lr", lr)
    if schedule is not None:
        _check_schedule(schedule, plan)
    if clip is not None:
        positive("clip", clip)
    one_of("normalize", normalize, NORMALIZE)
    if one_of("grow", grow, GROW) == "batch_size":
        _check_stages(plan)
    if eval_every is not None:
        whole("eval_every", eval_every)
    whole("seed", seed, at_least=0)


def _check_schedule(schedule: Sequence[float], plan: RunPlan) -> None:
    if len(schedule) != plan.total_steps:
        raise ValueError(
            f"schedule must have one factor for each of the {plan.total_steps} updates; got "
            f"{len(schedule)}. RunPlan(...).total_steps gives the number"
        )
    for factor in schedule:
        if not (math.isfinite(factor) and factor >= 0):
            raise ValueError(f"schedule must hold finite factors of at least 0; got {factor!r}")


def _check_stages(plan: RunPlan) -> None:
    for stage in plan.stages:
        if stage.batch_size % plan.effective_batch_size:
            raise ValueError(
                f"grow='batch_size' needs a ramp of whole multiples of its first batch of "
                f"{plan.effective_batch_size}; got {stage.batch_size}. grow='accumulation' "
                f"does without"
            )
