"""Steps of training that really run: the peak of each, by part."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike

import torch

from helpers._checks import whole
from helpers.device import pick
from helpers.footprint import Breakdown, gib
from helpers.memory.tracker import Instant, Tracker, fullest, tracking


@dataclass(frozen=True)
class Measurement:
    """What ``measure`` saw of each step.

    ``steps`` has a ``Breakdown`` for each. ``timeline`` has every instant of the last step at which
    a tensor was made or read: its moment, and the bytes by part. ``allocator`` has the CUDA
    allocator's own peaks of each step, as "active", "allocated" and "reserved" bytes, and is empty
    on a CPU.
    """

    steps: tuple[Breakdown, ...]
    timeline: tuple[Instant, ...]
    allocator: tuple[dict[str, int], ...]

    @property
    def first(self) -> Breakdown:
        """The first step, whose optimizer has no states before its update."""
        return self.steps[0]

    @property
    def later(self) -> Breakdown:
        """The fullest of the other steps: what a run needs."""
        return max(self.steps[1:])

    def __repr__(self) -> str:
        first, later = gib(self.first.peak), gib(self.later.peak)
        return f"Measurement: {first} in the first step, {later} later\n  {self.later!r}"


def measure(
    step: Callable[[], object],
    *,
    steps: int = 3,
    device: str | None = None,
    snapshot: str | PathLike[str] | None = None,
) -> Measurement:
    """Run ``step()`` a few times and return the peak of memory of each, by what it was for.

    ``step`` makes one whole update, with as many micro-batches as it likes. What a model holds is
    known once it is called, and what an optimizer holds once it has made an update, so the first
    step counts apart. Counted are tensors on ``device``, "cuda" where there is one; on CUDA the
    allocator's own peaks besides, and with ``snapshot`` the path of a file for
    https://pytorch.org/memory_viz. Tensors of which nobody tells PyTorch's tracker, such as a data
    set made before, are seen by the allocator alone. The tracker's hooks hold on to a forward pass
    that no backward pass follows: put an evaluation under ``torch.no_grad()``.

    Raises ``ValueError`` for fewer than two steps, a snapshot without CUDA, and steps that make no
    tensor on the device.
    """
    whole("steps", steps, at_least=2)
    kind = pick(device).type
    if snapshot is not None and kind != "cuda":
        raise ValueError(f"snapshot is for the CUDA allocator; got {snapshot!r} on {kind!r}")
    found: list[Breakdown] = []
    allocator: list[dict[str, int]] = []
    with _history(snapshot), tracking(Tracker(kind)) as tracker:
        for _ in range(steps):
            if kind == "cuda":
                torch.cuda.reset_peak_memory_stats()
            step()
            timeline = tracker.end_step()
            moments = fullest(timeline)
            if not moments:
                raise ValueError(f"step must make tensors on {kind!r}; it made none")
            found.append(Breakdown(moments))
            if kind == "cuda":
                allocator.append(_allocator_peaks())
    return Measurement(tuple(found), tuple(timeline), tuple(allocator))


def _allocator_peaks() -> dict[str, int]:
    torch.cuda.synchronize()
    peaks = torch.cuda.memory_stats()
    names = ("active", "allocated", "reserved")
    return {name: peaks[f"{name}_bytes.all.peak"] for name in names}


@contextmanager
def _history(path: str | PathLike[str] | None) -> Iterator[None]:
    if path is None:
        yield
        return
    torch.cuda.memory._record_memory_history()
    try:
        yield
        torch.cuda.memory._dump_snapshot(str(path))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
