"""Models of one shape, their weights the rows of one tensor, trained side by side.

A small model leaves a machine idle between its many small operations. Runs of one batch size can
share these operations: ``torch.func.vmap`` puts all rows through the model together.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import Optimizer

from helpers.accumulate import MicroBatch
from helpers.model import IGNORED, token_loss
from helpers.plan import RunPlan
from helpers.schedule import lr_factors
from helpers.sweep.result import SweepResult
from helpers.train import Data, Examples, build_optimizer, draw_updates

# Optimizers that treat every number of a tensor alike, so that it may be a row of a stack.
ELEMENTWISE = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
)


@dataclass(frozen=True)
class Run:
    """One run of the grid: its seed, rate and warmup, and where its results go."""

    seed: int
    rate: float
    warmup: float
    result: SweepResult
    place: tuple[int, int]


@dataclass(frozen=True)
class Job:
    """All that the runs of one batch size have in common."""

    make: Callable[[int], nn.Module]
    data: Data
    eval_data: Data
    plan: RunPlan
    optimizer: str | Callable[..., Optimizer]
    evaluations: int

    def factors(self, warmup: float) -> tuple[float, ...]:
        """Return the factor on the rate for each update of a run."""
        return lr_factors(self.plan.total_steps, self.plan.replace(warmup=warmup).warmup_steps)

    @property
    def eval_every(self) -> int:
        """Updates between two measurements of the held-out loss."""
        return -(-self.plan.total_steps // self.evaluations)

    @property
    def eval_steps(self) -> list[int]:
        """The numbers of updates after which the held-out loss is measured."""
        total = self.plan.total_steps
        return [*range(0, total, self.eval_every), total]


class Stack:
    """Models of one shape, their weights the rows of one tensor, trained side by side.

    The optimizer is torch's own. Each row is a parameter, in a group with those of the same rate
    and warmup.
    """

    def __init__(self, job: Job, runs: Sequence[Run]) -> None:
        self.runs = list(runs)
        models = [job.make(run.seed) for run in runs]
        self.model = models[0].train()
        self.names = [name for name, _ in self.model.named_parameters()]
        self.shapes = [part.shape for part in self.model.parameters()]
        self.sizes = [part.numel() for part in self.model.parameters()]
        weights = torch.stack([parameters_to_vector(model.parameters()) for model in models])
        self._hold(weights)
        self.rows = list(weights.detach())
        groups: dict[tuple[float, float], list[Tensor]] = {}
        for row, run in zip(self.rows, runs):
            groups.setdefault((run.rate, run.warmup), []).append(row)
        self.optimizer = build_optimizer(
            job.optimizer,
            [
                {"params": rows, "lr": rate, "rates": [rate * f for f in job.factors(warmup)]}
                for (rate, warmup), rows in groups.items()
            ],
            runs[0].rate,
        )

    def _hold(self, weights: Tensor) -> None:
        self.weights = weights.detach().requires_grad_()

    def _loss_of_one(self, row: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        parts = [part.view(shape) for part, shape in zip(row.split(self.sizes), self.shapes)]
        logits = functional_call(self.model, dict(zip(self.names, parts)), (inputs,))
        return token_loss(logits, targets, "sum") / (targets != IGNORED).sum()

    def losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each run on its own batch; inputs have shape (runs, batch, length)."""
        # The fused attention of the CPU cannot be stacked.
        with sdpa_kernel(SDPBackend.MATH):
            return vmap(self._loss_of_one, randomness="different")(self.weights, inputs, targets)

    def update(self, inputs: Tensor, targets: Tensor, step: int) -> Tensor:
        """Make update ``step``, from 1, of each run whose loss is finite; return the losses.

        The other runs leave the stack.
        """
        losses = self.losses(inputs, targets)
        (gradients,) = torch.autograd.grad(losses.sum(), self.weights)
        losses = losses.detach()
        finite = losses.isfinite()
        if not finite.all():
            self._keep(finite)
            gradients = gradients[finite]
        for group in self.optimizer.param_groups:
            group["lr"] = group["rates"][step - 1]
        for row, gradient in zip(self.rows, gradients):
            row.grad = gradient
        if self.runs:
            self.optimizer.step()
        return losses

    def _keep(self, kept: Tensor) -> None:
        """Let the other runs leave the stack, with their states in the optimizer."""
        flags = kept.tolist()
        for row, flag in zip(self.rows, flags):
            if not flag:
                row.grad = None  # the optimizer passes over it
                self.optimizer.state.pop(row, None)
        self.runs = list(itertools.compress(self.runs, flags))
        self.rows = list(itertools.compress(self.rows, flags))
        self._hold(self.weights.detach()[kept])
        for row, weights in zip(self.rows, self.weights.detach()):
            row.data = weights  # the optimizer knows its parameters by identity

    def held_out(self, examples: Examples) -> list[float]:
        """Return the held-out loss of each run."""
        result = []
        for row in self.rows:
            vector_to_parameters(row.clone(), self.model.parameters())
            result.append(examples.mean_loss(self.model))
        return result


class Batches:
    """The batches of a stack's runs: runs of one seed see the same examples in the same order."""

    def __init__(self, job: Job, runs: Sequence[Run], stack: Stack) -> None:
        self.examples = Examples("data", job.data, stack.model)
        self.updates = {run.seed: draw_updates(job.plan, run.seed) for run in runs}

    def next_for(self, runs: Sequence[Run]) -> MicroBatch:
        """Return the next batch of each run, of shape (runs, batch, length)."""
        drawn = {seed: next(updates)[0] for seed, updates in self.updates.items()}
        return self.examples.batch(torch.stack([drawn[run.seed] for run in runs]))
