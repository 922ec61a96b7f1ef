"""A table that reads well as text, and is a real table in a notebook."""

import html
import itertools
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 80  # characters of a line that no page cuts
GAP = 2  # spaces between columns
NARROWEST = 16  # characters that a column of words keeps when the table is too wide
HUGE = 1e9  # from here on a measured number is written as a power of ten
LOST = "lost"
PADDING = "padding: 3px 12px"
NUMBER = re.compile(r"[-+−]?[\d,]*\.?\d+(e[-+]?\d+)?( ?%| [×±]÷? ?[\d.]+| (s|ms|h|[KMGT]i?B))?")


@dataclass(frozen=True, repr=False)
class Table:
    """A table of cells that are written out already; ``table`` makes it from values."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]

    def __repr__(self) -> str:
        blocks = _blocks(self._widths())
        return "\n\n".join((_filled(self.caption), *(self._block(block) for block in blocks)))

    def _widths(self) -> list[int]:
        """Return the widths of the columns: words give way, down to a point, and numbers do not."""
        columns = list(zip(*self.rows))
        widths = [
            max(_head_width(head), *map(len, cells)) for head, cells in zip(self.heads, columns)
        ]
        words = [place for place, numeric in enumerate(self.numeric) if not numeric]
        too_wide = sum(widths) + GAP * (len(widths) - 1) - WIDTH
        while too_wide > 0 and words:
            widest = max(words, key=widths.__getitem__)
            if widths[widest] <= NARROWEST:
                break
            taken = min(too_wide, widths[widest] - NARROWEST)
            widths[widest] -= taken
            too_wide -= taken
        return [min(width, WIDTH) for width in widths]

    def _block(self, chosen: dict[int, int]) -> str:
        """Return some columns as lines of text, given as {place: width}."""
        heads = self._lines(self.heads, chosen, from_below=True)
        rule = (" " * GAP).join("─" * width for width in chosen.values())
        body = (line for row in self.rows for line in self._lines(row, chosen))
        return "\n".join((*heads, rule, *body))

    def _lines(
        self, row: Sequence[str], chosen: dict[int, int], *, from_below: bool = False
    ) -> list[str]:
        """Return one row as lines; a cell of many words takes several."""
        cells = [textwrap.wrap(row[place], width) for place, width in chosen.items()]
        if from_below:
            tallest = max(map(len, cells))
            cells = [[""] * (tallest - len(cell)) + cell for cell in cells]
        lines = itertools.zip_longest(*cells, fillvalue="")
        return [
            (" " * GAP)
            .join(
                part.rjust(width) if self.numeric[place] else part.ljust(width)
                for part, (place, width) in zip(parts, chosen.items())
            )
            .rstrip()
            for parts in lines
        ]

    def _repr_html_(self) -> str:
        sides = ["right" if numeric else "left" for numeric in self.numeric]
        heads = "".join(
            f'<th scope="col" style="{PADDING}; text-align: {side}">{html.escape(head)}</th>'
            for head, side in zip(self.heads, sides)
        )
        body = "".join(f"<tr>{_row_html(row, sides)}</tr>" for row in self.rows)
        return (
            '<table><caption style="text-align: left; caption-side: top">'
            f"{html.escape(self.caption)}</caption>"
            f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        )


def table(rows: Sequence[Sequence[Any]], heads: Sequence[str], caption: str) -> Table:
    """Return a table with a caption, a head over each column, and a name before each row.

    ``heads`` carry the units, and the first value of a row is its name. Text stays as it is, yes
    and no stand for true and false, and None leaves a cell empty. Numbers may be those of Python,
    NumPy or torch: whole ones in full, others with as many digits as tell the values of their
    column apart, and powers of ten where a number is huge. NaN and infinity are a run that was
    lost. A column of numbers, also of those that are text, as in "12 %" or "3.1 ± 0.2", stands to
    the right. As text no line is longer than 80; columns that do not fit go below.

    Raises ``ValueError`` if there is no row, no caption, a head without a word, or a row of another
    length than ``heads``.

    >>> table([(4, 2.104), (64, float("nan"))], ("batch size", "loss (nats)"), "Final loss.")
    Final loss.
    <BLANKLINE>
    batch    loss
     size  (nats)
    ─────  ──────
        4    2.10
       64    lost
    """
    if not isinstance(caption, str) or not caption.strip():
        raise ValueError(f"caption must say what the table shows; got {caption!r}")
    if not all(isinstance(head, str) and head.strip() for head in heads):
        raise ValueError(f"heads must name every column; got {tuple(heads)!r}")
    values = [[_plain(value) for value in row] for row in rows]
    if not values:
        raise ValueError("rows must hold at least one row; got none")
    for row in values:
        if len(row) != len(heads):
            raise ValueError(
                f"rows must have a value for each of the {len(heads)} heads; got {len(row)}: {row}"
            )
    columns = [list(column) for column in zip(*values)]
    written = zip(*(_written(column) for column in columns))
    return Table(caption, tuple(heads), tuple(written), tuple(map(_is_numeric, columns)))


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a number of NumPy or torch as one of Python, and anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () else value


def _is_number(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_numeric(column: list[Any]) -> bool:
    cells = [value for value in column if value not in (None, "", LOST)]
    return bool(cells) and all(
        _is_number(value) or (isinstance(value, str) and NUMBER.fullmatch(value)) for value in cells
    )


def _written(column: list[Any]) -> list[str]:
    """Return the cells of a column; its numbers have the same number of digits after the point."""
    if any(isinstance(value, float) and math.isfinite(value) for value in column):
        column = [float(value) if _is_number(value) else value for value in column]
    digits = _digits([value for value in column if isinstance(value, float)])
    return [_cell(value, digits) for value in column]


def _digits(values: list[float]) -> int | None:
    """Return how many digits after the point a column needs, None where its values are too unlike.

    The largest has three digits at least and the smallest two, and two more if values look alike.
    """
    values = [value for value in values if 0 < abs(value) < HUGE]
    sizes = list(map(abs, values))
    if not sizes or max(sizes) >= 1000 * min(sizes) or max(sizes) < 1e-3:
        return None
    largest, smallest = (math.floor(math.log10(size)) for size in (max(sizes), min(sizes)))
    digits = max(0, 2 - largest, 1 - smallest)
    return next(
        (
            more
            for more in (digits, digits + 1, digits + 2)
            if len({f"{value:.{more}f}" for value in values}) == len(set(values))
        ),
        digits + 2,
    )


def _cell(value: Any, digits: int | None) -> str:  # noqa: ANN401
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not math.isfinite(value):
        return LOST
    if not _is_number(value):
        return str(value)
    if abs(value) >= (HUGE if isinstance(value, float) else 1e15):
        return f"{value:.2e}".replace("e+", "e")
    if isinstance(value, int):
        return f"{value:,}"
    if digits is not None:
        return f"{round(value, digits) + 0.0:,.{digits}f}"  # no -0.00
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _blocks(widths: list[int]) -> list[dict[int, int]]:
    """Return the columns that stand side by side, the first one in each block again."""
    blocks: list[dict[int, int]] = []
    for place, width in enumerate(widths[1:], start=1):
        used = sum(blocks[-1].values()) + GAP * len(blocks[-1]) if blocks else WIDTH
        if used + width > WIDTH:
            blocks.append({0: widths[0]})
        blocks[-1][place] = width
    return blocks or [{0: widths[0]}]


def _head_width(head: str) -> int:
    """Return the least width at which a head takes two lines at most, and breaks no word."""
    least = max(map(len, head.split()), default=1)
    return next(w for w in range(least, len(head) + 2) if len(textwrap.wrap(head, w)) <= 2)


def _filled(caption: str) -> str:
    return textwrap.fill(caption, WIDTH, break_long_words=False, break_on_hyphens=False)


def _row_html(row: tuple[str, ...], sides: list[str]) -> str:
    (name, first), *cells = zip(map(html.escape, row), sides)
    head = f'<th scope="row" style="{PADDING}; text-align: {first}">{name}</th>'
    return head + "".join(
        f'<td style="{PADDING}; text-align: {side}">{cell}</td>' for cell, side in cells
    )
