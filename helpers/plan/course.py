"""Where a run stands in its epochs after so many updates, also while its batch grows."""

from fractions import Fraction
from typing import NamedTuple


class ResumePoint(NamedTuple):
    """Where a run goes on: the epoch from 0, what to skip in it, and how much is left to do."""

    epoch: int
    micro_batches: int
    updates_left: int


class PlannedStage(NamedTuple):
    """What one stage of a ramp comes to in a run; tokens are None if none were given."""

    batch_size: int
    accumulation: int
    updates: int
    examples: int
    tokens: int | None


class Course(NamedTuple):
    """The micro-batches of an epoch, and how many of them each update takes.

    ``batches`` are those of one device in an epoch. ``windows`` has, for each stage of the run, the
    micro-batches of a full update and the updates that take so many, or None for all that follow.
    """

    batches: int
    windows: tuple[tuple[int, int | None], ...]

    def position(self, step: int) -> tuple[int, int]:
        """Return the epoch after so many updates, and its micro-batches that are used up."""
        epoch = used = 0
        for accumulation, updates in self.windows:
            here = step if updates is None else min(step, updates)
            to_end = -(-(self.batches - used) // accumulation)
            if here < to_end:
                used += here * accumulation
            else:
                # An update ends with its epoch, so every later epoch starts with a full one.
                per_epoch = -(-self.batches // accumulation)
                epochs, rest = divmod(here - to_end, per_epoch)
                epoch, used = epoch + 1 + epochs, rest * accumulation
            step -= here
        return epoch, used

    def updates_before(self, epoch: int) -> int:
        """Return the updates made when an epoch begins."""
        made = 0
        for accumulation, updates in self.windows:
            now, used = self.position(made)
            if now >= epoch:
                break
            needed = -(-(self.batches - used) // accumulation)
            needed += (epoch - now - 1) * -(-self.batches // accumulation)
            made += needed if updates is None else min(needed, updates)
        return made

    def epochs_after(self, step: int) -> Fraction:
        """Return the passes that so many updates make, each update of an epoch the same share."""
        epoch, _ = self.position(step)
        start = self.updates_before(epoch)
        return epoch + Fraction(step - start, self.updates_before(epoch + 1) - start)
