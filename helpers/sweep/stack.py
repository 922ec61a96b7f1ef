"""Models of one shape, their weights the rows of one tensor, trained side by side.

A small model leaves a machine idle between its many small operations. Runs of one batch size can
share these operations.
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
from helpers.model import IGNORED, ModelConfig, token_loss
from helpers.plan import RunPlan
from helpers.schedule import lr_factors
from helpers.sweep.result import SweepResult
from helpers.sweep.side_by_side import logits_of_all
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
    """All that the runs of one batch size have in common.

    ``shape`` is that of the ``SmallLM`` s that ``make`` returns, None if it returns other models.
    """

    shape: ModelConfig | None
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
        self.shape = job.shape
        models = {run.seed: job.make(run.seed) for run in runs}
        self.model = models[runs[0].seed].train()
        self.names = [name for name, _ in self.model.named_parameters()]
        self.shapes = [part.shape for part in self.model.parameters()]
        self.sizes = [part.numel() for part in self.model.parameters()]
        starts = {seed: parameters_to_vector(m.parameters()) for seed, m in models.items()}
        weights = torch.stack([starts[run.seed] for run in runs])
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

    def losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each run on its own batch; inputs have shape (runs, batch, length)."""
        if self.shape is None:
            # The fused attention of the CPU has no rule for vmap.
            with sdpa_kernel(SDPBackend.MATH):
                logits = vmap(self._logits_of_one, randomness="different")(self.weights, inputs)
        else:
            logits = logits_of_all(self.shape, self._parts(self.weights), inputs)
        each = token_loss(logits, targets, "none").flatten(1)
        return each.sum(1) / (targets != IGNORED).flatten(1).sum(1)

    def _logits_of_one(self, row: Tensor, inputs: Tensor) -> Tensor:
        return functional_call(self.model, self._parts(row), (inputs,))

    def _parts(self, weights: Tensor) -> dict[str, Tensor]:
        """Return the parameters by name, of one row or of all."""
        parts = weights.split(self.sizes, -1)
        return {
            name: part.unflatten(-1, shape)
            for name, shape, part in zip(self.names, self.shapes, parts)
        }

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
        return [self._held_out(row, examples) for row in self.rows]

    def held_out_at_start(self, examples: Examples) -> list[float]:
        """Return the same before any update, when the runs of one seed are still alike."""
        rows = {run.seed: row for run, row in zip(self.runs, self.rows)}
        losses = {seed: self._held_out(row, examples) for seed, row in rows.items()}
        return [losses[run.seed] for run in self.runs]

    def _held_out(self, row: Tensor, examples: Examples) -> float:
        vector_to_parameters(row.clone(), self.model.parameters())
        return examples.mean_loss(self.model)


class Batches:
    """The batches of a stack's runs: runs of one seed see the same examples in the same order."""

    def __init__(self, job: Job, runs: Sequence[Run], stack: Stack) -> None:
        self.examples = Examples("data", job.data, stack.model)
        self.updates = {run.seed: draw_updates(job.plan, run.seed) for run in runs}

    def next_for(self, runs: Sequence[Run]) -> MicroBatch:
        """Return the next batch of each run, of shape (runs, batch, length)."""
        drawn = {seed: next(updates)[0] for seed, updates in self.updates.items()}
        return self.examples.batch(torch.stack([drawn[run.seed] for run in runs]))
