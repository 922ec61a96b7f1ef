"""The line through peaks of memory at several batch sizes, and the batch that it leads to."""

from collections.abc import Sequence
from statistics import linear_regression
from typing import NamedTuple

from helpers._checks import positive, whole
from helpers.footprint.breakdown import gib


class Line(NamedTuple):
    """Bytes that are there whatever the batch, and bytes that each example adds."""

    fixed: float
    slope: float

    def largest_on(self, card: float) -> int:
        """Return the largest batch size whose peak is at most ``card`` bytes.

        Leave a margin in ``card``, such as a tenth: for fragments, and what libraries hold. A batch
        far beyond those measured rests on the line going on; ``largest_batch`` tries it.

        Raises ``ValueError`` if not even one example fits.
        """
        room = positive("card", card)
        largest = int((room - self.fixed) // self.slope)
        if largest < 1:
            raise ValueError(
                f"card must hold one example; that needs {gib(self.fixed + self.slope)}, and card "
                f"has {gib(room)}"
            )
        return largest


def fixed_and_slope(batch_sizes: Sequence[int], peaks: Sequence[float]) -> Line:
    """Fit peak = fixed + slope × batch size; return both, in bytes and bytes an example.

    Least squares. Give peaks of later steps, all at the same moment: below some batch size the
    update is the fullest, and the batch does not matter there.

    Raises ``ValueError`` for fewer than two different sizes, for peaks that do not rise or leave
    nothing fixed, and for peaks of which one lies more than 5 % from the line.

    >>> fixed_and_slope([1, 2], [130, 160])
    Line(fixed=100.0, slope=30.0)
    >>> fixed_and_slope([1, 2], [130, 160]).largest_on(1000)
    30
    """
    sizes = [whole("batch_sizes", size) for size in batch_sizes]
    if len(set(sizes)) < 2:
        raise ValueError(f"batch_sizes must hold two different sizes or more; got {sizes}")
    if len(peaks) != len(sizes):
        raise ValueError(
            f"peaks must hold one number for each of the {len(sizes)} batch sizes; got {len(peaks)}"
        )
    slope, fixed = linear_regression(sizes, peaks)
    if slope <= 0:
        raise ValueError(f"peaks must rise with the batch size; got {list(peaks)}")
    if fixed <= 0:
        raise ValueError(
            f"peaks must leave something fixed; got {fixed:,.0f} bytes at batch size 0"
        )
    for size, peak in zip(sizes, peaks):
        if abs(fixed + slope * size - peak) > 0.05 * peak:
            raise ValueError(
                f"peaks must lie on one line, within 5 %; that of batch size {size:,} is "
                f"{peak:,.0f} where the line has {fixed + slope * size:,.0f}"
            )
    return Line(fixed, slope)
