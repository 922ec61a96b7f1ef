"""What fits on a card: the memory of a setting, and the largest batch for it and for others."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from helpers._checks import exact, positive
from helpers.footprint import MOMENTS, PARTS, estimate, gib
from helpers.planner.drawing import memory_picture

MOST = 1024  # no larger batch is looked for
METHODS = {
    "all weights, bfloat16": {},
    "all weights, mixed precision": {"precision": "mixed"},
    "all weights, 8-bit AdamW": {"optimizer": "adamw-8bit"},
    "adapters of rank 16": {"trainable": "lora", "rank": 16},
    "adapters of rank 16 on 4 bits": {"trainable": "lora", "rank": 16, "base_bits": 4},
}

SAME = ("shape", "context", "checkpointing", "attention", "devices", "shard")


def fit(of: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Return the memory of a setting against a card: in bytes, in words, and as a picture.

    ``of`` holds the arguments of ``estimate``, the ``accumulation``, the ``card`` in GB (10⁹
    bytes), and ``spare``, the share of the card that is to be left free.
    """
    how = {name: one for name, one in of.items() if one is not None}
    card, spare = positive("card", how.pop("card")) * 1e9, _spare(how.pop("spare"))
    accumulation, room = how.pop("accumulation"), card * (1 - spare)
    how |= {name: int(how[name]) for name in ("base_bits", "shard") if name in how}
    needed = estimate(**how)
    size = how.pop("batch_size")
    largest = largest_batch(room, **how)
    words = f"{gib(needed.peak)} at its fullest, in the {needed.when}; a card of {gib(card)}."
    same = {name: how[name] for name in SAME}
    return {
        "bytes": {moment: needed.moments[moment] for moment in MOMENTS},
        "peak": needed.peak,
        "needed": gib(needed.peak),
        "card": gib(card),
        "fits": needed.peak <= room,
        "largest": largest,
        "notes": list(needed.notes),
        "verdict": _verdict(needed.peak, room, size * accumulation, largest),
        "moments": ["", *MOMENTS],
        "rows": [
            *([part, *(gib(needed.moments[one][part]) for one in MOMENTS)] for part in PARTS),
            ["together", *(gib(sum(needed.moments[one].values())) for one in MOMENTS)],
        ],
        "methods": [
            [name, _at_most(largest_batch(room, **same, **method))]
            for name, method in METHODS.items()
        ],
        "words": words,
        "picture": memory_picture(needed, card, words, width),
    }


def _spare(value: float) -> float:
    if not 0 <= exact("spare", value) < 1:
        raise ValueError(f"spare must be a share from 0% to below 100%; got {value!r}")
    return value


@lru_cache(maxsize=256)
def largest_batch(room: float, **how: Any) -> int:  # noqa: ANN401
    """Return the largest batch, up to ``MOST``, whose peak is at most ``room`` bytes; 0 for none.

    ``how`` holds the other arguments of ``estimate``.
    """
    low, high = 0, MOST + 1
    while high - low > 1:  # a larger batch never needs less
        middle = (low + high) // 2
        if estimate(batch_size=middle, **how).peak <= room:
            low = middle
        else:
            high = middle
    return low


def _at_most(largest: int) -> str:
    if largest == 0:
        return "none"
    return f"{largest:,} or more" if largest == MOST else f"{largest:,}"


def _verdict(peak: int, room: float, share: int, largest: int) -> str:
    """Return whether it fits, and what would; ``share`` is a device's part of an update."""
    words = f"{gib(peak)} of the {gib(room)} that may be used. "
    if peak <= room:
        return f"It fits: {words}The largest batch on a device is {_at_most(largest)}."
    if largest == 0:
        return f"It does not fit: {words}No batch does, so another method or card is needed."
    smaller = next(size for size in range(min(largest, share), 0, -1) if share % size == 0)
    return (
        f"It does not fit: {words}The largest batch on a device is {_at_most(largest)}. With "
        f"{smaller:,} and accumulation {share // smaller:,} it fits, and the run stays the same."
    )
