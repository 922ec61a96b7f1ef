"""What an out-of-memory error says: how much was asked, and the likely cause. No torch here."""

import re
from dataclasses import dataclass, replace

from helpers._words import percent
from helpers.footprint import gib

# Where PyTorch writes KB, it has divided by 1,024 as well.
_POWERS = {"bytes": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE = r"(\d[\d,]*(?:\.\d+)?) ?(bytes|[KMGT]i?B|B)\b"

# Each part of the message, in the words of the versions and devices; {} is where its size stands.
ASKED = r"ried to allocate {}|Requested ?: {}|Invalid buffer size: {}"
_ALLOCATED = r"{} is allocated by PyTorch|{} already allocated|(?:MPS|Currently) allocated ?: {}"
_IDLE = r"{} is reserved by PyTorch but unallocated|{} cached"  # torch 1.1 to 1.3 say cached
_RESERVED = r"{} reserved in total by PyTorch"  # torch 1.4 to 2.0
_FREE = r"{}(?: is)? free|Free \(according to CUDA\) ?: {}"
_CAPACITY = r"total capaci?ty of {}|{} total capaci?ty|Device limit ?: {}"  # 2.1 leaves out the i
_ALLOWED = r"max allowed: {}|{} allowed|user-supplied memory fraction\) ?: {}"
_PROCESS = r"this process has {}"
_OTHER = r"other allocations: {}"
_AT_ONCE = r"memory block with size larger|Invalid buffer size"
_START = (
    r"(?=\b(?:[A-Z]{2,4}|MPS backend) out of memory|Allocation on device|Out of memory by a limit"
    r"|DefaultCPUAllocator|Current platform can NOT allocate|Invalid buffer size)"
)
_KNOWN = rf"out of memory|OutOfMemoryError|DefaultCPUAllocator|_STATUS_ALLOC_FAILED|{_AT_ONCE}"


def size_in(message: str, pattern: str) -> int | None:
    """Return the bytes that stand in the place of {} in a pattern; None where it does not occur."""
    found = re.search(pattern.replace("{}", _SIZE), message)
    if found is None:
        return None
    number, unit = (part for part in found.groups() if part is not None)
    power = _POWERS.get(unit.lower(), _POWERS[unit[0].lower()])
    return round(float(number.replace(",", "")) * 2**power)


def says_out_of_memory(message: str) -> bool:
    """Return whether ``explain_oom`` knows the message: memory ran out, on any device."""
    return re.search(_KNOWN, message, re.IGNORECASE) is not None or (
        size_in(message, ASKED) is not None
    )


@dataclass(frozen=True)
class OutOfMemory:
    """What the message of an out-of-memory error says, in bytes; None where it does not.

    ``asked`` was refused. ``allocated`` was in use by tensors, ``unallocated`` is reserved by
    PyTorch and in no use, ``free`` was left on the device, of ``capacity`` in all. ``process`` is
    all that this process held, CUDA's own memory included, as ``nvidia-smi`` shows it. ``allowed``
    is a limit set for the process. ``outside`` is in use on the device and not by this run: by
    other processes, and where the message has no ``process``, by CUDA itself.

    ``cause`` is "full", "too large" (one tensor), "fragmented", "others" (other processes),
    "limit" or "unknown", and ``advice`` says what to do.
    """

    asked: int | None
    allocated: int | None
    unallocated: int | None
    free: int | None
    process: int | None
    cause: str
    advice: str
    capacity: int | None = None
    allowed: int | None = None
    outside: int | None = None

    @property
    def idle_share(self) -> float | None:
        """The share of what PyTorch has reserved that is in no use."""
        if self.unallocated is None:
            return None
        return self.unallocated / max(self.unallocated + (self.allocated or 0), 1)

    @property
    def known(self) -> dict[str, int]:
        """What the message says, in bytes, by what it is in words."""
        words = {
            "asked for": self.asked,
            "in use": self.allocated,
            "reserved but unallocated": self.unallocated,
            "held by this process": self.process,
            "outside this run": self.outside,
            "free on the device": self.free,
            "allowed": self.allowed,
            "on the device in all": self.capacity,
        }
        return {name: size for name, size in words.items() if size is not None}

    def __repr__(self) -> str:
        known = ", ".join(f"{name} {gib(size)}" for name, size in self.known.items())
        return f"OutOfMemory, {self.cause}: {known or 'no numbers'}\n  {self.advice}"


def explain_oom(message: str) -> OutOfMemory:
    """Read the message of an out-of-memory error of PyTorch 1.1 or later, on any of its devices.

    On CUDA (with either allocator), HIP, XPU, MPS or a CPU; text around it does not matter, and of
    several messages the first with numbers counts. A cause is named only if the numbers carry it:

    too large
        More was asked for than the device has.
    fragmented
        What is reserved and idle would do, with what is free, though not in one piece; and it is
        more than a little: over a twentieth of the device, or over a fiftieth and all that was
        asked for. (A rest of some pieces is idle on every full device.)
    others
        The device is full, and more than was asked for, and than a tenth of it, is outside this
        run.
    full
        The device is full, and none of these. A CPU says no more than that it is.
    limit
        The device has room, and a limit that the message names does not.
    unknown
        The rest: mostly a device with room that refuses all the same.

    Raises ``ValueError`` for a message of another kind.
    """
    if not isinstance(message, str):
        raise TypeError(f"message must be the text of an error; got {message!r}")
    if not says_out_of_memory(message):
        raise ValueError(f"message must be that of an out-of-memory error; got {message[:200]!r}")
    text = _one_of_them(" ".join(message.split()))
    found = _numbers(text)
    found = replace(found, cause=_cause(text, found))
    return replace(found, advice=_advice(text, found))


def _one_of_them(text: str) -> str:
    """Return the first message that has numbers in it, so that two are never mixed."""
    parts = re.split(_START, text)
    told = [one for one in parts if size_in(one, f"{ASKED}|{_ALLOWED}") is not None]
    return told[0] if told else text


def _numbers(text: str) -> OutOfMemory:
    """Return the parts of one message; None for what it does not say, or cannot mean."""
    asked, allocated, free = (size_in(text, pattern) for pattern in (ASKED, _ALLOCATED, _FREE))
    capacity, allowed = size_in(text, _CAPACITY), size_in(text, _ALLOWED)
    idle, reserved = size_in(text, _IDLE), size_in(text, _RESERVED)
    if reserved is not None and allocated is not None:
        idle = max(reserved - allocated, 0)
    process = size_in(text, _PROCESS)
    if process is not None and process > (capacity or 0):
        process = None  # where processes cannot see each other, CUDA may report nonsense
    if allowed is not None and capacity is not None and allowed >= capacity:
        allowed = None  # no limit was set
    ours = process
    if ours is None and allocated is not None:
        ours = allocated + (idle or 0)
    outside = size_in(text, _OTHER)
    if None not in (capacity, free, ours) and capacity - free >= ours:
        outside = capacity - free - ours
    return OutOfMemory(asked, allocated, idle, free, process, "", "", capacity, allowed, outside)


def _cause(text: str, found: OutOfMemory) -> str:
    asked, capacity, allowed = found.asked, found.capacity, found.allowed
    if "DefaultCPUAllocator" in text:
        return "full"
    if re.search(_AT_ONCE, text):
        return "too large"
    if capacity is None:
        return "unknown" if allowed is None else "limit"
    if asked is None:
        return "unknown"
    if asked > capacity:
        return "too large"
    idle = found.unallocated or 0
    ours = (found.allocated or 0) + idle
    left = max(capacity - ours, 0) if found.free is None else found.free  # at most
    room = left if allowed is None else min(left, max(allowed - ours, 0))
    crowded = left < max(asked, capacity // 50)  # a little is left on every full device
    much = idle > capacity // 20 or (idle >= asked and idle > capacity // 50)
    if (crowded or room < asked) and much and idle + room >= asked:
        return "fragmented"
    if crowded:
        # Without either number, what is outside may be this run's own, reserved and idle.
        known = found.unallocated is not None or found.process is not None
        return "others" if known and (found.outside or 0) > max(asked, capacity // 10) else "full"
    return "limit" if room < asked else "unknown"


LESS = (
    "Make the micro-batch smaller and accumulate, checkpoint activations, use a shorter context, "
    "or train adapters on a quantized base."
)
MACHINE = (
    "The machine, or a limit set for its processes, has no more. Make the micro-batch smaller, and "
    "end other programs."
)
UNKNOWN = (
    "The numbers name no cause. It may be a limit of the driver or a quota, one allocation larger "
    "than the device allows at once, or another process that took the memory for a moment. If a "
    "smaller micro-batch runs, the device was full."
)


def _advice(text: str, found: OutOfMemory) -> str:
    """Return what to do about the cause, with the numbers that it rests on."""
    if "DefaultCPUAllocator" in text:
        return MACHINE
    if found.cause == "unknown":
        return UNKNOWN if found.free is None else f"The device has room. {UNKNOWN}"
    make = {
        "too large": _too_large, "fragmented": _fragmented, "others": _others, "full": _full,
        "limit": _limit,
    }  # fmt: skip
    return make[found.cause](text, found)


def _too_large(text: str, found: OutOfMemory) -> str:
    most = f"the {gib(found.capacity)} of the whole device" if found.capacity else "the device"
    if re.search(_AT_ONCE, text):
        most = "what the device allows at once"
    size = "" if found.asked is None else f" of {gib(found.asked)}"
    return (
        f"One tensor{size} is larger than {most}. Look for one that grows with the "
        f"square of the context or with the vocabulary."
    )


def _fragmented(text: str, found: OutOfMemory) -> str:
    reserved = found.unallocated + (found.allocated or 0)
    if "cached" in text:
        way = "Take a newer PyTorch"
    elif "reserved in total" in text:  # before torch 2.1
        way = "Set PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 before the start"
    else:
        name = "HIP" if "HIP out of memory" in text else "CUDA"
        way = f"Set PYTORCH_{name}_ALLOC_CONF=expandable_segments:True before the start"
    return (
        f"There is enough memory, though not in one piece: of the {gib(reserved)} that PyTorch has "
        f"reserved {gib(found.unallocated)} lie idle, {percent(found.idle_share)}. {way}, "
        f"and keep lengths alike."
    )


def _used(found: OutOfMemory) -> str:
    if found.free is None:
        return f"{gib(found.allocated or 0)} of {gib(found.capacity)} are in use by this run"
    return f"{percent(1 - found.free / found.capacity)} of {gib(found.capacity)} is in use"


def _others(_: str, found: OutOfMemory) -> str:
    return (
        f"{_used(found)}, and {gib(found.outside)} of that outside this run. End the other "
        f"processes, or take another device."
    )


def _full(_: str, found: OutOfMemory) -> str:
    some = (found.outside or 0) > found.capacity // 20
    rest = f" {gib(found.outside)} of that are not in tensors of this run." if some else ""
    return f"The device is full: {_used(found)}.{rest} {LESS}"


def _limit(text: str, found: OutOfMemory) -> str:
    said = f"A limit of {gib(found.allowed)} is set for this process."
    if "MPS" in text:
        return (
            f"{said} {LESS} PYTORCH_MPS_HIGH_WATERMARK_RATIO raises it, and the machine may then "
            f"come to a halt."
        )
    return f"{said} Raise the limit, or make the micro-batch smaller."
