"""The examples in each update of an epoch, in three numbers."""

from collections.abc import Sequence
from typing import overload


class UpdateSizes(Sequence[int]):
    """The examples in each update of one epoch, without a list as long as the epoch.

    All updates but the last hold ``full`` examples. It compares equal to a tuple of the same
    numbers.
    """

    __slots__ = ("count", "full", "last")

    def __init__(self, count: int, full: int, last: int) -> None:
        self.count, self.full, self.last = count, full, last

    def __len__(self) -> int:
        return self.count

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        positions = range(self.count)[index]
        if isinstance(positions, range):
            return tuple(self[position] for position in positions)
        return self.last if positions == self.count - 1 else self.full

    def __eq__(self, other: object) -> bool:
        if isinstance(other, UpdateSizes):
            mine = (self.count, self.last, self.full if self.count > 1 else self.last)
            return mine == (other.count, other.last, other.full if other.count > 1 else other.last)
        if isinstance(other, tuple):
            return len(other) == self.count and all(a == b for a, b in zip(self, other))
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.count, self.last))

    def __repr__(self) -> str:
        if self.count <= 6:
            return repr(tuple(self))
        return f"({self.full}, {self.full}, ..., {self.full}, {self.last}) [{self.count:,} updates]"
