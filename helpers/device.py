"""What this machine is, and the model that fits it."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from helpers._checks import one_of, whole
from helpers.model import ModelConfig


def pick(name: str | None = None) -> torch.device:
    """Return the device to train on: CUDA where there is one, the CPU otherwise.

    Apple's "mps" is used only if asked for by name: at these sizes the CPU is faster, and the
    notebooks need float64, which MPS lacks. Raises ``ValueError`` for a device that is not here.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    present = {
        "cpu": lambda: True,
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
    }
    if not present[one_of("name", name, present)]():
        raise ValueError(f"name must be a device of this machine; got {name!r}, which is not here")
    return torch.device(name)


def wait(device: torch.device) -> None:
    """Return when ``device`` has done all that was asked of it; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds that ``call`` takes, until ``device`` has done what it asks for.

    Python goes on while a GPU works, so a clock that is read without waiting times the launch.
    """
    wait(device)
    started = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - started


def seed_everything(seed: int) -> None:
    """Seed Python and torch (every device); ``ValueError`` for a negative seed."""
    random.seed(whole("seed", seed, at_least=0))
    torch.manual_seed(seed)


def random_state(device: torch.device) -> dict[str, Any]:
    """Return where Python's and torch's random numbers stand, on the CPU and a CUDA ``device``."""
    state = {"python": random.getstate(), "cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Go on with the random numbers that followed ``random_state`` on the same kind of device."""
    random.setstate(state["python"])
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


@dataclass(frozen=True)
class Preset:
    """A shape of model that a machine trains in seconds, and AdamW rates worth trying on it."""

    name: str
    context: int
    width: int
    layers: int
    heads: int
    rates: tuple[float, ...]

    def model(self, vocab_size: int) -> ModelConfig:
        """Return the configuration for a vocabulary of ``vocab_size`` tokens."""
        return ModelConfig(vocab_size, self.context, self.width, self.layers, self.heads)


_RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
PRESETS = {
    "small": Preset("small", context=32, width=32, layers=1, heads=2, rates=_RATES),
    "medium": Preset("medium", context=64, width=64, layers=2, heads=4, rates=_RATES),
    # A wider model wants smaller rates.
    "gpu": Preset(
        "gpu", context=256, width=320, layers=8, heads=5, rates=tuple(r / 10 for r in _RATES)
    ),
}


# ``helpers.footprint`` gives 10.5 GiB for the gpu preset at batch 256; a tenth is left free.
ROOM_FOR_GPU = 12 * 2**30


def preset(device: torch.device | str) -> Preset:
    """Return the preset that fits a device, or the one of a name.

    On a CPU it is "small" (20 thousand parameters). On CUDA it is "gpu" (10 million) if the card
    has 12 GiB or more, as a T4 does, and "medium" (120 thousand) if it has less.
    """
    if not isinstance(device, torch.device):
        return PRESETS[one_of("device", device, PRESETS)]
    if device.type != "cuda":
        return PRESETS["small"]
    memory = torch.cuda.get_device_properties(device).total_memory
    return PRESETS["gpu" if memory >= ROOM_FOR_GPU else "medium"]
