"""What a run sees: a data set, checked, and the order in which its examples are drawn."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from helpers._replica import bare
from helpers.accumulate import MicroBatch
from helpers.data import shuffled_batches
from helpers.model import IGNORED, token_loss
from helpers.plan import RunPlan

Data = Tensor | tuple[Tensor, Tensor]


class Examples:
    """A data set on the model's device, checked once against the model before any work."""

    def __init__(self, name: str, data: Data, model: nn.Module) -> None:
        inputs, targets = _inputs_and_targets(name, data)
        config = getattr(bare(model), "config", None)
        if config is not None and inputs.shape[1] > config.context:
            raise ValueError(
                f"{name} must hold at most {config.context} inputs an example, the model's "
                f"context; got {inputs.shape[1]}"
            )
        largest = int(max(inputs.max(), targets.max()))
        if config is not None and largest >= config.vocab_size:
            raise ValueError(
                f"{name} must hold tokens below the model's vocab_size of {config.vocab_size}; "
                f"got {largest}"
            )
        device = next(model.parameters()).device
        self.name = name
        self.inputs, self.targets = inputs.to(device), targets.to(device)
        self.target_counts = (targets != IGNORED).sum(1).cpu()
        if not self.target_counts.any():
            raise ValueError(f"{name} must hold a target; got {len(self)} examples without one")

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, positions: Tensor) -> MicroBatch:
        """Return the inputs and targets of the examples at these positions."""
        positions = positions.to(self.inputs.device)
        return self.inputs[positions], self.targets[positions]

    def refuse_update_without_target(self, plan: RunPlan, seed: int) -> None:
        """Raise ``ValueError`` if any update of the run would have nothing to learn from."""
        if self.target_counts.all():
            return
        on_devices = zip(*(draw_updates(plan, seed, rank) for rank in range(plan.devices)))
        for number, shares in enumerate(itertools.islice(on_devices, plan.total_steps), start=1):
            drawn = torch.cat([positions for share in shares for positions in share])
            if not self.target_counts[drawn].any():
                raise ValueError(
                    f"{self.name} must give every update a target; none of the {len(drawn)} "
                    f"examples of update {number} has one. Use a larger batch_size, or leave out "
                    f"examples without a target"
                )

    @torch.inference_mode()
    def mean_loss(self, model: nn.Module, batch_size: int = 256) -> float:
        """Return the loss per target over all examples, whatever the batch size."""
        model = bare(model)
        was_training = model.training
        model.eval()
        total = 0.0
        for positions in torch.arange(len(self)).split(batch_size):
            inputs, targets = self.batch(positions)
            total += token_loss(model(inputs), targets, "sum").item()
        model.train(was_training)
        return total / int(self.target_counts.sum())


def _inputs_and_targets(name: str, data: Data) -> tuple[Tensor, Tensor]:
    windows = isinstance(data, Tensor)
    parts = (data,) if windows else tuple(data)
    shapes = [getattr(part, "shape", type(part).__name__) for part in parts]
    if len(parts) != 2 - windows or any(
        not isinstance(part, Tensor) or part.dim() != 2 or part.dtype != torch.int64
        for part in parts
    ):
        raise TypeError(
            f"{name} must be windows of token ids, int64 of shape (examples, context + 1), or a "
            f"pair (inputs, targets) of the same shape; got {shapes}"
        )
    inputs, targets = (data[:, :-1], data[:, 1:]) if windows else parts
    if inputs.shape != targets.shape:
        raise ValueError(f"{name} must hold inputs and targets of one shape; got {shapes}")
    if inputs.numel() == 0:
        raise ValueError(f"{name} must hold at least one example with a token; got {shapes}")
    return inputs, targets


def draw_updates(
    plan: RunPlan, seed: int, rank: int = 0, *, made: int = 0, grow: str = "accumulation"
) -> Iterator[list[Tensor]]:
    """Yield one device's micro-batches (as positions) of each update, epoch after epoch.

    With ``made`` they are those of the updates that follow so many. ``grow`` says what a ramp adds
    to: "accumulation", or "batch_size" for larger micro-batches, as many as the plan has at first.
    """
    first_epoch, skipped, _ = plan.resume_point(made)
    for epoch in itertools.count(first_epoch):
        batches = shuffled_batches(
            plan.examples,
            plan.batch_size,
            seed=seed,
            epoch=epoch,
            drop_last=plan.drop_last,
            rank=rank,
            devices=plan.devices,
        )
        batches = batches[: plan.batches_per_epoch]  # without a last update that is left out
        start, skipped = skipped, 0
        while start < len(batches):
            accumulation = plan.accumulation_at(made)
            end = start + accumulation
            update = batches[start:end]
            if grow == "batch_size":
                size = plan.batch_size * (accumulation // plan.accumulation)
                update = list(torch.cat(update).split(size))
            yield update
            start, made = end, made + 1
