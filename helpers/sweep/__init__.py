"""Many runs at once: one model at many learning rates, batch sizes and seeds."""

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from helpers._checks import one_of, positive, whole
from helpers._progress import hidden_bars, progress
from helpers.device import pick, seed_everything
from helpers.model import ModelConfig, SmallLM
from helpers.plan import RunPlan
from helpers.sweep.best import Best
from helpers.sweep.engine import run_all
from helpers.sweep.result import SweepResult
from helpers.sweep.stack import ELEMENTWISE, Job, Run
from helpers.train import OPTIMIZERS, Data, Examples, build_optimizer

__all__ = ["Best", "SweepResult", "sweep", "sweep_warmups"]

METHODS = ("auto", "together", "one-by-one")
HELD_OUT = 256  # at most so many examples are kept back when no eval_data is given


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
        "auto" does the first where at least 3 runs share a stack. The results are the same up to
        rounding. A stack holds as many runs as keep at most 32 MiB for their backward pass, on a
        GPU a quarter of the free memory.
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
    shape = config if isinstance(config, ModelConfig) else None

    def make(seed: int) -> nn.Module:
        seed_everything(seed)
        model = config(seed) if shape is None else SmallLM(shape, seed=seed)
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
        jobs.append(Job(shape, make, data, eval_data, plan, optimizer, evaluations))
    Examples("eval_data", eval_data, make(seeds[0]))

    shown = optimizer if isinstance(optimizer, str) else getattr(optimizer, "__name__", "custom")
    results = {warmup: SweepResult(rates, sizes, seeds, budgets, shown) for warmup in warmups}
    runs = [
        Run(seed, rate, warmup, result, (row, column))
        for warmup, result in results.items()
        for column, rate in enumerate(rates)
        for row, seed in enumerate(seeds)
    ]
    updates = sum(job.plan.total_steps for job in jobs) * len(runs)
    with progress(range(updates), "sweep", "updates") as bar, hidden_bars():
        try:
            for job in jobs:
                run_all(job, runs, method, bar)
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
