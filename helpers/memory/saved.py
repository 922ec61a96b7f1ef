"""What autograd keeps for the backward pass, counted tensor by tensor, on any device."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


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
