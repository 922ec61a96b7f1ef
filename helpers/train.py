"""One clear training loop."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW, Optimizer

from helpers._checks import one_of, positive, whole
from helpers._progress import progress
from helpers.accumulate import NORMALIZE, MicroBatch, backward
from helpers.checkpoint import RunKeeper, describe, path_and_interval
from helpers.data import shuffled_batches
from helpers.device import seed_everything
from helpers.model import IGNORED, token_loss
from helpers.plan import RunPlan
from helpers.schedule import BatchRamp

GROW = ("accumulation", "batch_size")
Data = Tensor | tuple[Tensor, Tensor]
OPTIMIZERS = {"adamw": AdamW, "sgd": SGD, "momentum": partial(SGD, momentum=0.9)}


@dataclass
class History:
    """What happened in a run: one number for each update made, and the held-out losses.

    ``loss`` is the mean over the targets of an update, in nats, before that update is made.
    ``examples``, ``tokens`` (targets) and ``seconds`` (of training, without evaluation) count up
    from the start. ``held_out`` maps a number of updates made to the held-out loss after them.
    ``diverged_at`` is the update whose loss was not finite, and which was therefore not made.
    """

    plan: RunPlan
    loss: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    examples: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    held_out: dict[int, float] = field(default_factory=dict)
    diverged_at: int | None = None
    interrupted: bool = False

    @property
    def steps(self) -> int:
        """Updates made."""
        return len(self.loss)

    @property
    def final_loss(self) -> float:
        """The last held-out loss; NaN if the run diverged or nothing was held out."""
        if self.diverged_at is not None or not self.held_out:
            return math.nan
        return self.held_out[max(self.held_out)]

    def add(self, loss: float, lr: float, examples: int, tokens: int, seconds: float) -> None:
        """Note one update, which took so many examples, tokens and seconds."""
        self.loss.append(loss)
        self.lr.append(lr)
        self.examples.append(examples + (self.examples[-1] if self.examples else 0))
        self.tokens.append(tokens + (self.tokens[-1] if self.tokens else 0))
        self.seconds.append(seconds + (self.seconds[-1] if self.seconds else 0.0))

    def __repr__(self) -> str:
        parts = [f"{self.steps:,} of {self.plan.total_steps:,} updates"]
        if self.steps:
            parts.append(f"{self.examples[-1]:,} examples in {self.seconds[-1]:.1f} s")
        if self.diverged_at is not None:
            parts.append(f"diverged at update {self.diverged_at:,}")
        elif self.held_out:
            parts.append(f"held-out loss {self.final_loss:.3f}")
        if self.interrupted:
            parts.append("interrupted")
        return f"History: {', '.join(parts)}"


class Examples:
    """A data set on the model's device, checked once against the model before any work."""

    def __init__(self, name: str, data: Data, model: nn.Module) -> None:
        inputs, targets = _inputs_and_targets(name, data)
        config = getattr(getattr(model, "module", model), "config", None)
        if config is not None and inputs.shape[1] > config.context:
            raise ValueError(
                f"{name} must hold at most {config.context} inputs an example, the model's "
                f"context; got {inputs.shape[1]}"
            )
        largest = int(max(inputs.max(), targets.max()))
        if config is not None and largest >= config.vocab_size:
            raise ValueError(
                f"{name} must hold tokens below the model's vocab_size of {config.vocab_size}; "
                f"got {largest}"
            )
        device = next(model.parameters()).device
        self.name = name
        self.inputs, self.targets = inputs.to(device), targets.to(device)
        self.target_counts = (targets != IGNORED).sum(1).cpu()
        if not self.target_counts.any():
            raise ValueError(f"{name} must hold a target; got {len(self)} examples without one")

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, positions: Tensor) -> MicroBatch:
        """Return the inputs and targets of the examples at these positions."""
        positions = positions.to(self.inputs.device)
        return self.inputs[positions], self.targets[positions]

    def refuse_update_without_target(self, plan: RunPlan, seed: int) -> None:
        """Raise ``ValueError`` if any update of the run would have nothing to learn from."""
        if self.target_counts.all():
            return
        on_devices = zip(*(draw_updates(plan, seed, rank) for rank in range(plan.devices)))
        for number, shares in enumerate(itertools.islice(on_devices, plan.total_steps), start=1):
            drawn = torch.cat([positions for share in shares for positions in share])
            if not self.target_counts[drawn].any():
                raise ValueError(
                    f"{self.name} must give every update a target; none of the {len(drawn)} "
                    f"examples of update {number} has one. Use a larger batch_size, or leave out "
                    f"examples without a target"
                )

    @torch.inference_mode()
    def mean_loss(self, model: nn.Module, batch_size: int = 256) -> float:
        """Return the loss per target over all examples, whatever the batch size."""
        model = getattr(model, "module", model)
        was_training = model.training
        model.eval()
        total = 0.0
        for positions in torch.arange(len(self)).split(batch_size):
            inputs, targets = self.batch(positions)
            total += token_loss(model(inputs), targets, "sum").item()
        model.train(was_training)
        return total / int(self.target_counts.sum())


