"""One clear training loop."""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from helpers._arguments import check_arguments
from helpers._checks import one_of, whole
from helpers._progress import progress
from helpers._replica import place
from helpers.accumulate import backward
from helpers.device import seed_everything
from helpers.examples import Data, Examples, draw_updates
from helpers.history import History
from helpers.keeper import RunKeeper, check_keeping
from helpers.plan import RunPlan
from helpers.precision import Precision
from helpers.schedule import BatchRamp

OPTIMIZERS = {"adamw": AdamW, "sgd": SGD, "momentum": partial(SGD, momentum=0.9)}


def train(
    model: nn.Module,
    data: Data,
    *,
    batch_size: int,
    lr: float,
    accumulation: int = 1,
    epochs: float | None = None,
    steps: int | None = None,
    drop_last: bool = False,
    optimizer: str | Callable[..., Optimizer] = "adamw",
    schedule: Sequence[float] | None = None,
    clip: float | None = None,
    normalize: str = "tokens",
    eval_data: Data | None = None,
    eval_every: int | None = None,
    seed: int = 0,
    ramp: BatchRamp | None = None,
    grow: str = "accumulation",
    checkpoint: str | Path | None = None,
    save_every: int | None = None,
    resume: bool = False,
    precision: str = "float32",
) -> History:
    """Train ``model`` in place, on the device where it is, and return what happened.

    A model in ``DistributedDataParallel`` shares each update with the other devices: every process
    calls ``train`` with the same arguments and the whole of the data, and draws its own share.

    Parameters
    ----------
    data, eval_data
        Windows of shape (examples, context + 1) from ``sequences``, or a pair (inputs, targets)
        from ``collate``.
    batch_size, accumulation, epochs, steps, drop_last
        As in ``RunPlan`` (``steps`` is its ``max_steps``), which does the counting.
    lr
        The full learning rate.
    optimizer
        "adamw", "sgd", "momentum" (SGD with 0.9), or anything that is called as
        ``optimizer(parameters, lr=lr)``.
    schedule
        A factor on ``lr`` for each update, as ``lr_factors`` gives; constant without one.
    clip
        The largest norm of an update's whole gradient.
    normalize
        "tokens", or the wrong "batches" to see what it does: see ``accumulate.backward``.
    eval_every
        Measure ``eval_data`` after so many updates; before the first and after the last always.
    seed
        Decides the order of the examples, anew in each epoch, and seeds all else that is random.
    ramp
        A batch that grows, as ``batch_ramp`` gives: see ``RunPlan``.
    grow
        How: by "accumulation", so that memory stays that of the first micro-batch, or by
        "batch_size", so that an update keeps its number of micro-batches. Either way an update
        has the same examples.
    checkpoint, save_every
        The file that keeps the run, and the number of updates after which it is written anew;
        after the last always. Of several devices the first one writes it.
    resume
        Go on from the checkpoint, as if the run had never stopped: bit for bit on the same
        machine. Every other argument is the same as before.
    precision
        "float32", the numbers that the model has; or "bfloat16" or "float16" beside weights of 32
        bits: see ``Precision``. An update whose gradient overflows in "float16" is skipped: it
        counts in ``History.skipped`` and not for the schedule, and its examples are tried again at
        half the scale. Held-out losses are always those of the model's own numbers.

    A loss that is no longer finite ends the run: see ``History.diverged_at``. Ctrl-C returns what
    there is.

    Raises ``ValueError`` or ``TypeError``, before any work, for an argument that cannot be meant
    and for data in which an update would have no target; also for a checkpoint that is damaged or
    of another run, which it then names the difference from.
    """
    examples = Examples("data", data, model)
    held_out = None if eval_data is None else Examples("eval_data", eval_data, model)
    rank, devices = place(model)
    plan = RunPlan(
        len(examples),
        batch_size,
        accumulation=accumulation,
        devices=devices,
        epochs=epochs,
        max_steps=steps,
        drop_last=drop_last,
        ramp=ramp,
    )
    how = {"lr": lr, "normalize": normalize, "seed": seed, "grow": grow}
    check_arguments(plan, schedule=schedule, clip=clip, eval_every=eval_every, **how)
    check_keeping(checkpoint, save_every, resume)
    if not callable(optimizer):
        one_of("optimizer", optimizer, OPTIMIZERS)
    examples.refuse_update_without_target(plan, seed)

    numbers = Precision(precision, model)
    clip = math.inf if clip is None else float(clip)
    seed_everything(seed)
    updater = build_optimizer(optimizer, [{"params": list(model.parameters())}], lr)
    updater.zero_grad()
    history = History(plan)
    factors = [1.0] * plan.total_steps if schedule is None else schedule
    if checkpoint is not None:
        keeper = RunKeeper(
            checkpoint, model, updater, history, examples, factors, numbers, clip=clip, **how
        )
    if resume:
        keeper.resume()
    updates = draw_updates(plan, seed, rank, made=history.steps, grow=grow)
    bar = progress(factors[history.steps :], "training", "updates")
    was_training = model.training
    model.train()

    def measure() -> None:
        if held_out is not None and history.due(eval_every):
            history.held_out[history.steps] = held_out.mean_loss(model)

    try:
        if history.steps == 0:
            measure()
        for factor, update in zip(bar, updates):
            started = time.perf_counter()
            for group in updater.param_groups:
                group["lr"] = lr * factor

            micro_batches = [examples.batch(positions) for positions in update]
            made = False
            for _ in range(numbers.attempts):
                loss, targets = backward(
                    model, micro_batches, normalize=normalize, precision=numbers
                )
                loss = loss.item()
                if not math.isfinite(loss):
                    break
                made = numbers.update(model, updater, clip)
                updater.zero_grad()
                if made:
                    break
                history.skipped += 1
            if not made:
                history.diverged_at = history.steps + 1
                break

            drawn = devices * sum(map(len, update))
            history.add(loss, lr * factor, drawn, targets, time.perf_counter() - started)
            measure()
            if checkpoint is not None and history.due(save_every):
                keeper.save()
    except KeyboardInterrupt:
        history.interrupted = True
    finally:
        bar.close()
        updater.zero_grad()
        model.train(was_training)
    return history


def build_optimizer(
    optimizer: str | Callable[..., Optimizer], groups: list[dict], lr: float
) -> Optimizer:
    """Return the optimizer of that name, or what a callable makes, for groups of parameters."""
    if callable(optimizer):
        return optimizer(groups, lr=lr)
    make = OPTIMIZERS[one_of("optimizer", optimizer, OPTIMIZERS)]
    device = groups[0]["params"][0].device
    return make(groups, lr=lr, fused=device.type in ("cpu", "cuda"))


def evaluate(model: nn.Module, data: Data, *, batch_size: int = 256) -> float:
    """Return the mean loss over all targets of ``data``, in nats; see ``train`` for ``data``.

    It is the sum over all targets divided by their number, so it does not depend on
    ``batch_size``. The model is left in the mode it was in.
    """
    return Examples("data", data, model).mean_loss(model, whole("batch_size", batch_size))
