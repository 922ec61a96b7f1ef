"""Where the bytes go: simulated and measured; what fits, and why it ran out.

``estimate`` works the same out by arithmetic, and is here as well.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from helpers.decoder import Decoder, adapt
from helpers.footprint import MOMENTS, PARTS, Breakdown, Setting, check, estimate
from helpers.shapes import Shape

__all__ = [
    "Breakdown",
    "estimate",
    "peak_of_saved_tensors",
    "simulate",
]


class _Tracker(MemTracker):
    """PyTorch's tracker, which also remembers the fullest instant of each moment of a step."""

    def __init__(self, kind: str | None = None) -> None:
        super().__init__()
        self.kind = kind  # the kind of device whose memory counts; any, if None
        self.place: str | None = None  # a closer name for the moment, if someone gives it
        self.updates = 0  # under way: one optimizer may call another
        self.before = 0
        self.fullest: dict[str, dict[str, int]] = {}

    @property
    def moment(self) -> str:
        if self.updates:
            return "update"
        return "backward" if _in_backward() else "forward"

    def now(self) -> dict[str, int]:
        """Return the bytes that are there, by PyTorch's name of their purpose."""
        found = dict.fromkeys(("Total", *(purpose.value for purpose in _MemRefType)), 0)
        for device, purposes in self.get_tracker_snapshot().items():
            if self.kind in (None, device.type):
                for purpose, count in purposes.items():
                    found[getattr(purpose, "value", purpose)] += count
        return found

    def __torch_dispatch__(self, *call: Any, **more: Any) -> Any:  # noqa: ANN401
        result = super().__torch_dispatch__(*call, **more)
        self.note(self.now(), self.place or self.moment)
        return result

    def note(self, now: dict[str, int], name: str) -> None:
        """Remember this instant if it is the fullest of its moment so far."""
        total = now["Total"]
        # Where nothing was made there is no new peak, only the rest of the moment before.
        if total > max(self.before, self.fullest.get(name, {"Total": 0})["Total"]):
            self.fullest[name] = now
        self.before = total

    def end_step(self) -> dict[str, dict[str, int]]:
        """Return the parts at the fullest instant of each moment since the last step's end."""
        states = self.now()["Optstate"]
        parts = {name: _parts(found, states, name) for name, found in self.fullest.items()}
        self.fullest, self.place = {}, None
        return parts


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _parts(found: dict[str, int], states: int, moment: str) -> dict[str, int]:
    """Sort PyTorch's purposes into ours.

    During an update all that is made counts as states with PyTorch; what is gone at its end was
    temporary.
    """
    kept = min(found["Optstate"], states)
    made = found["Activation"] + found["Other"]
    thrown_away = found["Temp"] + found["Optstate"] - kept
    updating = moment == "update"
    return {
        "parameters": found["Parameter"] + found["Buffer"],
        "gradients": found["Gradient"],
        "states": kept,
        "activations": 0 if updating else made,
        "temporary": thrown_away + (made if updating else 0),
    }


@contextmanager
def _tracking(tracker: _Tracker) -> Iterator[_Tracker]:
    """Track all tensors that are made inside, over any number of forward passes."""

    def forget(module: nn.Module, _: object) -> None:
        # PyTorch's tracker refuses a second forward pass of a model that it remembers, and cannot
        # hook a frozen parameter unless it believes that it has.
        if not _in_backward():
            tracker.memory_tracking.pop(module, None)
        for parameter in module.parameters():
            if not parameter.requires_grad:
                done = RemovableHandle(OrderedDict()), RemovableHandle(OrderedDict())
                tracker._param_to_grad_hook_handles[parameter] = done

    def begin(*_: object) -> None:
        tracker.updates += 1  # and one that makes nothing is a moment too
        tracker.fullest.setdefault("update", tracker.now())

    def end(*_: object) -> None:
        tracker.updates -= 1

    handles = [
        register_module_forward_pre_hook(forget),
        register_optimizer_step_pre_hook(begin),
        register_optimizer_step_post_hook(end),
    ]
    try:
        with tracker:
            yield tracker
    finally:
        for handle in handles:
            handle.remove()


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


def _mark_places(model: Decoder, tracker: _Tracker) -> None:
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
        tracker = _Tracker()
        tracker.track_external(model, optimizer, tokens)
        _mark_places(model, tracker)
        with _tracking(tracker):
            for _ in range(2):
                loss = model(tokens, tokens)
                tracker.place = "loss"
                loss.backward()
                del loss
                tracker.place = None
                optimizer.step()
                optimizer.zero_grad()
                places = tracker.end_step()
    return places


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
    return Breakdown(_by_moment(_extrapolated(setting)))


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


def _by_moment(places: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Take the fullest place for each moment of the step."""
    moments: dict[str, dict[str, int]] = {}
    for place, parts in places.items():
        moment = place if place in MOMENTS else "backward"
        moments[moment] = max(moments.get(moment, {}), parts, key=lambda found: sum(found.values()))
    return moments


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
