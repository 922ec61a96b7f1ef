"""The best learning rate of a batch size, estimated where the data is: seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

NEAR = math.log(4.01)  # a factor of 4 in the rate, and a little for what rounding leaves
CLOSE = 0.25  # nats above the lowest: further up no parabola holds
EXACT = 5  # up to so many seeds all resamples are counted, 5**5 of them
DRAWS = 10_000  # resamples of more seeds than that


@dataclass(frozen=True)
class Best:
    """The best learning rate at a batch size, and the loss that it promises.

    ``rates`` and ``losses`` have one number for each seed, from its own runs alone, NaN for a seed
    whose runs were all lost. ``rate`` is the geometric mean of the rates and ``loss`` the mean of
    the losses, without the seeds that have none (NaN if no seed has one). ``low`` and ``high`` hold
    95 % of the geometric means of all resamples of the seeds with replacement (Efron 1979): of
    every one for up to 5 seeds, of 10,000 drawn by a seeded generator for more. ``at_edge`` is true
    if a seed's best rate of the grid has no neighbour on one side, or a lost one: its true best may
    lie outside.
    """

    batch_size: int
    rate: float
    loss: float
    low: float
    high: float
    at_edge: bool
    rates: tuple[float, ...]
    losses: tuple[float, ...]


def best_of(batch_size: int, learning_rates: Sequence[float], losses: Tensor) -> Best:
    """Return the best rate from the losses of each seed at each rate, NaN where there is none."""
    logs = torch.tensor(learning_rates, dtype=torch.float64).log()
    known = losses.nan_to_num(math.inf, posinf=math.inf)
    seeds = [_lowest(logs, row) for row in known]
    found = torch.tensor(
        [(log, loss) for log, loss, _ in seeds if not math.isnan(log)], dtype=torch.float64
    )
    if len(found) == 0:
        mean = low = high = loss = math.nan
    else:
        values = found[:, 0].sort().values  # in this order whatever that of the seeds
        low, high = _interval(values)
        mean = min(max(values.mean().item(), values[0].item()), values[-1].item())
        loss = found[:, 1].sort().values.mean().item()
    return Best(
        batch_size,
        math.exp(mean),
        loss,
        math.exp(low),
        math.exp(high),
        any(edge for *_, edge in seeds),
        tuple(math.exp(log) for log, *_ in seeds),
        tuple(loss for _, loss, _ in seeds),
    )


def _lowest(logs: Tensor, losses: Tensor) -> tuple[float, float, bool]:
    """Return the log of one seed's best rate, the loss there, and if a neighbour is missing.

    A parabola is fitted by least squares through the two neighbours of the best rate of the grid,
    and through the rates near it whose loss is close. A neighbour whose loss is not close counts as
    if it just were, so that a run on its way to being lost does not bend the fit. The vertex is
    kept within the rates used. The loss is that of the parabola, which is at most 0.04 below the
    lowest of the grid. Where a neighbour is missing or lost, rate and loss are those of the grid.
    """
    middle = int(losses.argmin())
    log, loss = logs[middle].item(), losses[middle].item()
    if math.isinf(loss):
        return math.nan, math.nan, True
    around = range(middle - 1, middle + 2)
    if any(not 0 <= i < len(losses) or losses[i].isinf() for i in around):
        return log, loss, True
    used = ((logs - log).abs() <= NEAR) & (losses <= loss + CLOSE)
    used[list(around)] = True
    x, y = logs[used] - log, (losses[used] - loss).clamp(max=CLOSE)
    powers = torch.stack([torch.ones_like(x), x, x**2], 1)
    height, slope, bend = torch.linalg.lstsq(powers, y[:, None]).solution[:, 0].tolist()
    if bend <= 0:  # as flat as three equal losses
        return log, loss, False
    vertex = min(max(-slope / (2 * bend), x[0].item()), x[-1].item())
    return log + vertex, loss + height + slope * vertex + bend * vertex**2, False


def _interval(values: Tensor) -> tuple[float, float]:
    """Return the bounds of 95 % of the means of resamples of the values."""
    count = len(values)
    if count <= EXACT:
        means = torch.cartesian_prod(*[values] * count).view(-1, count).mean(1)
    else:
        generator = torch.Generator().manual_seed(0)
        means = values[torch.randint(count, (DRAWS, count), generator=generator)].mean(1)
    low = means.quantile(0.025, interpolation="lower").item()
    return low, means.quantile(0.975, interpolation="higher").item()
