"""How noisy a gradient is, and the batch size at which more examples stop paying."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from helpers._checks import positive, whole
from helpers.accumulate import MicroBatch, gradients
from helpers.model import IGNORED, token_loss

GROUP = 32  # examples that are left out together, to see how far an estimate moves
LEAST_GROUPS = 8
CHUNK = 64  # examples whose gradients are there at the same time
TWO_SIGMA = 2.0


@dataclass(frozen=True)
class NoiseScale:
    """How noisy the gradient of one example is, beside the gradient itself.

    ``trace`` is tr(Σ), the variance of one example's gradient added up over all parameters, and
    ``squared_norm`` is |G|², the squared length of the true gradient; both are unbiased estimates.
    ``low`` and ``high`` lie two standard errors from ``simple`` on a logarithmic scale (a jackknife
    over groups of examples or updates); they are NaN where there is too little to tell.
    """

    trace: float
    squared_norm: float
    examples: int
    low: float = math.nan
    high: float = math.nan

    @property
    def simple(self) -> float:
        """tr(Σ) ÷ |G|², in examples (McCandlish et al. 2018, arXiv 1812.06162, eq. 2.9).

        At a batch of this size noise and gradient are equally long. Infinite if the noise hides the
        gradient altogether, so that |G|² is estimated at zero or below.
        """
        return self.trace / self.squared_norm if self.squared_norm > 0 else math.inf

    def __repr__(self) -> str:
        span = "" if math.isnan(self.low) else f" ({self.low:.3g} to {self.high:.3g})"
        return f"NoiseScale: {self.simple:.3g} examples{span}, from {self.examples:,}"


def per_example_gradients(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Return the gradient of each example, by parameter name, of shape (examples, *parameter).

    ``inputs`` and ``targets`` are int64 of shape (examples, length). An example's gradient is that
    of the sum of its token losses, times examples ÷ targets of the whole batch. So the mean over
    the examples is the gradient of the batch, also where lengths differ, and with equal lengths
    each is the gradient of the example's own mean loss.

    Raises ``ValueError`` for a model with batch norm, where an example has no gradient of its own,
    and for a batch without a target.
    """
    count = _count_targets(model, inputs, targets)
    weight = len(inputs) / count
    parts = _gradients_of_each(model)(inputs, targets)
    return {name: part * weight for (name, _), part in zip(model.named_parameters(), parts)}


def _count_targets(model: nn.Module, inputs: Tensor, targets: Tensor) -> int:
    if any(isinstance(part, _BatchNorm) for part in model.modules()):
        raise ValueError(
            "model must not have batch norm: it mixes the examples of a batch, so that none has a "
            "gradient of its own"
        )
    if inputs.dim() != 2 or inputs.shape != targets.shape:
        raise ValueError(
            f"inputs and targets must have one shape (examples, length); got "
            f"{tuple(inputs.shape)} and {tuple(targets.shape)}"
        )
    count = int((targets != IGNORED).sum())
    if count == 0:
        raise ValueError(f"targets must hold a target; got {len(targets)} examples without one")
    return count


