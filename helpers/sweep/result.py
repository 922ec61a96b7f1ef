"""What a grid of runs gave, and its reading: best rates, updates to a target, tables, files."""

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
from helpers.sweep.best import Best, best_of
from helpers.tables import Table

SETTINGS = ("learning_rates", "batch_sizes", "seeds", "examples", "optimizer")
NOTES = ("held_out_steps", "ways", "seconds", "interrupted")


@dataclass(eq=False)
class SweepResult:
    """What a grid of runs gave; axes are (seeds, batch sizes, learning rates).

    ``loss`` is the final held-out loss in nats a token, float64, NaN for a run that diverged or was
    not finished. ``diverged_at`` is the update whose loss was not finite, 0 if there was none;
    ``lost`` counts more runs than these.
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

    @property
    def lost(self) -> Tensor:
        """Whether a run ended above the loss it began with, or without a finite one; bool.

        What a run began with is its held-out loss before any training. A run that was not finished
        is not lost.
        """
        begun = torch.full_like(self.loss, math.nan)
        for column, batch_size in enumerate(self.batch_sizes):
            if batch_size in self.held_out:
                begun[:, column] = self.held_out[batch_size][..., 0]
        return self.finished & (~self.loss.isfinite() | (self.loss > begun))

    def losses(self, batch_size: int) -> Tensor:
        """Return the loss of each seed at each rate, of shape (seeds, rates); NaN if lost."""
        column = self._column(batch_size)
        return self.loss[:, column].masked_fill(self.lost[:, column], math.nan)

    def mean_loss(self, batch_size: int) -> Tensor:
        """Return the loss at each rate, averaged over seeds; NaN if a seed diverged."""
        return self.loss[:, self._column(batch_size)].mean(0)

    def best(self, batch_size: int) -> Best:
        """Return the best rate at a batch size, estimated for each seed alone; see ``Best``.

        For each seed it is the vertex of a parabola in log(rate), by least squares through the
        rates near the best of the grid, and never outside them.
        """
        return best_of(batch_size, self.learning_rates, self.losses(batch_size))

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
        rates = (f"{rate:g}" for rate in self.learning_rates)
        yield ["batch size", *rates, "best rate", "95 % of resamples"]
        for column, batch_size in enumerate(self.batch_sizes):
            finished = self.finished[:, column].all(0)
            cells = [
                "·" if not done else "lost" if lost else f"{loss:.3f}"
                for loss, lost, done in zip(
                    self.mean_loss(batch_size).tolist(), self.lost[:, column].any(0), finished
                )
            ]
            best = self.best(batch_size)
            edge = " (edge)" if best.at_edge else ""
            shown = [f"{best.rate:.3g}{edge}", f"{best.low:.3g} to {best.high:.3g}"]
            none = ["lost" if finished.all() else "·", ""]
            yield [f"{batch_size:,}", *cells, *(none if math.isnan(best.rate) else shown)]

    def _caption(self) -> str:
        """Say what the cells hold, and what the signs in them mean."""
        seeds = f"mean of {len(self.seeds)} seeds" if len(self.seeds) > 1 else "one seed"
        parts = [f"held-out loss, {self.optimizer}, {seeds}"]
        if self.lost.any():
            parts.append(
                "lost: at least one seed ended above the loss it began with, or without a finite "
                "loss"
            )
        if not self.finished.all():
            parts.append("·: not finished")
        return "; ".join(parts)

    def __repr__(self) -> str:
        rows = list(self._rows())
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths)) for row in rows]
        note = "SweepResult" + (", interrupted" if self.interrupted else "")
        return "\n".join([f"{note}: {self._caption()}", *lines])

    def _repr_html_(self) -> str:
        heads, *rows = map(tuple, self._rows())
        return Table(self._caption(), heads, tuple(rows), (True,) * len(heads))._repr_html_()

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


def _crossing(steps: Sequence[int], losses: Sequence[float], target: float) -> float:
    """Return where a curve first comes down to the target, NaN if it never does."""
    for number, (step, loss) in enumerate(zip(steps, losses)):
        if loss <= target:
            if number == 0:
                return float(step)
            before, above = steps[number - 1], losses[number - 1]
            return before + (step - before) * (above - target) / (above - loss)
    return math.nan
