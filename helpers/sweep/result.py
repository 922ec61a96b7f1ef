"""What a grid of runs gave, and its reading: best rates, updates to a target, tables, files."""

import html
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from helpers._checks import positive

SETTINGS = ("learning_rates", "batch_sizes", "seeds", "examples", "optimizer")
NOTES = ("held_out_steps", "ways", "seconds", "interrupted")


@dataclass(frozen=True)
class Best:
    """The best learning rate at a batch size, and the loss that it promises.

    ``low`` and ``high`` are the lowest and highest best rate of a single seed. ``at_edge`` is true
    if the best of the grid is its first or last rate that did not diverge: the true one may then
    lie outside. ``rate`` and ``loss`` are NaN if every run diverged.
    """

    batch_size: int
    rate: float
    loss: float
    low: float
    high: float
    at_edge: bool


@dataclass(eq=False)
class SweepResult:
    """What a grid of runs gave; axes are (seeds, batch sizes, learning rates).

    ``loss`` is the final held-out loss in nats a token, float64, NaN for a run that diverged or was
    not finished. ``diverged_at`` is the update whose loss was not finite, 0 if there was none.
    ``curves`` has the training loss of every update for each batch size, of shape (seeds, rates,
    updates), and ``held_out`` the held-out loss after each of ``held_out_steps``. ``ways`` says how
    the runs of a batch size were trained, and ``seconds`` how long they took.
    """

    learning_rates: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    examples: tuple[int, ...]
    optimizer: str
    loss: Tensor = field(init=False)
    diverged_at: Tensor = field(init=False)
    finished: Tensor = field(init=False)
    curves: dict[int, Tensor] = field(init=False, default_factory=dict)
    held_out: dict[int, Tensor] = field(init=False, default_factory=dict)
    held_out_steps: dict[int, list[int]] = field(init=False, default_factory=dict)
    ways: dict[int, str] = field(init=False, default_factory=dict)
    seconds: dict[int, float] = field(init=False, default_factory=dict)
    interrupted: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        shape = (len(self.seeds), len(self.batch_sizes), len(self.learning_rates))
        self.loss = torch.full(shape, math.nan, dtype=torch.float64)
        self.diverged_at = torch.zeros(shape, dtype=torch.int64)
        self.finished = torch.zeros(shape, dtype=torch.bool)

    def mean_loss(self, batch_size: int) -> Tensor:
        """Return the loss at each rate, averaged over seeds; NaN if a seed diverged."""
        return self.loss[:, self._column(batch_size)].mean(0)

    def best(self, batch_size: int) -> Best:
        """Return the best rate at a batch size: the vertex of a parabola in log(rate).

        It goes through the best rate of the grid and its two neighbours, of the loss averaged over
        seeds. Where a neighbour is missing or diverged, it is the rate of the grid.
        """
        logs = torch.tensor(self.learning_rates, dtype=torch.float64).log()
        mean = self.mean_loss(batch_size)
        if not mean.isfinite().any():
            return Best(batch_size, *(math.nan,) * 4, at_edge=True)
        where, loss, at_edge = _lowest(logs, mean)
        seeds = [row for row in self.loss[:, self._column(batch_size)] if row.isfinite().any()]
        alone = [math.exp(_lowest(logs, row)[0]) for row in seeds]
        return Best(batch_size, math.exp(where), loss, min(alone), max(alone), at_edge)

    def updates_to(self, target: float) -> Tensor:
        """Return the updates until the held-out loss first is ``target``, NaN where it never is.

        Float64 of the shape of ``loss``. Between two measurements the loss is taken to be a
        straight line in the number of updates; ask ``sweep`` for enough ``evaluations``.
        """
        positive("target", target)
        reached = torch.full_like(self.loss, math.nan)
        for column, batch_size in enumerate(self.batch_sizes):
            if batch_size not in self.held_out:
                continue
            steps = self.held_out_steps[batch_size]
            for seed, rate in itertools.product(range(len(self.seeds)), range(self.loss.shape[2])):
                losses = self.held_out[batch_size][seed, rate].tolist()
                reached[seed, column, rate] = _crossing(steps, losses, target)
        return reached

    def fewest_updates_to(self, target: float) -> list[float]:
        """Return the updates to ``target`` for each batch size, at the rate that needs fewest.

        They are the mean over seeds of ``updates_to``, NaN where no rate brought every seed there.
        """
        mean = self.updates_to(target).mean(0).nan_to_num(math.inf)
        return [least if math.isfinite(least) else math.nan for least in mean.amin(1).tolist()]

    def _column(self, batch_size: int) -> int:
        if batch_size not in self.batch_sizes:
            raise ValueError(f"batch_size must be one of {self.batch_sizes}; got {batch_size!r}")
        return self.batch_sizes.index(batch_size)

    def _rows(self) -> Iterator[list[str]]:
        yield ["batch size", *(f"{rate:g}" for rate in self.learning_rates), "best rate", "seeds"]
        for column, batch_size in enumerate(self.batch_sizes):
            finished = self.finished[:, column].all(0)
            cells = [
                "·" if not done else "×" if math.isnan(loss) else f"{loss:.3f}"
                for loss, done in zip(self.mean_loss(batch_size).tolist(), finished)
            ]
            best = self.best(batch_size)
            edge = " (edge)" if best.at_edge else ""
            shown = (
                ["×", ""]
                if math.isnan(best.rate)
                else [
                    f"{best.rate:.3g}{edge}",
                    f"{best.low:.3g} to {best.high:.3g}",
                ]
            )
            yield [f"{batch_size:,}", *cells, *shown]

    def __repr__(self) -> str:
        rows = list(self._rows())
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths)) for row in rows]
        note = f"SweepResult: {self.optimizer}, {len(self.seeds)} seeds, held-out loss"
        return "\n".join([note + (", interrupted" if self.interrupted else ""), *lines])

    def _repr_html_(self) -> str:
        head, *rows = ([html.escape(cell) for cell in row] for row in self._rows())
        body = "".join(
            f"<tr><th>{first}</th>{''.join(f'<td>{cell}</td>' for cell in rest)}</tr>"
            for first, *rest in rows
        )
        return (
            f"<table><caption>held-out loss, {html.escape(self.optimizer)}, mean of "
            f"{len(self.seeds)} seeds; × diverged, · not finished</caption>"
            f"<tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>{body}</table>"
        )

    def save(self, path: str | Path) -> None:
        """Write everything to one file in the safetensors format."""
        tensors = {name: getattr(self, name) for name in ("loss", "diverged_at", "finished")}
        for name in ("curves", "held_out"):
            tensors |= {f"{name}/{size}": part for size, part in getattr(self, name).items()}
        settings = {name: getattr(self, name) for name in SETTINGS + NOTES}
        save_file(
            {name: tensor.contiguous() for name, tensor in tensors.items()},
            path,
            {"sweep": json.dumps(settings)},
        )

    @classmethod
    def load(cls, path: str | Path) -> "SweepResult":
        """Read what ``save`` wrote; ``ValueError`` for a file that is damaged or something else."""
        try:
            with safe_open(path, "pt") as stored:
                settings = json.loads((stored.metadata() or {})["sweep"])
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - not a dict
            result = cls(*(_tuple(settings[name]) for name in SETTINGS))
        except (SafetensorError, KeyError, json.JSONDecodeError) as error:
            raise ValueError(
                f"path must lead to a sweep written by save; {path} is none or is damaged "
                f"({type(error).__name__}: {error})"
            ) from None
        for name in NOTES:
            value = settings[name]
            setattr(
                result,
                name,
                {int(k): v for k, v in value.items()} if name != "interrupted" else value,
            )
        for name, tensor in tensors.items():
            kind, _, size = name.partition("/")
            if size:
                getattr(result, kind)[int(size)] = tensor
            else:
                setattr(result, kind, tensor)
        return result


