"""Train all runs of one batch size: in stacks where these stay small, or one by one."""

import math
import time
from collections.abc import Iterator, Sequence

import torch
from tqdm.auto import tqdm

from helpers.device import seed_everything
from helpers.memory import peak_of_saved_tensors
from helpers.sweep.result import SweepResult
from helpers.sweep.stack import Batches, Job, Run, Stack
from helpers.train import Examples, train

FEWEST = 3  # runs to a stack; fewer do not pay
# Bytes that a stack may keep for its backward pass: more do not stay in the caches of a CPU.
CPU_LIMIT = 32 * 2**20


def run_all(job: Job, runs: Sequence[Run], method: str, bar: tqdm) -> None:
    """Train all runs of one batch size, and put what they gave into their results."""
    size, results = job.plan.batch_size, {id(run.result): run.result for run in runs}.values()
    for result in results:
        _make_room(job, result)
    started = time.perf_counter()
    try:
        stack = stack_size(job, runs, method)
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


def _make_room(job: Job, result: SweepResult) -> None:
    size, shape = job.plan.batch_size, result.loss[:, 0].shape
    result.curves[size] = torch.full((*shape, job.plan.total_steps), math.nan, dtype=torch.float64)
    result.held_out_steps[size] = job.eval_steps
    result.held_out[size] = torch.full((*shape, len(job.eval_steps)), math.nan, dtype=torch.float64)


def _parts(runs: Sequence[Run], stack: int) -> Iterator[Sequence[Run]]:
    """Yield the runs in as few stacks as will do, of nearly the same size."""
    count = -(-len(runs) // stack)
    for number in range(count):
        yield runs[number * len(runs) // count : (number + 1) * len(runs) // count]


def _note_divergence(job: Job, run: Run, step: int) -> None:
    row, rate = run.place
    run.result.diverged_at[row, run.result.batch_sizes.index(job.plan.batch_size), rate] = step


def _conclude(job: Job, run: Run) -> None:
    size, (row, rate), result = job.plan.batch_size, run.place, run.result
    at = (row, result.batch_sizes.index(size), rate)
    result.finished[at] = True
    loss = result.held_out[size][row, rate, -1]
    if loss.isfinite():
        result.loss[at] = loss
    elif result.diverged_at[at] == 0:  # the very last update did it
        _note_divergence(job, run, job.plan.total_steps)


def _train_one(job: Job, runs: Sequence[Run]) -> None:
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


def _train_stack(job: Job, runs: Sequence[Run]) -> None:
    stack = Stack(job, runs)
    batches = Batches(job, runs, stack)
    held_out = Examples("eval_data", job.eval_data, stack.model)
    size, numbers = job.plan.batch_size, {step: n for n, step in enumerate(job.eval_steps)}
    seed_everything(runs[0].seed)

    def note_held_out(step: int, losses: Sequence[float]) -> None:
        for run, loss in zip(stack.runs, losses):
            run.result.held_out[size][(*run.place, numbers[step])] = loss

    note_held_out(0, stack.held_out_at_start(held_out))
    curves = {run: [] for run in runs}
    for step in range(1, job.plan.total_steps + 1):
        before = stack.runs
        losses = stack.update(*batches.next_for(before), step).tolist()
        for run, loss in zip(before, losses):
            if math.isfinite(loss):
                curves[run].append(loss)
            else:
                _note_divergence(job, run, step)
        if not stack.runs:
            break
        if step in numbers:
            note_held_out(step, stack.held_out(held_out))
    for run, curve in curves.items():
        run.result.curves[size][run.place][: len(curve)] = torch.tensor(curve, dtype=torch.float64)


def stack_size(job: Job, runs: Sequence[Run], method: str) -> int:
    """Return how many runs to train side by side, 0 for one by one.

    As many as keep their memory small, and with "auto" none where these are too few to pay. There
    is no trial: on a busy machine it finds the wrong way, and the best one depends on little but
    memory.
    """
    if method == "one-by-one" or (method == "auto" and len(runs) < FEWEST):
        return 0
    fit = min(len(runs), _most_that_fit(job, runs[0]))
    return 0 if method == "auto" and fit < FEWEST else fit


def _most_that_fit(job: Job, run: Run) -> int:
    """Return how many runs a stack may hold, from the bytes that one keeps for its backward."""
    stack = Stack(job, [run])
    batch = Batches(job, [run], stack).next_for([run])
    bytes_each = peak_of_saved_tensors(lambda: stack.losses(*batch), stack.model)
    on_gpu = stack.weights.is_cuda
    limit = torch.cuda.mem_get_info(stack.weights.device)[0] // 4 if on_gpu else CPU_LIMIT
    return max(1, limit // max(1, bytes_each))
