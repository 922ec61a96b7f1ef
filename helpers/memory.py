"""Where the bytes go: simulated and measured; what fits, and why it ran out.

``estimate`` works the same out by arithmetic, and is here as well.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from statistics import linear_regression
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers._checks import whole
from helpers._oom import ASKED, OutOfMemory, explain_oom, is_out_of_memory, size_in
from helpers._tracker import Instant, Tracker, by_moment, fullest, tracking
from helpers.decoder import Decoder, adapt
from helpers.device import pick
from helpers.footprint import PARTS, Breakdown, Setting, check, estimate, gib
from helpers.shapes import Shape

__all__ = [
    "Breakdown",
    "Measurement",
    "OutOfMemory",
    "estimate",
    "explain_oom",
    "fixed_and_slope",
    "largest_batch",
    "measure",
    "peak_of_saved_tensors",
    "simulate",
]


class _MasterWeights(torch.optim.Optimizer):
    """An optimizer over float32 copies of 16-bit weights, which it updates one by one."""

    def __init__(self, parameters: Iterable[Tensor], make: Callable[..., Any]) -> None:
        super().__init__(parameters, {})
        self.parts = []
        for parameter in self.param_groups[0]["params"]:
            master = parameter.detach().float().requires_grad_()
            self.state[parameter]["master"] = master
            self.parts.append((parameter, master, make([master])))

    @torch.no_grad()
    def step(self) -> None:
        for parameter, master, optimizer in self.parts:
            master.grad = parameter.grad.float()
            optimizer.step()
            master.grad = None
            parameter.copy_(master)


def _optimizer(setting: Setting, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    together = setting.precision != "mixed"
    make = {
        "sgd": partial(torch.optim.SGD, lr=0.1, foreach=together),
        "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=together),
        "adamw": partial(torch.optim.AdamW, foreach=together),
    }[setting.optimizer]
    return make(parameters) if together else _MasterWeights(parameters, make)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _mark_places(model: Decoder, tracker: Tracker) -> None:
    """Name the places of the backward pass between which memory is linear in the blocks."""

    def mark(place: str) -> Callable[..., None]:
        def on_gradient(_: Tensor) -> None:
            tracker.place = place

        def on_forward(_: nn.Module, __: object, output: Tensor) -> None:
            if output.requires_grad:
                output.register_hook(on_gradient)

        return on_forward

    places = {model.blocks[0]: "first block", model.blocks[-1]: "last block"}
    embedding = model.positions or model.tokens
    for module, place in ({embedding: "embedding"} | places).items():
        module.register_forward_hook(mark(place))


def _simulate(setting: Setting) -> dict[str, dict[str, int]]:
    """Return the parts at the fullest instant of each place in the second step of training."""
    with FakeTensorMode():
        model = _build(setting)
        trained = [part for part in model.parameters() if part.requires_grad]
        optimizer = _optimizer(setting, trained)
        tokens = torch.zeros(setting.batch_size, setting.context, dtype=torch.int64)
        tracker = Tracker()
        tracker.track_external(model, optimizer, tokens)
        _mark_places(model, tracker)
        with tracking(tracker):
            for _ in range(2):
                loss = model(tokens, tokens)
                tracker.place = "loss"
                loss.backward()
                del loss
                tracker.place = None
                optimizer.step()
                optimizer.zero_grad()
                instants = tracker.end_step()
    return fullest(instants)


def _build(setting: Setting) -> Decoder:
    # In its precision from the start: tensors that are not there cannot be converted.
    with _default_dtype(torch.float32 if setting.precision == "float32" else torch.bfloat16):
        model = Decoder(
            setting.shape, attention=setting.attention, checkpointing=setting.checkpointing
        )
        if setting.trainable == "lora":
            adapt(model, setting.rank)
    return model


def simulate(
    shape: str | Shape,
    *,
    batch_size: int,
    context: int,
    precision: str = "bfloat16",
    optimizer: str = "adamw",
    trainable: str = "full",
    rank: int | None = None,
    checkpointing: bool = False,
    attention: str = "fused",
) -> Breakdown:
    """Run a training step on tensors that take no memory, and count what they would take.

    The model of the shape, torch's own autograd and optimizer, and PyTorch's ``MemTracker`` under
    ``FakeTensorMode``; the second step, when the optimizer has its states. Two and three blocks are
    run and the rest is extrapolated, place by place and part by part: each is linear in the number
    of blocks. Seconds for any size of model, on any machine. What happens inside a kernel, what the
    allocator rounds up, and the libraries' own memory are not seen.

    Arguments and errors as for ``estimate``. An 8-bit optimizer and quantized weights are no part
    of torch and can only be estimated.
    """
    if optimizer == "adamw-8bit":
        raise ValueError(
            "optimizer must be 'sgd', 'momentum' or 'adamw' to be simulated; got 'adamw-8bit', "
            "which torch does not have. Use estimate"
        )
    setting = check(
        shape,
        batch_size=batch_size,
        context=context,
        precision=precision,
        optimizer=optimizer,
        trainable=trainable,
        rank=rank,
        checkpointing=checkpointing,
        attention=attention,
    )
    return Breakdown(by_moment(_extrapolated(setting)))


def _extrapolated(setting: Setting) -> dict[str, dict[str, int]]:
    def with_layers(count: int) -> dict[str, dict[str, int]]:
        return _simulate(replace(setting, shape=replace(setting.shape, layers=count)))

    layers = setting.shape.layers
    if layers <= 3:
        return with_layers(layers)
    two, three = with_layers(2), with_layers(3)
    return {
        place: {
            part: two[place][part] + (layers - 2) * (more[part] - two[place][part])
            for part in PARTS
        }
        for place, more in three.items()
        if place in two
    }


@dataclass(frozen=True)
class Measurement:
    """What ``measure`` saw of each step.

    ``steps`` has a ``Breakdown`` for each. ``timeline`` has every instant of the last step at which
    a tensor was made or read: its moment, and the bytes by part. ``allocator`` has the CUDA
    allocator's own peaks of each step, as "active", "allocated" and "reserved" bytes, and is empty
    on a CPU.
    """

    steps: tuple[Breakdown, ...]
    timeline: tuple[Instant, ...]
    allocator: tuple[dict[str, int], ...]

    @property
    def first(self) -> Breakdown:
        """The first step, whose optimizer has no states before its update."""
        return self.steps[0]

    @property
    def later(self) -> Breakdown:
        """The fullest of the other steps: what a run needs."""
        return max(self.steps[1:])

    def __repr__(self) -> str:
        first, later = gib(self.first.peak), gib(self.later.peak)
        return f"Measurement: {first} in the first step, {later} later\n  {self.later!r}"


def measure(
    step: Callable[[], object],
    *,
    steps: int = 3,
    device: str | None = None,
    snapshot: str | PathLike[str] | None = None,
) -> Measurement:
    """Run ``step()`` a few times and return the peak of memory of each, by what it was for.

    ``step`` makes one whole update, with as many micro-batches as it likes. What a model holds is
    known once it is called, and what an optimizer holds once it has made an update, so the first
    step counts apart. Counted are tensors on ``device``, "cuda" where there is one; on CUDA the
    allocator's own peaks besides, and with ``snapshot`` the path of a file for
    https://pytorch.org/memory_viz. Tensors of which nobody tells PyTorch's tracker, such as a data
    set made before, are seen by the allocator alone. The tracker's hooks hold on to a forward pass
    that no backward pass follows: put an evaluation under ``torch.no_grad()``.

    Raises ``ValueError`` for fewer than two steps, a snapshot without CUDA, and steps that make no
    tensor on the device.
    """
    whole("steps", steps, at_least=2)
    kind = pick(device).type
    if snapshot is not None and kind != "cuda":
        raise ValueError(f"snapshot is for the CUDA allocator; got {snapshot!r} on {kind!r}")
    found: list[Breakdown] = []
    allocator: list[dict[str, int]] = []
    with _history(snapshot), tracking(Tracker(kind)) as tracker:
        for _ in range(steps):
            if kind == "cuda":
                torch.cuda.reset_peak_memory_stats()
            step()
            timeline = tracker.end_step()
            moments = fullest(timeline)
            if not moments:
                raise ValueError(f"step must make tensors on {kind!r}; it made none")
            found.append(Breakdown(moments))
            if kind == "cuda":
                allocator.append(_allocator_peaks())
    return Measurement(tuple(found), tuple(timeline), tuple(allocator))


def _allocator_peaks() -> dict[str, int]:
    torch.cuda.synchronize()
    peaks = torch.cuda.memory_stats()
    names = ("active", "allocated", "reserved")
    return {name: peaks[f"{name}_bytes.all.peak"] for name in names}


@contextmanager
def _history(path: str | PathLike[str] | None) -> Iterator[None]:
    if path is None:
        yield
        return
    torch.cuda.memory._record_memory_history()
    try:
        yield
        torch.cuda.memory._dump_snapshot(str(path))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def fixed_and_slope(batch_sizes: Sequence[int], peaks: Sequence[float]) -> tuple[float, float]:
    """Fit peak = fixed + slope × batch size; return both, in bytes and bytes an example.

    Least squares. Give peaks of later steps, all at the same moment: below some batch size the
    update is the fullest, and the batch does not matter there.

    Raises ``ValueError`` for fewer than two different sizes, for peaks that do not rise or leave
    nothing fixed, and for peaks of which one lies more than 5 % from the line.

    >>> fixed_and_slope([1, 2], [130, 160])
    (100.0, 30.0)
    """
    sizes = [whole("batch_sizes", size) for size in batch_sizes]
    if len(set(sizes)) < 2:
        raise ValueError(f"batch_sizes must hold two different sizes or more; got {sizes}")
    if len(peaks) != len(sizes):
        raise ValueError(
            f"peaks must hold one number for each of the {len(sizes)} batch sizes; got {len(peaks)}"
        )
    slope, fixed = linear_regression(sizes, peaks)
    if slope <= 0:
        raise ValueError(f"peaks must rise with the batch size; got {list(peaks)}")
    if fixed <= 0:
        raise ValueError(
            f"peaks must leave something fixed; got {fixed:,.0f} bytes at batch size 0"
        )
    for size, peak in zip(sizes, peaks):
        if abs(fixed + slope * size - peak) > 0.05 * peak:
            raise ValueError(
                f"peaks must lie on one line, within 5 %; that of batch size {size:,} is "
                f"{peak:,.0f} where the line has {fixed + slope * size:,.0f}"
            )
    return fixed, slope


MOST_EXAMPLES = 2**30


def largest_batch(
    trial: Callable[[int], None],
    *,
    limit: int | None = None,
    report: Callable[[str], object] = print,
) -> int:
    """Return the largest batch size that ``trial`` gets through without running out of memory.

    The size doubles until memory runs out, then the gap is halved: at most 2·log₂(answer) + 2
    trials, each of which is reported.

    ``trial(batch_size)`` should build what it needs and make two whole updates or more, as the
    optimizer's states come with the first; on the longest examples, as those come some day. It
    returns nothing and lets the error out. Only memory that really ran out makes the batch smaller:
    ``torch.OutOfMemoryError``, or the refusal of the CPU's allocator. Any other error is passed on.
    Everything of a failed trial is let go before the next.

    ``limit`` is in bytes and counts the tensors that the trial makes or trains, on any device, so
    that the search works without a GPU. Without it a CPU may swap, or kill the process, long before
    its allocator says no. Leave a margin below the answer: other examples, and fragments.

    Raises ``ValueError`` if not even one example fits, if memory never runs out, or if the trial
    keeps the error to itself; ``TypeError`` if it returns something.
    """
    if not callable(trial):
        raise TypeError(f"trial must be a function of a batch size; got {trial!r}")
    if limit is not None:
        whole("limit", limit)
    fits, too_large = 0, 1
    while _fits(trial, too_large, limit, report):
        fits, too_large = too_large, 2 * too_large
        if too_large > MOST_EXAMPLES:
            raise ValueError(
                f"trial must run out of memory at some size; it went through {fits:,} examples. "
                f"Does it use its batch size?"
            )
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        if _fits(trial, middle, limit, report):
            fits = middle
        else:
            too_large = middle
    return fits


def _fits(
    trial: Callable[[int], None],
    batch_size: int,
    limit: int | None,
    report: Callable[[str], object],
) -> bool:
    """Try one size and let go of all that it made."""
    needed, refusal = _try(trial, batch_size, limit)
    # Here, after the handler: while it runs, the error holds the tensors of the failed trial.
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    name = f"batch size {batch_size:,}"
    if refusal is None:
        report(f"{name} fits" + (f" in {gib(needed)}" if needed else ""))
        return True
    report(f"{name} runs out of memory")
    if batch_size == 1:
        least = f"at least {gib(needed)}" if needed else "more than there is"
        bound = "" if limit is None else f", and the limit is {gib(limit)}"
        raise ValueError(f"trial must fit with one example; that needed {least}{bound}. {refusal}")
    return False


def _try(
    trial: Callable[[int], None], batch_size: int, limit: int | None
) -> tuple[int, str | None]:
    """Run one trial; return the bytes that it needed, as far as known, and how memory ran out."""
    tracker = None if limit is None else Tracker(limit=limit)
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    try:
        with nullcontext() if tracker is None else tracking(tracker):
            result = trial(batch_size)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return _needed(tracker, str(error)), str(error)
    if tracker is not None and tracker.refused:
        raise ValueError(
            f"trial must let the out-of-memory error out; at batch size {batch_size:,} it kept it "
            f"to itself"
        )
    if result is not None:
        raise TypeError(f"trial must return nothing, as what it returns stays; got {result!r}")
    return _needed(tracker, ""), None


def _needed(tracker: Tracker | None, message: str) -> int:
    """Return the most bytes of a trial, with those that it asked for in vain; 0 if not known."""
    if tracker is not None:
        return tracker.most
    asked = size_in(message, ASKED) or 0
    there = torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else 0
    return there + asked


class _Ledger:
    """The tensors that autograd holds at the moment, and the most it ever held."""

    def __init__(self) -> None:
        self.holders: dict[tuple[int, int], int] = {}
        self.now = self.peak = 0

    def add(self, key: tuple[int, int]) -> None:
        self.holders[key] = self.holders.get(key, 0) + 1
        if self.holders[key] == 1:
            self.now += key[1]
            self.peak = max(self.peak, self.now)

    def remove(self, key: tuple[int, int]) -> None:
        self.holders[key] -= 1
        if self.holders[key] == 0:
            self.now -= key[1]


class _Kept:
    """A tensor kept for the backward pass; leaves the ledger when autograd lets go of it."""

    def __init__(self, tensor: Tensor, ledger: _Ledger) -> None:
        self.tensor, self.ledger = tensor, ledger
        self.key = (tensor.data_ptr(), tensor.nbytes)
        ledger.add(self.key)

    def __del__(self) -> None:
        self.ledger.remove(self.key)


def peak_of_saved_tensors(step: Callable[[], object], model: nn.Module) -> int:
    """Return the most bytes that autograd kept for the backward pass at one moment of ``step()``.

    These are the activations, with what the loss keeps. The model's own parameters are there
    anyway and do not count; a tensor that is kept twice counts once. What a backward pass has used
    is let go, and no longer counts. Works on any device, and needs no GPU.
    """
    parameters = {parameter.data_ptr() for parameter in model.parameters()}
    ledger = _Ledger()

    def keep(tensor: Tensor) -> Tensor | _Kept:
        return tensor if tensor.data_ptr() in parameters else _Kept(tensor, ledger)

    def give_back(kept: Tensor | _Kept) -> Tensor:
        return kept.tensor if isinstance(kept, _Kept) else kept

    with torch.autograd.graph.saved_tensors_hooks(keep, give_back):
        step()
    return ledger.peak
