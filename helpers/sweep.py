"""Many runs at once: one model at many learning rates, batch sizes and seeds.

A small model leaves a machine idle between its many small operations. Runs of one batch size can
share these operations: their weights are the rows of one tensor, and ``torch.func.vmap`` puts all
rows through the model together.
"""

import html
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import Optimizer
from tqdm.auto import tqdm

from helpers._checks import one_of, positive, whole
from helpers._progress import hidden_bars, progress
from helpers.accumulate import MicroBatch
from helpers.device import pick, seed_everything
from helpers.memory import peak_of_saved_tensors
from helpers.model import IGNORED, ModelConfig, SmallLM, token_loss
from helpers.plan import RunPlan
from helpers.schedule import lr_factors
from helpers.train import OPTIMIZERS, Data, Examples, build_optimizer, draw_updates, train

METHODS = ("auto", "together", "one-by-one")
HELD_OUT = 256  # at most so many examples are kept back when no eval_data is given
TRIED_UPDATES = 3  # of each size of stack, to see which is fastest
WORTH_TRYING = 0.02  # of all updates to come
SMALLEST_STACK = 5  # fewer runs hardly pay
CLEARLY_FASTER = 0.95
CPU_LIMIT = 2**30  # bytes that a stack may keep for its backward pass

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
        settings = {name: getattr(self, name) for name in _SETTINGS + _NOTES}
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
            result = cls(*(_tuple(settings[name]) for name in _SETTINGS))
        except (SafetensorError, KeyError, json.JSONDecodeError) as error:
            raise ValueError(
                f"path must lead to a sweep written by save; {path} is none or is damaged "
                f"({type(error).__name__}: {error})"
            ) from None
        for name in _NOTES:
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


_SETTINGS = ("learning_rates", "batch_sizes", "seeds", "examples", "optimizer")
_NOTES = ("held_out_steps", "ways", "seconds", "interrupted")


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


@dataclass(frozen=True)
class _Run:
    """One run of the grid: its seed, rate and warmup, and where its results go."""

    seed: int
    rate: float
    warmup: float
    result: SweepResult
    place: tuple[int, int]