def _tuple(value: Any) -> Any:  # noqa: ANN401
    return tuple(value) if isinstance(value, list) else value


def _lowest(logs: Tensor, losses: Tensor) -> tuple[float, float, bool]:
    """Return where a curve is lowest, by a parabola, how low, and if a neighbour is missing."""
    known = losses.nan_to_num(math.inf, posinf=math.inf)
    middle = int(known.argmin())
    around = range(middle - 1, middle + 2)
    if any(not 0 <= i < len(known) or known[i].isinf() for i in around):
        return logs[middle].item(), known[middle].item(), True
    x, y = (values[middle - 1 : middle + 2].tolist() for values in (logs, known))
    left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
    curvature = (right - left) / (x[2] - x[0])
    if curvature <= 0:  # three equal losses
        return x[1], y[1], False
    slope = left + curvature * (x[1] - x[0])  # at the middle point
    shift = -slope / (2 * curvature)
    return x[1] + shift, y[1] + slope * shift + curvature * shift**2, False


def _crossing(steps: Sequence[int], losses: Sequence[float], target: float) -> float:
    """Return where a curve first comes down to the target, NaN if it never does."""
    for number, (step, loss) in enumerate(zip(steps, losses)):
        if loss <= target:
            if number == 0:
                return float(step)
            before, above = steps[number - 1], losses[number - 1]
            return before + (step - before) * (above - target) / (above - loss)
    return math.nan
