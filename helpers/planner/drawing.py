"""The two pictures of the planner, as SVG: the learning rate, and the memory against a card.

Colours of lines and words are left to the page's style, so that they suit light and dark. Every
picture has its width in the pixels that the page has for it, and a text alternative.
"""

from collections.abc import Callable, Sequence
from html import escape

from helpers.footprint import COLOURS, MOMENTS, PARTS, Breakdown, gib

GIB = 2**30


def ticks(most: float, about: int = 5) -> list[float]:
    """Return round numbers from zero to ``most``, some five of them.

    >>> ticks(75), ticks(0.0002, about=2)
    ([0.0, 20.0, 40.0, 60.0], [0.0, 0.0001, 0.0002])
    """
    exponent = int(f"{most / about:e}".partition("e")[2])
    steps = [float(f"{digit}e{exponent}") for digit in (1, 2, 5, 10)]
    step = next(step for step in steps if step * about >= most * (1 - 1e-9))
    return [float(f"{step * number:.6g}") for number in range(int(most / step * (1 + 1e-9)) + 1)]


def _picture(width: int, height: int, alternative: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(alternative)}">'
        f"{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, words: str, *, at: str = "start", look: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{at}" class="{look}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, look: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{look}"/>'


def _upright_axis(
    most: float, right: float, place: Callable[[float], float], left: float
) -> list[str]:
    parts = []
    for value in ticks(most):
        y = place(value)
        parts += [_line(left, y, right, y, "grid"), _text(left - 6, y + 4, f"{value:g}", at="end")]
    return parts


def rate_picture(points: Sequence[tuple[int, float]], rate: float, words: str, width: int) -> str:
    """Return the learning rate over the updates of a run.

    ``points`` are (update, factor on ``rate``), in order; ``words`` is the text alternative.
    """
    height, left, right, top, bottom = 240, 64, width - 14, 30, 198
    last = points[-1][0]

    def across(update: float) -> float:
        return left + (right - left) * (update - 1) / max(last - 1, 1)

    def up(value: float) -> float:
        return bottom - (bottom - top) * value / rate

    marks = [max(1, round(tick)) for tick in ticks(last, about=max(2, width // 90))]
    line = " ".join(f"{across(update):.1f},{up(rate * factor):.1f}" for update, factor in points)
    dot = [] if last > 1 else [f'<circle cx="{left}" cy="{up(rate * points[0][1]):.1f}" r="4"/>']
    return _picture(
        *(width, height, words),
        [
            _text(0, 14, "learning rate"),
            *_upright_axis(rate, right, up, left),
            _line(left, bottom, right, bottom, "axis"),
            *(_text(across(mark), bottom + 18, f"{mark:,}", at="middle") for mark in marks),
            _text(right, height - 6, "update of the weights", at="end"),
            f'<polyline points="{line}" class="curve"/>',
            *dot,
        ],
    )


def memory_picture(needed: Breakdown, card: float, words: str, width: int) -> str:
    """Return the bytes at the fullest instant of each moment of a step, beside a card's.

    ``card`` is in bytes; ``words`` is the text alternative.
    """
    left, right, first, each = 2, width - 10, 64, 50
    most = max(needed.peak, card) / GIB
    height = first + each * len(needed.moments) + 44

    def across(count: float) -> float:
        return left + (right - left) * count / GIB / most

    bottom = height - 40
    parts = _legend(width)
    for tick in ticks(most, about=max(2, width // 130)):
        x = across(tick * GIB)
        parts += [_line(x, first - 4, x, bottom, "grid")]
        parts += [_text(max(x, 4), bottom + 16, f"{tick:g}", at="middle" if tick else "start")]
    parts.append(_text(right, height - 6, "GiB on one device", at="end"))
    for row, moment in enumerate(MOMENTS):
        parts += _bar(needed, moment, first + each * row, across)
    x = across(card)
    at_right = x > width / 2
    parts.append(_line(x, first - 10, x, bottom, "card"))
    name = f"the card: {gib(card)}"
    parts.append(_text(x, first - 14, name, at="end" if at_right else "start", look="strong"))
    return _picture(width, height, words, parts)


def _legend(width: int) -> list[str]:
    parts, x, y = [], 2.0, 14
    for part, colour in zip(PARTS, COLOURS):
        length = 24 + 7.2 * len(part)
        if x + length > width:
            x, y = 2.0, y + 18
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 16, y, part))
        x += length
    return parts


def _bar(needed: Breakdown, moment: str, y: float, across: Callable[[float], float]) -> list[str]:
    counts = needed.moments[moment]
    parts = [_text(2, y + 14, f"{moment}: {gib(sum(counts.values()))}")]
    start = 0
    for part, colour in zip(PARTS, COLOURS):
        x, end = across(start), across(start + counts[part])
        start += counts[part]
        parts.append(
            f'<rect x="{x:.1f}" y="{y + 19:.1f}" width="{end - x:.1f}" height="18" '
            f'fill="{colour}" class="bar"><title>{part}: {gib(counts[part])}</title></rect>'
        )
    return parts
