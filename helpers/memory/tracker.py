"""PyTorch's memory tracker, over whole steps of training: what is there at each instant."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from helpers.footprint import MOMENTS, gib

Instant = tuple[str, dict[str, int]]


class Tracker(MemTracker):
    """PyTorch's tracker, which also remembers each instant of a step and can refuse to go on.

    ``kind`` is the kind of device whose memory counts, any if None. Beyond ``limit`` bytes it
    raises ``torch.OutOfMemoryError``.
    """

    def __init__(self, kind: str | None = None, limit: int | None = None) -> None:
        super().__init__()
        self.kind, self.limit = kind, limit
        self.place: str | None = None  # a closer name for the moment, if someone gives it
        self.updates = 0  # under way: one optimizer may call another
        self.instants: list[Instant] = []
        self.most = 0
        self.refused = False

    @property
    def moment(self) -> str:
        """What the step does now."""
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

    def note(self) -> int:
        """Remember this instant; return its bytes."""
        now = self.now()
        self.instants.append((self.place or self.moment, now))
        return now["Total"]

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        if func is torch.ops.prim.device.default:  # asked often, and makes nothing
            return func(*args)
        result = super().__torch_dispatch__(func, types, args, kwargs)
        total = self.note()
        self.most = max(self.most, total)
        if self.limit is not None and total > self.limit:
            self.refused = True
            raise torch.OutOfMemoryError(
                f"Out of memory by a limit set for the purpose: {gib(total)} are needed, "
                f"{gib(self.limit)} allowed."
            )
        return result

    def end_step(self) -> list[Instant]:
        """Return the instants since the last step's end, each with the bytes by part."""
        states = self.now()["Optstate"]
        instants = [(name, _parts(found, states, name)) for name, found in self.instants]
        self.instants, self.place = [], None
        return instants


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
def tracking(tracker: Tracker) -> Iterator[Tracker]:
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
        tracker.updates += 1

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


def fullest(instants: list[Instant]) -> dict[str, dict[str, int]]:
    """Return the parts at the fullest instant of each moment, or place."""
    found: dict[str, dict[str, int]] = {}
    most: dict[str, int] = {}
    before = math.inf
    for name, parts in instants:
        total = sum(parts.values())
        # What an update leaves behind is no part of the next forward pass, which makes something.
        left_behind = name == "forward" and total <= before
        if not left_behind and total > most.get(name, 0):
            most[name], found[name] = total, parts
        before = total
    return found


def by_moment(places: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Take the fullest place for each moment of the step."""
    moments: dict[str, dict[str, int]] = {}
    for place, parts in places.items():
        moment = place if place in MOMENTS else "backward"
        moments[moment] = max(moments.get(moment, {}), parts, key=lambda found: sum(found.values()))
    return moments