@dataclass(frozen=True)
class _Job:
    """All that the runs of one batch size have in common."""

    make: Callable[[int], nn.Module]
    data: Data
    eval_data: Data
    plan: RunPlan
    optimizer: str | Callable[..., Optimizer]
    evaluations: int

    def factors(self, warmup: float) -> tuple[float, ...]:
        return lr_factors(self.plan.total_steps, self.plan.replace(warmup=warmup).warmup_steps)

    @property
    def eval_every(self) -> int:
        return -(-self.plan.total_steps // self.evaluations)

    @property
    def eval_steps(self) -> list[int]:
        total = self.plan.total_steps
        return [*range(0, total, self.eval_every), total]


class _Stack:
    """Models of one shape, their weights the rows of one tensor, trained side by side.

    The optimizer is torch's own. Each row is a parameter, in a group with those of the same rate
    and warmup.
    """

    def __init__(self, job: _Job, runs: Sequence[_Run]) -> None:
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


def sweep(
    config: ModelConfig | Callable[[int], nn.Module],
    data: Data,
    *,
    learning_rates: Sequence[float],
    batch_sizes: Sequence[int],
    optimizer: str | Callable[..., Optimizer] = "sgd",
    examples: int | Sequence[int],
    seeds: Sequence[int] = (0,),
    warmup: float = 0,
    method: str = "auto",
    eval_data: Data | None = None,
    evaluations: int = 1,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> SweepResult:
    """Train a new model for each seed, batch size and learning rate; return the held-out losses.

    Parameters
    ----------
    config
        The shape of a ``SmallLM``, or a function that makes a model from a seed.
    data, eval_data
        As in ``train``. Without ``eval_data`` a tenth of the data, at most 256 examples, is held
        out.
    learning_rates, batch_sizes, seeds
        The grid. A seed decides the first weights and the order of the examples.
    optimizer
        As in ``train``.
    examples
        Examples that each run sees, or one number for each batch size. A rest that does not fill
        an update is left out.
    warmup
        As in ``RunPlan``: an int is a number of updates, a float a share of the run.
    method
        "together" trains runs side by side in stacks, "one-by-one" calls ``train`` for each, and
        "auto" tries both for a moment at each batch size. The results are the same up to rounding.
        How many runs go into a stack is tried out too, and limited by memory.
    evaluations
        How often the held-out loss is measured along each run, evenly; at its start always.
    dtype, device
        Of the models; torch's default, and CUDA where there is one, without.

    A run whose loss is no longer finite ends there. Ctrl-C returns the runs that are finished.

    Raises ``ValueError`` or ``TypeError``, before any work, for an argument that cannot be meant.
    """
    (result,) = sweep_warmups(
        config,
        data,
        warmups=[warmup],
        learning_rates=learning_rates,
        batch_sizes=batch_sizes,
        optimizer=optimizer,
        examples=examples,
        seeds=seeds,
        method=method,
        eval_data=eval_data,
        evaluations=evaluations,
        dtype=dtype,
        device=device,
    ).values()
    return result


def sweep_warmups(
    config: ModelConfig | Callable[[int], nn.Module],
    data: Data,
    *,
    warmups: Sequence[float],
    learning_rates: Sequence[float],
    batch_sizes: Sequence[int],
    optimizer: str | Callable[..., Optimizer] = "sgd",
    examples: int | Sequence[int],
    seeds: Sequence[int] = (0,),
    method: str = "auto",
    eval_data: Data | None = None,
    evaluations: int = 1,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> dict[float, SweepResult]:
    """Train the grid of ``sweep`` once for each warmup, and return the results by warmup.

    All runs of a batch size share their stacks, whatever their warmup. Other arguments, and errors,
    as for ``sweep``.
    """
    rates = _grid("learning_rates", learning_rates, positive)
    sizes = _grid("batch_sizes", batch_sizes, whole)
    seeds = _grid("seeds", seeds, lambda name, value: whole(name, value, at_least=0))
    if isinstance(warmups, (str, int, float)) or not 0 < len(set(warmups)) == len(warmups):
        raise ValueError(f"warmups must hold at least one value, none twice; got {warmups!r}")
    one_of("method", method, METHODS)
    whole("evaluations", evaluations)
    if not callable(optimizer):
        one_of("optimizer", optimizer, OPTIMIZERS)
    budgets = _budgets(examples, sizes)
    device = device or pick()

    def make(seed: int) -> nn.Module:
        seed_everything(seed)
        model = SmallLM(config, seed=seed) if isinstance(config, ModelConfig) else config(seed)
        return model.to(device, dtype)

    if method == "together" or (method == "auto" and callable(optimizer)):
        method = _if_stackable(method, optimizer, make(seeds[0]))
    data, eval_data = _hold_out(data) if eval_data is None else (data, eval_data)
    jobs = []
    for size, budget in zip(sizes, budgets):
        checked = Examples("data", data, make(seeds[0]))
        plan = RunPlan(len(checked), size, max_steps=budget // size)
        for warmup in warmups:
            plan.replace(warmup=warmup)  # refuses what is no warmup
        for seed in seeds:
            checked.refuse_update_without_target(plan, seed)
        jobs.append(_Job(make, data, eval_data, plan, optimizer, evaluations))
    Examples("eval_data", eval_data, make(seeds[0]))

    shown = optimizer if isinstance(optimizer, str) else getattr(optimizer, "__name__", "custom")
    results = {warmup: SweepResult(rates, sizes, seeds, budgets, shown) for warmup in warmups}
    runs = [
        _Run(seed, rate, warmup, result, (row, column))
        for warmup, result in results.items()
        for column, rate in enumerate(rates)
        for row, seed in enumerate(seeds)
    ]
    updates = sum(job.plan.total_steps for job in jobs) * len(runs)
    with progress(range(updates), "sweep", "updates") as bar, hidden_bars():
        try:
            for job in jobs:
                _run_all(job, runs, method, bar)
        except KeyboardInterrupt:
            for result in results.values():
                result.interrupted = True
    return results


def _grid(name: str, values: Sequence, check: Callable) -> tuple:
    if isinstance(values, (str, int, float)) or len(values) == 0:
        raise ValueError(f"{name} must hold at least one value; got {values!r}")
    checked = tuple(check(name, value) for value in values)
    if any(a >= b for a, b in itertools.pairwise(checked)):
        raise ValueError(f"{name} must rise from value to value, none twice; got {checked}")
    return checked


def _budgets(examples: int | Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    several = isinstance(examples, (list, tuple))
    budgets = tuple(
        whole("examples", e) for e in (examples if several else [examples] * len(sizes))
    )
    if len(budgets) != len(sizes):
        raise ValueError(
            f"examples must be one number, or one for each of the {len(sizes)} batch sizes; got "
            f"{examples!r}"
        )
    for budget, size in zip(budgets, sizes):
        if budget < size:
            raise ValueError(
                f"examples must fill an update at every batch size; got {budget} for a batch of "
                f"{size}"
            )
    return budgets


def _if_stackable(method: str, optimizer: str | Callable[..., Optimizer], model: nn.Module) -> str:
    """Return the method, or "one-by-one" for "auto" where the optimizer cannot be stacked."""
    groups = [{"params": list(model.parameters())}]
    built = build_optimizer(optimizer, groups, 1e-3)
    if isinstance(built, ELEMENTWISE):
        return method
    if method == "auto":
        return "one-by-one"
    names = ", ".join(kind.__name__ for kind in ELEMENTWISE)
    raise ValueError(
        f"optimizer must treat every number alike for method='together' (one of {names}); got "
        f"{type(built).__name__}. Use method='one-by-one'"
    )


def _hold_out(data: Data) -> tuple[Data, Data]:
    """Return (training data, held-out data) from windows or a pair."""
    count = len(data) if isinstance(data, Tensor) else len(data[0])
    if count < 2:
        raise ValueError(f"data must hold two examples or more without eval_data; got {count}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    kept_back = min(HELD_OUT, -(-count // 10))

    def take(positions: Tensor) -> Data:
        return data[positions] if isinstance(data, Tensor) else tuple(p[positions] for p in data)

    return take(order[kept_back:]), take(order[:kept_back])


def _run_all(job: _Job, runs: Sequence[_Run], method: str, bar: tqdm) -> None:
    """Train all runs of one batch size, and put what they gave into their results."""
    size, results = job.plan.batch_size, {id(run.result): run.result for run in runs}.values()
    for result in results:
        _make_room(job, result)
    started = time.perf_counter()
    try:
        stack = _stack_size(job, runs, method)
        for result in results:
            result.ways[size] = f"in stacks of {stack}" if stack else "one by one"
        for part in _parts(runs, stack or 1):
            (_train_stack if stack else _train_one)(job, part)
            bar.update(len(part) * job.plan.total_steps)
            for run in part:
                _conclude(job, run)
    finally:
        for result in results:
            result.seconds[size] = time.perf_counter() - started


def _make_room(job: _Job, result: SweepResult) -> None:
    size, shape = job.plan.batch_size, result.loss[:, 0].shape
    result.curves[size] = torch.full((*shape, job.plan.total_steps), math.nan, dtype=torch.float64)
    result.held_out_steps[size] = job.eval_steps
    result.held_out[size] = torch.full((*shape, len(job.eval_steps)), math.nan, dtype=torch.float64)


def _parts(runs: Sequence[_Run], stack: int) -> Iterator[Sequence[_Run]]:
    """Yield the runs in as few stacks as will do, of nearly the same size."""
    count = -(-len(runs) // stack)
    for number in range(count):
        yield runs[number * len(runs) // count : (number + 1) * len(runs) // count]


def _note_divergence(job: _Job, run: _Run, step: int) -> None:
    row, rate = run.place
    run.result.diverged_at[row, run.result.batch_sizes.index(job.plan.batch_size), rate] = step


def _conclude(job: _Job, run: _Run) -> None:
    size, (row, rate), result = job.plan.batch_size, run.place, run.result
    at = (row, result.batch_sizes.index(size), rate)
    result.finished[at] = True
    loss = result.held_out[size][row, rate, -1]
    if loss.isfinite():
        result.loss[at] = loss
    elif result.diverged_at[at] == 0:  # the very last update did it
        _note_divergence(job, run, job.plan.total_steps)


def _train_one(job: _Job, runs: Sequence[_Run]) -> None:
    (run,) = runs
    history = train(
        job.make(run.seed),
        job.data,
        batch_size=job.plan.batch_size,
        lr=run.rate,
        steps=job.plan.total_steps,
        optimizer=job.optimizer,
        schedule=job.factors(run.warmup),
        eval_data=job.eval_data,
        eval_every=job.eval_every,
        seed=run.seed,
    )
    if history.interrupted:
        raise KeyboardInterrupt
    size = job.plan.batch_size
    losses = torch.tensor(history.loss, dtype=torch.float64)
    run.result.curves[size][run.place][: history.steps] = losses
    for number, step in enumerate(job.eval_steps):
        run.result.held_out[size][(*run.place, number)] = history.held_out.get(step, math.nan)
    if history.diverged_at is not None:
        _note_divergence(job, run, history.diverged_at)


def _train_stack(job: _Job, runs: Sequence[_Run]) -> None:
    stack = _Stack(job, runs)
    batches = _Batches(job, runs, stack)
    held_out = Examples("eval_data", job.eval_data, stack.model)
    size = job.plan.batch_size
    seed_everything(runs[0].seed)

    def measure_held_out(step: int) -> None:
        if step in job.eval_steps:
            number = job.eval_steps.index(step)
            for run, loss in zip(stack.runs, stack.held_out(held_out)):
                run.result.held_out[size][(*run.place, number)] = loss

    measure_held_out(0)
    for step in range(1, job.plan.total_steps + 1):
        before = stack.runs
        losses = stack.update(*batches.next_for(before), step).tolist()
        for run, loss in zip(before, losses):
            if math.isfinite(loss):
                run.result.curves[size][(*run.place, step - 1)] = loss
            else:
                _note_divergence(job, run, step)
        if not stack.runs:
            return
        measure_held_out(step)


class _Batches:
    """The batches of a stack's runs: runs of one seed see the same examples in the same order."""

    def __init__(self, job: _Job, runs: Sequence[_Run], stack: _Stack) -> None:
        self.examples = Examples("data", job.data, stack.model)
        self.updates = {run.seed: draw_updates(job.plan, run.seed) for run in runs}

    def next_for(self, runs: Sequence[_Run]) -> MicroBatch:
        drawn = {seed: next(updates)[0] for seed, updates in self.updates.items()}
        return self.examples.batch(torch.stack([drawn[run.seed] for run in runs]))


def _stack_size(job: _Job, runs: Sequence[_Run], method: str) -> int:
    """Return how many runs to train side by side, 0 for one by one: the fastest way tried.

    A larger stack is tried only while it pays, and only if the trial is short beside the work.
    """
    if method == "one-by-one" or (method == "auto" and len(runs) == 1):
        return 0
    limit = min(len(runs), _most_that_fit(job, runs[0]))
    sizes = _sizes_to_try(limit)
    work = len(runs) * job.plan.total_steps
    best, fastest = (0, _time_one(job, runs[0])) if method == "auto" else (sizes[0], math.inf)
    for size in sizes:
        if TRIED_UPDATES * size > WORTH_TRYING * work:
            break
        seconds = _time_stack(job, runs[:size]) / size
        if seconds > CLEARLY_FASTER * fastest:
            break
        best, fastest = size, seconds
    return best


def _sizes_to_try(limit: int) -> list[int]:
    """Return sizes of a stack up to the limit, each about three times the one before."""
    sizes = [limit]
    while -(-sizes[0] // 3) >= SMALLEST_STACK:
        sizes.insert(0, -(-sizes[0] // 3))
    return sizes


def _time_one(job: _Job, run: _Run) -> float:
    """Return the seconds of one update of one run."""
    steps = min(job.plan.total_steps, TRIED_UPDATES + 1)
    history = train(
        job.make(run.seed),
        job.data,
        batch_size=job.plan.batch_size,
        lr=run.rate,
        steps=steps,
        optimizer=job.optimizer,
        seed=run.seed,
    )
    return min(b - a for a, b in itertools.pairwise([0.0, *history.seconds]))


def _time_stack(job: _Job, runs: Sequence[_Run]) -> float:
    """Return the seconds of one update of a stack of runs."""
    stack = _Stack(job, runs)
    batches = _Batches(job, runs, stack)
    taken = []
    for _ in range(TRIED_UPDATES):
        started = time.perf_counter()
        stack.update(*batches.next_for(stack.runs), 1).tolist()
        taken.append(time.perf_counter() - started)
    return min(taken)


def _most_that_fit(job: _Job, run: _Run) -> int:
    """Return how many runs a stack may hold, from the bytes that one keeps for its backward."""
    stack = _Stack(job, [run])
    batch = _Batches(job, [run], stack).next_for([run])
    bytes_each = peak_of_saved_tensors(lambda: stack.losses(*batch), stack.model)
    on_gpu = stack.weights.is_cuda
    limit = torch.cuda.mem_get_info(stack.weights.device)[0] // 4 if on_gpu else CPU_LIMIT
    return max(1, limit // max(1, bytes_each))