def _gradients_of_each(model: nn.Module) -> Callable[[Tensor, Tensor], list[Tensor]]:
    """Return a function from a batch to each example's gradient of its sum of token losses."""
    parameters = {name: part.detach() for name, part in model.named_parameters()}

    def loss_of_one(weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        logits = functional_call(model, weights, (inputs[None],))
        return token_loss(logits, targets[None], "sum")

    each = vmap(grad(loss_of_one), in_dims=(None, 0, 0), randomness="different")

    def gradients_of_each(inputs: Tensor, targets: Tensor) -> list[Tensor]:
        with sdpa_kernel(SDPBackend.MATH):  # the fused attention of the CPU cannot be stacked
            return list(each(parameters, inputs, targets).values())

    return gradients_of_each


def noise_scale(model: nn.Module, inputs: Tensor, targets: Tensor) -> NoiseScale:
    """Measure the noise scale of the gradient from each example's own gradient.

    tr(Σ) is the unbiased variance over the examples, and |G|² = |mean|² − tr(Σ) ÷ examples
    (McCandlish et al. 2018, arXiv 1812.06162, appendix A.1). No more than 64 gradients are held at
    once. Arguments and errors as for ``per_example_gradients``; two examples at least.
    """
    if len(inputs) < 2:
        raise ValueError(f"inputs must hold two examples or more; got {len(inputs)}")
    weight = len(inputs) / _count_targets(model, inputs, targets)
    gradients_of_each = _gradients_of_each(model)
    sizes, sums, squares = [], [], []
    for positions in torch.arange(len(inputs)).split(CHUNK):
        parts = [
            part.flatten(1) for part in gradients_of_each(inputs[positions], targets[positions])
        ]
        group = min(GROUP, -(-len(inputs) // LEAST_GROUPS))
        for start in range(0, len(positions), group):
            rows = [part[start : start + group] for part in parts]
            sizes.append(len(rows[0]))
            sums.append(torch.cat([part.sum(0) for part in rows]).double() * weight)
            squares.append(sum(torch.linalg.vector_norm(part).item() ** 2 for part in rows))
    squared = torch.tensor(squares, dtype=torch.float64) * weight**2
    return _from_groups(sizes, torch.stack(sums), squared)


def _from_groups(sizes: Sequence[int], sums: Tensor, squares: Tensor) -> NoiseScale:
    """Return the noise scale from each group's size, sum of gradients and sum of squared norms."""
    counts = torch.tensor(sizes, dtype=torch.float64)
    trace, squared_norm = _moments(counts.sum(), sums.sum(0), squares.sum())
    alone = [
        _moments(counts.sum() - count, sums.sum(0) - part, squares.sum() - square)
        for count, part, square in zip(counts, sums, squares)
        if counts.sum() - count >= 2
    ]
    low, high = _jackknife(trace, squared_norm, alone)
    return NoiseScale(trace, squared_norm, int(counts.sum()), low, high)


def _moments(count: Tensor, total: Tensor, squares: Tensor) -> tuple[float, float]:
    """Return tr(Σ) and |G|², unbiased, from the sum of gradients and of their squared norms."""
    mean_square = (total / count).square().sum()
    trace = (squares - count * mean_square) / (count - 1)
    return trace.item(), (mean_square - trace / count).item()


def _jackknife(
    trace: float, squared_norm: float, left_out: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Return an interval of tr(Σ) ÷ |G|² from the estimates with one group left out in turn."""
    usable = squared_norm > 0 and trace > 0 and all(t > 0 and g > 0 for t, g in left_out)
    if len(left_out) < 3 or not usable:
        return math.nan, math.nan
    logs = torch.tensor([math.log(t / g) for t, g in left_out], dtype=torch.float64)
    error = ((len(logs) - 1) * logs.var(correction=0)).sqrt().item()
    middle = math.log(trace / squared_norm)
    return math.exp(middle - TWO_SIGMA * error), math.exp(middle + TWO_SIGMA * error)


def window_norms(model: nn.Module, micro_batches: Sequence[MicroBatch]) -> tuple[float, float]:
    """Return |gradient|² of a micro-batch (mean over them) and of the whole accumulation window.

    An accumulating run has both at no extra cost; they are what ``two_batch_noise_scale`` takes.
    Each micro-batch counts with its own mean, so give them equal numbers of targets.
    """
    if len(micro_batches) < 2:
        raise ValueError(f"micro_batches must be two or more; got {len(micro_batches)}")
    small, total = [], 0.0
    for micro_batch in micro_batches:
        gradient = torch.cat([g.flatten() for g in gradients(model, [micro_batch]).values()])
        small.append(gradient.square().sum(dtype=torch.float64).item())
        total = total + gradient.double()
    whole_window = (total / len(micro_batches)).square().sum().item()
    return sum(small) / len(small), whole_window


def two_batch_noise_scale(
    small_norms: Sequence[float],
    big_norms: Sequence[float],
    *,
    small_batch: int,
    big_batch: int,
) -> NoiseScale:
    """Estimate the noise scale from the squared lengths of gradients at two batch sizes.

    ``small_norms`` and ``big_norms`` hold |G|² of one or more updates at each size. With their
    means, |G|² ≈ (B₂·|G₂|² − B₁·|G₁|²) ÷ (B₂ − B₁) and tr(Σ) ≈ (|G₁|² − |G₂|²) ÷ (1/B₁ − 1/B₂),
    each averaged before one is divided by the other (McCandlish et al. 2018, arXiv 1812.06162,
    appendix A.1). One update says little: give many.

    Raises ``ValueError`` if the sizes do not rise, or the two lists are empty or differ in length.

    >>> two_batch_noise_scale([2.0], [1.25], small_batch=1, big_batch=4).simple  # 1 + 1/B
    1.0
    """
    if whole("big_batch", big_batch) <= whole("small_batch", small_batch):
        raise ValueError(f"big_batch must be above small_batch={small_batch}; got {big_batch}")
    if len(small_norms) != len(big_norms) or not len(big_norms):
        raise ValueError(
            f"small_norms and big_norms must hold a number for each update; got "
            f"{len(small_norms)} and {len(big_norms)}"
        )
    small = torch.tensor(list(small_norms), dtype=torch.float64)
    big = torch.tensor(list(big_norms), dtype=torch.float64)

    def estimate(kept: Tensor) -> tuple[float, float]:
        one, two = small[kept].mean(), big[kept].mean()
        squared_norm = (big_batch * two - small_batch * one) / (big_batch - small_batch)
        trace = (one - two) / (1 / small_batch - 1 / big_batch)
        return trace.item(), squared_norm.item()

    updates = torch.arange(len(small))
    trace, squared_norm = estimate(updates)
    left_out = [estimate(updates[updates != u]) for u in updates] if len(updates) > 2 else []
    low, high = _jackknife(trace, squared_norm, left_out)
    return NoiseScale(trace, squared_norm, big_batch * len(big), low, high)


@dataclass(frozen=True)
class CriticalBatch:
    """A fit of S = S_min · (1 + B_c ÷ B): updates to a target loss against batch size.

    ``size`` is B_c, in examples. ``low`` and ``high`` lie two standard errors from it on a
    logarithmic scale. ``min_steps`` is S_min, the updates that no batch size can go below, and
    ``min_examples`` = S_min · B_c, the examples that no batch size can do without.
    """

    size: float
    low: float
    high: float
    min_steps: float

    @property
    def min_examples(self) -> float:
        """E_min, the examples needed at very small batches."""
        return self.min_steps * self.size

    def steps(self, batch_size: float) -> float:
        """Return the updates that the fit gives at a batch size."""
        return self.min_steps * (1 + self.size / positive("batch_size", batch_size))

    def __repr__(self) -> str:
        return (
            f"CriticalBatch: {self.size:.3g} examples ({self.low:.3g} to {self.high:.3g}), at "
            f"least {self.min_steps:,.0f} updates and {self.min_examples:,.0f} examples"
        )


def critical_batch(batch_sizes: Sequence[int], steps_to_target: Sequence[float]) -> CriticalBatch:
    """Fit S = S_min · (1 + B_c ÷ B) to the updates that each batch size needs to a target loss.

    The form is (S/S_min − 1)(E/E_min − 1) = 1 with E = B·S (McCandlish et al. 2018, arXiv
    1812.06162, eq. 2.11). Least squares in log S, so that each point counts by its relative error;
    the standard error is that of the linearised fit. A batch size that never reached the target
    (NaN) is left out.

    Raises ``ValueError`` if fewer than three batch sizes are left, or a number is not positive.

    >>> fit = critical_batch([1, 10, 100], [1100.0, 200.0, 110.0])
    >>> round(fit.size, 3), round(fit.min_steps, 3)
    (10.0, 100.0)
    """
    if len(batch_sizes) != len(steps_to_target):
        raise ValueError(
            f"steps_to_target must hold one number for each of the {len(batch_sizes)} batch sizes; "
            f"got {len(steps_to_target)}"
        )
    points = [
        (whole("batch_sizes", size), positive("steps_to_target", float(steps)))
        for size, steps in zip(batch_sizes, steps_to_target)
        if not math.isnan(steps)
    ]
    if len({size for size, _ in points}) < 3:
        raise ValueError(
            f"steps_to_target must be known at three batch sizes or more; got {len(points)}"
        )
    sizes, steps = (torch.tensor(column, dtype=torch.float64) for column in zip(*points))
    log_critical = _best_of_grid(sizes, steps.log())
    critical = math.exp(log_critical)
    offset = (steps.log() - (1 + critical / sizes).log()).mean()
    residual = steps.log() - offset - (1 + critical / sizes).log()
    # With log S_min free, what is left of the slope d log(1 + B_c/B) ÷ d log B_c tells B_c.
    slope = critical / (critical + sizes)
    slope = slope - slope.mean()
    variance = residual.square().sum() / max(len(points) - 2, 1)
    error = (variance / slope.square().sum()).sqrt().item()
    span = math.exp(TWO_SIGMA * error)
    return CriticalBatch(critical, critical / span, critical * span, math.exp(offset))


def _best_of_grid(sizes: Tensor, log_steps: Tensor) -> float:
    """Return the log of the B_c that fits best, on a grid made finer around its best point."""
    low, high = math.log(sizes.min().item()) - 10, math.log(sizes.max().item()) + 10
    for _ in range(6):
        grid = torch.linspace(low, high, 201, dtype=torch.float64)
        misfit = log_steps - (1 + grid.exp()[:, None] / sizes).log()
        best = int(misfit.var(1, correction=0).argmin())
        step = (grid[1] - grid[0]).item()
        low, high = grid[best].item() - step, grid[best].item() + step
    return (low + high) / 2
