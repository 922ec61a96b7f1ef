"""In what numbers a run computes: those of the model, or 16 bits beside weights of 32."""

import math
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from helpers._checks import one_of

PRECISIONS = ("float32", "bfloat16", "float16")
HALVINGS = 32  # from 65,536 down to where no overflow is left to be the scale's fault


class Precision:
    """The numbers of a run: what it computes in, and how an update is made of its gradient.

    "float32" leaves the model in the numbers that it has. The others are torch's autocast: weights,
    gradients and states stay in float32, and matrix products take 16-bit copies. "float16" holds
    nothing below 6e-8 and nothing above 65,504, so the loss is multiplied before the backward pass
    and the gradient divided after it (Micikevicius et al. 2018, arXiv 1710.03740, section 3.2). A
    gradient that overflows makes no update, and halves the scale.

    Raises ``ValueError`` for an unknown name, a device that has no such numbers, and a model that
    is not in float32. Warns where "bfloat16" is there but slow.
    """

    def __init__(self, name: str, model: nn.Module) -> None:
        self.name = one_of("precision", name, PRECISIONS)
        self.dtype = None if name == "float32" else getattr(torch, name)
        self.scaler = None
        weights = next(model.parameters())
        self.device = weights.device.type
        if self.dtype is None:
            return
        if weights.dtype != torch.float32:
            raise ValueError(
                f"model must be in torch.float32 with precision={name!r}, which computes in copies "
                f"of its weights; got {weights.dtype}"
            )
        _refuse_or_warn(name, weights.device)
        if name == "float16":
            self.scaler = torch.amp.GradScaler(self.device)

    @property
    def attempts(self) -> int:
        """How often an update may be tried: once, or again at half the scale."""
        return 1 if self.scaler is None else HALVINGS

    def forward(self) -> AbstractContextManager:
        """Return the context in which the model computes."""
        return nullcontext() if self.dtype is None else torch.autocast(self.device, self.dtype)

    def wide(self, logits: Tensor) -> Tensor:
        """Return logits in which a loss can be added up: a sum in 16 bits would overflow."""
        return logits if self.dtype is None else logits.float()

    def scaled(self, loss: Tensor) -> Tensor:
        """Return what to call ``backward`` of."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def update(self, model: nn.Module, updater: Optimizer, clip: float) -> bool:
        """Make an update of the gradients in ``model``; return False if they overflowed."""
        if self.scaler is None:
            if clip < math.inf:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            updater.step()
            return True
        before = self.scaler.get_scale()
        if clip < math.inf:
            self.scaler.unscale_(updater)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        self.scaler.step(updater)
        self.scaler.update()
        return self.scaler.get_scale() >= before

    def state(self) -> dict[str, Any]:
        """Return what decides the next scales; nothing where there are none."""
        return {} if self.scaler is None else self.scaler.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on with the scale of ``state``."""
        if self.scaler is not None:
            self.scaler.load_state_dict(state)


def _refuse_or_warn(name: str, device: torch.device) -> None:
    """Raise ``ValueError`` where a device has no such numbers; warn where they are slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns, and goes on in float32
        try:
            torch.autocast(device.type, getattr(torch, name))
        except (UserWarning, RuntimeError) as error:
            raise ValueError(
                f"precision must be one that the device has; {device.type!r} has no {name}. "
                f"'float32' is everywhere"
            ) from error
    if name == "bfloat16" and device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        if major < 8:
            warnings.warn(
                f"bfloat16 works slowly on this card (sm_{major}{minor}), which computes it in "
                f"float32 and converts; precision='float16' is fast there",
                stacklevel=4,
            )
