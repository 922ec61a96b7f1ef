"""A big update from small batches, on one device or several: how their gradients are added.

The rule is here and nowhere else: every target of an update has the same say.
"""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from helpers._checks import one_of, positive
from helpers.model import IGNORED, token_loss
from helpers.precision import Precision

MicroBatch = tuple[Tensor, Tensor]
NORMALIZE = ("tokens", "batches")


def backward(
    model: nn.Module,
    micro_batches: Sequence[MicroBatch],
    *,
    normalize: str = "tokens",
    precision: Precision | None = None,
) -> tuple[Tensor, int]:
    """Add the gradients of one update to the parameters' ``.grad``; return its loss and targets.

    ``micro_batches`` are pairs (inputs, targets) as ``collate`` makes them. With "tokens" the loss
    is the sum over all targets of the update divided by their number, so that it does not matter
    how they are dealt out to micro-batches. With "batches" it is the mean of each micro-batch's own
    mean, which weights a target more where there are few: the fault that Transformers had until
    October 2024, kept here to be shown. A micro-batch without a target adds nothing.

    A model in ``DistributedDataParallel`` shares the update with the other devices. Loss and
    number of targets are then those of all devices, and gradients are sent once, with the last
    micro-batch. With "batches" each device averages its own.

    ``precision`` says in what numbers the model computes, those that it has if not given; the loss
    is added up in 32 bits or more. With "float16" the gradients are scaled: see ``Precision``.

    Raises ``ValueError`` for no micro-batch, no target in the whole update, or an unknown rule.
    """
    one_of("normalize", normalize, NORMALIZE)
    counts = [int((targets != IGNORED).sum()) for _, targets in micro_batches]
    shared = isinstance(model, DistributedDataParallel)
    # The gradients of several devices are averaged, so each divides by the mean of their targets.
    mean_count = _mean_over_devices(float(sum(counts)), model) if shared else sum(counts)
    if mean_count == 0:
        raise ValueError(
            f"micro_batches must hold a target; got {len(counts)} micro-batches without one"
        )
    precision = precision or Precision("float32", model)
    total: Tensor | float = 0.0
    for number, ((inputs, targets), count) in enumerate(zip(micro_batches, counts), start=1):
        if count == 0 and not shared:
            continue
        divisor = mean_count if normalize == "tokens" else max(count, 1) * len(counts)
        with model.no_sync() if shared and number < len(counts) else nullcontext():
            with precision.forward():
                logits = model(inputs)
            loss = token_loss(precision.wide(logits), targets, "sum") / divisor
            precision.scaled(loss).backward()
        total = total + loss.detach()
    if not shared:
        return total, sum(counts)
    return _mean_over_devices(total, model), round(mean_count.item() * dist.get_world_size())


def _mean_over_devices(value: Tensor | float, model: DistributedDataParallel) -> Tensor:
    """Return the mean of a number over all devices, in the precision of the model or better."""
    device = next(model.parameters()).device
    mean = torch.as_tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(mean, group=model.process_group)
    return mean / dist.get_world_size(model.process_group)


def gradients(
    model: nn.Module,
    micro_batches: Sequence[MicroBatch],
    *,
    normalize: str = "tokens",
    clip: float | None = None,
) -> dict[str, Tensor]:
    """Return the gradient of one update for each parameter name; see ``backward``.

    ``clip`` scales the whole gradient down to that norm, once, after the last micro-batch. The
    parameters' own ``.grad`` is empty afterwards.
    """
    model.zero_grad()
    backward(model, micro_batches, normalize=normalize)
    if clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), positive("clip", clip))
    result = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
    }
    model.zero_grad()
    return result


def relative_difference(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """Return ‖a − b‖ ÷ ‖b‖ over all parameters, in float64.

    Raises ``ValueError`` if the two do not name the same parameters or ``b`` is zero.
    """
    if a.keys() != b.keys():
        raise ValueError(f"a and b must name the same parameters; got {sorted(a)} and {sorted(b)}")
    difference = sum((a[name].double() - b[name].double()).square().sum() for name in b)
    norm = sum(gradient.double().square().sum() for gradient in b.values())
    if norm == 0:
        raise ValueError("b must not be zero: there is nothing to compare with")
    return float((difference / norm).sqrt())
