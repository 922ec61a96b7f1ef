"""What this machine is, and the model that fits it."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from helpers._checks import one_of, whole
from helpers.model import ModelConfig

GIB = 2**30


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
    """A shape of model that a machine trains in seconds, and AdamW rates worth trying on it.

    ``room`` is the memory that a card needs for it, in bytes: a pass over 256 windows in float32,
    and a tenth more.
    """

    name: str
    context: int
    width: int
    layers: int
    heads: int
    rates: tuple[float, ...]
    room: int

    def model(self, vocab_size: int) -> ModelConfig:
        """Return the configuration for a vocabulary of ``vocab_size`` tokens."""
        return ModelConfig(vocab_size, self.context, self.width, self.layers, self.heads)


_RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
# A ladder: 17 thousand parameters, 110 thousand, 1 million and 10 million. A wider model wants
# smaller rates.
_LARGE_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
_XL_RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
PRESETS = {
    size.name: size
    for size in (
        Preset("small", 32, 32, 1, 2, _RATES, room=GIB),
        Preset("medium", 64, 64, 2, 4, _RATES, room=GIB),
        Preset("large", 128, 128, 5, 4, _LARGE_RATES, room=2 * GIB),
        Preset("xl", 256, 320, 8, 5, _XL_RATES, room=12 * GIB),
    )
}


def preset(device: torch.device | str, name: str | None = None) -> Preset:
    """Return the preset that fits a device, or the one of a name.

    On a CPU it is "small" (17 thousand parameters), on CUDA "large" (1 million) if the card has
    room for it, and "medium" (110 thousand) if not. ``preset(device, "xl")`` is the one asked for,
    and so is ``preset("xl")``, wherever it runs then.

    Raises ``ValueError`` for a name that is not there, and for a card that is too small for the
    preset of that name.
    """
    if not isinstance(device, torch.device):
        return PRESETS[one_of("device", device, PRESETS)]
    if name is not None:
        one_of("name", name, PRESETS)
    if device.type != "cuda":
        return PRESETS[name or "small"]
    memory = torch.cuda.get_device_properties(device).total_memory
    if name is None:
        return PRESETS["large" if memory >= PRESETS["large"].room else "medium"]
    size = PRESETS[name]
    if memory < size.room:
        fitting = [repr(other.name) for other in PRESETS.values() if other.room <= memory]
        raise ValueError(
            f"name must be a preset that the card has room for; {name!r} needs "
            f"{size.room / GIB:.1f} GiB and the card has {memory / GIB:.1f} GiB, enough for "
            f"{' or '.join(fitting) or 'none'}"
        )
    return size
