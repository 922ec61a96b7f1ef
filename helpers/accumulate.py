"""A big update from small batches: the one place where gradients of micro-batches are added."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from helpers._checks import one_of, positive
from helpers.model import IGNORED, token_loss

MicroBatch = tuple[Tensor, Tensor]


def backward(
    model: nn.Module, micro_batches: Sequence[MicroBatch], *, normalize: str = "tokens"
) -> Tensor:
    """Add the gradients of one update to the parameters' ``.grad`` and return its loss.

    ``micro_batches`` are pairs (inputs, targets) as ``collate`` makes them. With "tokens" the loss
    is the sum over all targets of the update divided by their number, so that it does not matter
    how they are dealt out to micro-batches. With "batches" it is the mean of each micro-batch's own
    mean, which weights a target more where there are few: the fault that Transformers had until
    October 2024, kept here to be shown. A micro-batch without a target adds nothing.

    Raises ``ValueError`` for no micro-batch, no target in the whole update, or an unknown rule.
    """
    one_of("normalize", normalize, ("tokens", "batches"))
    counts = [int((targets != IGNORED).sum()) for _, targets in micro_batches]
    if sum(counts) == 0:
        raise ValueError(
            f"micro_batches must hold a target; got {len(counts)} micro-batches without one"
        )
    total: Tensor | float = 0.0
    for (inputs, targets), count in zip(micro_batches, counts):
        if count == 0:
            continue
        divisor = sum(counts) if normalize == "tokens" else count * len(counts)
        loss = token_loss(model(inputs), targets, "sum") / divisor
        loss.backward()
        total = total + loss.detach()
    return total


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
