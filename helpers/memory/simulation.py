"""A step of training run on tensors that take no memory, for any size of model on any machine."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers.decoder import Decoder, adapt
from helpers.footprint import PARTS, Breakdown, Setting, check, notes_on
from helpers.memory.tracker import Tracker, by_moment, fullest, tracking
from helpers.shapes import Shape


def simulate(
    shape: str | Shape,
    *,
    batch_size: int,
    context: int,
    precision: str = "bfloat16",
    optimizer: str = "adamw",
    trainable: str = "full",
    rank: int | None = None,
    adapters: Sequence[str] | None = None,
    checkpointing: bool = False,
    attention: str = "fused",
    in_backward: bool = False,
    states_on_cpu: bool = False,
    loss_chunk: int | None = None,
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
        adapters=adapters,
        checkpointing=checkpointing,
        attention=attention,
        in_backward=in_backward,
        states_on_cpu=states_on_cpu,
        loss_chunk=loss_chunk,
    )
    if states_on_cpu:  # then the device sees what it does of plain SGD
        precision = "float32" if precision == "float32" else "bfloat16"
        setting = replace(setting, optimizer="sgd", precision=precision)
    return Breakdown(by_moment(_extrapolated(setting)), notes_on(setting))


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


def _simulate(setting: Setting) -> dict[str, dict[str, int]]:
    """Return the parts at the fullest instant of each place in the second step of training."""
    with FakeTensorMode():
        model = _build(setting)
        trained = [part for part in model.parameters() if part.requires_grad]
        groups = [[part] for part in trained] if setting.in_backward else [trained]
        optimizers = [_optimizer(setting, group) for group in groups]
        tokens = torch.zeros(setting.batch_size, setting.context, dtype=torch.int64)
        tracker = Tracker()
        tracker.track_external(model, *optimizers, tokens)
        _mark_places(model, tracker)
        with tracking(tracker):
            for step in range(2):
                loss = model(tokens, tokens)
                if setting.in_backward and step == 0:
                    _update_at_gradients(trained, optimizers)  # after the tracker's own hooks
                tracker.place = "loss"
                loss.backward()
                del loss
                if not setting.in_backward:
                    tracker.place = None
                    optimizers[0].step()
                    optimizers[0].zero_grad()
                instants = tracker.end_step()
    return fullest(instants)


def _build(setting: Setting) -> Decoder:
    # In its precision from the start: tensors that are not there cannot be converted.
    with _default_dtype(torch.float32 if setting.precision == "float32" else torch.bfloat16):
        model = Decoder(
            setting.shape,
            attention=setting.attention,
            checkpointing=setting.checkpointing,
            loss_chunk=setting.loss_chunk,
        )
        if setting.trainable == "lora":
            adapt(model, setting.rank, setting.adapters)
    return model


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


def _optimizer(setting: Setting, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    together = setting.precision != "mixed" and not setting.in_backward
    make = {
        "sgd": partial(torch.optim.SGD, lr=0.1, foreach=together),
        "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=together),
        "adamw": partial(torch.optim.AdamW, foreach=together),
    }[setting.optimizer]
    return _MasterWeights(parameters, make) if setting.precision == "mixed" else make(parameters)


def _update_at_gradients(
    parameters: Iterable[Tensor], optimizers: Iterable[torch.optim.Optimizer]
) -> None:
    """Let each optimizer run, and let go of its parameter's gradient, as soon as that is there."""

    def update(optimizer: torch.optim.Optimizer) -> Callable[[Tensor], None]:
        def on_gradient(_: Tensor) -> None:
            optimizer.step()
            optimizer.zero_grad()

        return on_gradient

    for parameter, optimizer in zip(parameters, optimizers):
        parameter.register_post_accumulate_grad_hook(update(optimizer))


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