def _inputs_and_targets(name: str, data: Data) -> tuple[Tensor, Tensor]:
    windows = isinstance(data, Tensor)
    parts = (data,) if windows else tuple(data)
    shapes = [getattr(part, "shape", type(part).__name__) for part in parts]
    if len(parts) != 2 - windows or any(
        not isinstance(part, Tensor) or part.dim() != 2 or part.dtype != torch.int64
        for part in parts
    ):
        raise TypeError(
            f"{name} must be windows of token ids, int64 of shape (examples, context + 1), or a "
            f"pair (inputs, targets) of the same shape; got {shapes}"
        )
    inputs, targets = (data[:, :-1], data[:, 1:]) if windows else parts
    if inputs.shape != targets.shape:
        raise ValueError(f"{name} must hold inputs and targets of one shape; got {shapes}")
    if inputs.numel() == 0:
        raise ValueError(f"{name} must hold at least one example with a token; got {shapes}")
    return inputs, targets


def evaluate(model: nn.Module, data: Data, *, batch_size: int = 256) -> float:
    """Return the mean loss over all targets of ``data``, in nats; see ``train`` for ``data``.

    It is the sum over all targets divided by their number, so it does not depend on
    ``batch_size``. The model is left in the mode it was in.
    """
    return Examples("data", data, model).mean_loss(model, whole("batch_size", batch_size))


def draw_updates(
    plan: RunPlan, seed: int, rank: int = 0, *, made: int = 0
) -> Iterator[list[Tensor]]:
    """Yield one device's micro-batches (as positions) of each update, epoch after epoch.

    With ``made`` they are those of the updates that follow so many.
    """
    first_epoch, skipped, _ = plan.resume_point(made)
    for epoch in itertools.count(first_epoch):
        batches = shuffled_batches(
            plan.examples,
            plan.batch_size,
            seed=seed,
            epoch=epoch,
            drop_last=plan.drop_last,
            rank=rank,
            devices=plan.devices,
        )
        start, skipped = skipped, 0
        while start < len(batches):
            end = start + plan.accumulation_at(made)
            yield batches[start:end]
            start, made = end, made + 1


def _larger_micro_batches(update: list[Tensor], plan: RunPlan, made: int) -> tuple[Tensor, ...]:
    """Deal an update's examples to no more micro-batches than the plan accumulates at first."""
    times = plan.accumulation_at(made) // plan.accumulation
    return torch.cat(update).split(plan.batch_size * times)


def _check_grow(grow: str, plan: RunPlan) -> None:
    one_of("grow", grow, GROW)
    if grow == "batch_size":
        for stage in plan.stages:
            if stage.batch_size % plan.effective_batch_size:
                raise ValueError(
                    f"grow='batch_size' needs a ramp of whole multiples of its first batch of "
                    f"{plan.effective_batch_size}; got {stage.batch_size}. grow='accumulation' "
                    f"does without"
                )


