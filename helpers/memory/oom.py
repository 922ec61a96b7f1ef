"""What an out-of-memory error says: whether it is one, how much was asked, and the likely cause."""

import re
from dataclasses import dataclass

import torch

from helpers.footprint import gib

_UNITS = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = rf"([\d.]+) ({'|'.join(_UNITS)})"
ASKED = "ried to allocate {}"


def size_in(message: str, pattern: str) -> int | None:
    """Return the bytes that stand in the place of {} in a pattern; None where it does not occur."""
    found = re.search(pattern.format(_SIZE), message)
    return None if found is None else round(float(found[1]) * _UNITS[found[2]])


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out: on an accelerator, by a limit, or for the CPU's allocator."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


@dataclass(frozen=True)
class OutOfMemory:
    """What the message of an out-of-memory error says, in bytes; None where it does not.

    ``asked`` was refused. ``allocated`` was in use by tensors, ``unallocated`` is reserved by
    PyTorch and in no use, ``free`` was left on the device. ``process`` is all that this process
    held, CUDA's own memory included, as ``nvidia-smi`` shows it. ``cause`` is "full", "fragmented"
    or "limit", and ``advice`` says what to do.
    """

    asked: int | None
    allocated: int | None
    unallocated: int | None
    free: int | None
    process: int | None
    cause: str
    advice: str

    def __repr__(self) -> str:
        words = {
            "asked for": self.asked,
            "in use": self.allocated,
            "reserved but unallocated": self.unallocated,
            "held by this process": self.process,
            "free on the device": self.free,
        }
        known = ", ".join(f"{name} {gib(size)}" for name, size in words.items() if size is not None)
        return f"OutOfMemory, {self.cause}: {known}\n  {self.advice}"


FULL = (
    "The device is full. Make the micro-batch smaller and accumulate, checkpoint activations, use "
    "a shorter context, or train adapters on a quantized base."
)
TOO_LARGE = (
    "One tensor is larger than the whole device. Look for one that grows with the square of the "
    "context or with the vocabulary."
)
FRAGMENTED = (
    "There is enough memory, though not in one piece. Set PYTORCH_CUDA_ALLOC_CONF="
    "expandable_segments:True before the start, and keep lengths alike."
)
LIMIT = "The device has room, but a limit set for this process does not. Raise the limit."
OTHERS = "Other processes hold {} of the device. End them, or take another device."
MACHINE = (
    "The machine, or a limit set for its processes, has no more. Make the micro-batch smaller, and "
    "end other programs."
)


def explain_oom(message: str) -> OutOfMemory:
    """Read the message of an out-of-memory error of PyTorch, on CUDA or a CPU.

    The likely cause is "fragmented" if what is reserved and free would do, though not in one piece,
    and over a twentieth of the device is reserved and idle; "limit" if the device was not full with
    this process, but a limit or another process had the rest; and "full" otherwise.

    Raises ``ValueError`` for a message of another kind.
    """
    if not isinstance(message, str):
        raise TypeError(f"message must be the text of an error; got {message!r}")
    asked, allowed = size_in(message, ASKED), size_in(message, "{} allowed")
    if asked is None and allowed is None:
        raise ValueError(f"message must be that of an out-of-memory error; got {message[:200]!r}")
    allocated = size_in(message, "{} (?:is allocated by PyTorch|already allocated)")
    unallocated = size_in(message, "{} is reserved by PyTorch but unallocated")
    reserved = size_in(message, "{} reserved in total by PyTorch")  # before torch 2.1
    if reserved is not None and allocated is not None:
        unallocated = reserved - allocated
    free = size_in(message, "{}(?: is)? free")
    capacity = size_in(message, "total capacity of {}") or size_in(message, "{} total capacity")
    process = size_in(message, "this process has {}")
    if process is not None and process > (capacity or 0):
        process = None  # where processes cannot see each other, CUDA may report nonsense
    if "DefaultCPUAllocator" in message:
        cause = "full", MACHINE
    elif free is None or capacity is None:
        cause = ("full", FULL) if allowed is None else ("limit", LIMIT)
    else:
        ours = (allocated or 0) + (unallocated or 0)
        room = free if allowed is None else min(free, max(allowed - ours, 0))
        others = capacity - free - (process or ours)
        cause = _cause(asked, unallocated or 0, room, free, capacity, others)
    return OutOfMemory(asked, allocated, unallocated, free, process, *cause)


def _cause(
    asked: int, unallocated: int, room: int, free: int, capacity: int, others: int
) -> tuple[str, str]:
    if asked > capacity:
        return "full", TOO_LARGE
    # On a full device a small rest lies idle as well, and the next tensor would have run out.
    if unallocated > capacity // 20 and unallocated + room >= asked:
        return "fragmented", FRAGMENTED
    if free >= asked:
        return "limit", LIMIT
    if others > max(asked, capacity // 10):  # less may be CUDA's own
        return "limit", OTHERS.format(gib(others))
    return "full", FULL