def _place(model: nn.Module) -> tuple[int, int]:
    """Return the number of this device, from 0, and how many work on the same updates."""
    if not isinstance(model, DistributedDataParallel):
        return 0, 1
    return dist.get_rank(model.process_group), dist.get_world_size(model.process_group)


def _factors(schedule: Sequence[float] | None, plan: RunPlan) -> Sequence[float]:
    if schedule is None:
        return [1.0] * plan.total_steps
    if len(schedule) != plan.total_steps:
        raise ValueError(
            f"schedule must have one factor for each of the {plan.total_steps} updates; got "
            f"{len(schedule)}. RunPlan(...).total_steps gives the number"
        )
    for factor in schedule:
        if not (math.isfinite(factor) and factor >= 0):
            raise ValueError(f"schedule must hold finite factors of at least 0; got {factor!r}")
    return schedule


def build_optimizer(
    optimizer: str | Callable[..., Optimizer], groups: list[dict], lr: float
) -> Optimizer:
    """Return the optimizer of that name, or what a callable makes, for groups of parameters."""
    if callable(optimizer):
        return optimizer(groups, lr=lr)
    make = OPTIMIZERS[one_of("optimizer", optimizer, OPTIMIZERS)]
    device = groups[0]["params"][0].device
    return make(groups, lr=lr, fused=device.type in ("cpu", "cuda"))


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

    A loss that is no longer finite ends the run: see ``History.diverged_at``. Ctrl-C returns what
    there is.

    Raises ``ValueError`` or ``TypeError``, before any work, for an argument that cannot be meant
    and for data in which an update would have no target; also for a checkpoint that is damaged or
    of another run, which it then names the difference from.
    """
    examples = Examples("data", data, model)
    held_out = None if eval_data is None else Examples("eval_data", eval_data, model)
    rank, devices = _place(model)
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
    _check_grow(grow, plan)
    path, save_every = path_and_interval(checkpoint, save_every, resume, plan)
    factors = _factors(schedule, plan)
    positive("lr", lr)
    clip = math.inf if clip is None else positive("clip", clip)
    eval_every = plan.total_steps if eval_every is None else whole("eval_every", eval_every)
    examples.refuse_update_without_target(plan, whole("seed", seed, at_least=0))
    seed_everything(seed)
    one_of("normalize", normalize, NORMALIZE)
    updater = build_optimizer(optimizer, [{"params": list(model.parameters())}], lr)
    updater.zero_grad()
    history = History(plan)
    if path is not None:
        options = {"lr": lr, "clip": clip, "normalize": normalize, "seed": seed, "grow": grow}
        run = describe(plan, model, updater, examples, factors, **options)
        keeper = RunKeeper(path, run, model, updater, history)
    if resume:
        keeper.resume()

    def measure_held_out() -> None:
        step = history.steps
        if held_out is not None and (step % eval_every == 0 or step == plan.total_steps):
            history.held_out[step] = held_out.mean_loss(model)

    def keep() -> None:
        step = history.steps
        if path is not None and rank == 0 and (step % save_every == 0 or step == plan.total_steps):
            keeper.save()

    bar = progress(factors[history.steps :], "training", "updates")
    was_training = model.training
    model.train()
    try:
        if history.steps == 0:
            measure_held_out()
        for factor, update in zip(bar, draw_updates(plan, seed, rank, made=history.steps)):
            started = time.perf_counter()
            for group in updater.param_groups:
                group["lr"] = lr * factor

            if grow == "batch_size":
                update = _larger_micro_batches(update, plan, history.steps)
            micro_batches = [examples.batch(positions) for positions in update]
            loss, targets = backward(model, micro_batches, normalize=normalize)
            loss = loss.item()
            if not math.isfinite(loss):
                history.diverged_at = history.steps + 1
                break
            if clip < math.inf:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            updater.step()
            updater.zero_grad()

            drawn = devices * sum(map(len, update))
            history.add(loss, lr * factor, drawn, targets, time.perf_counter() - started)
            measure_held_out()
            keep()
    except KeyboardInterrupt:
        history.interrupted = True
    finally:
        bar.close()
        updater.zero_grad()
        model.train(was_training)
    return history
