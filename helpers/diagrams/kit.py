"""The drawing kit: boxes, arrows and words on a card of their own, as one SVG.

Coordinates are in pixels of a card that is 640 wide. It shrinks with its column; at 400 pixels the
smallest words still have 11. The card brings its own background, since neither the theme of
JupyterLab nor the switch of the site can be asked from inside a picture.
"""

import base64
import html
import math
import textwrap
from dataclasses import dataclass
from typing import NamedTuple

WIDTH = 640
SIZE = 18  # of words, in pixels
LEADING = 24  # from line to line
PAPER, EDGE, INK = "#ffffff", "#c9ced6", "#1f2933"
FONT = "Arial, Helvetica, 'Liberation Sans', 'DejaVu Sans', sans-serif"

Point = tuple[float, float]


class Tone(NamedTuple):
    """A colour in three strengths: of lines, of areas, and of words on either background."""

    line: str
    area: str
    words: str


TONES = {  # Okabe and Ito 2008, lightened for areas and darkened for words
    "grey": Tone("#767676", "#eef0f3", "#4b5563"),
    "ink": Tone(INK, "#eef0f3", INK),
    "blue": Tone("#0072B2", "#d9ebf6", "#005685"),
    "orange": Tone("#D55E00", "#fbe3d2", "#9a3c00"),
    "green": Tone("#009E73", "#d5f0e7", "#00604a"),
    "yellow": Tone("#B07A00", "#fbecc9", "#7a4f00"),
}


@dataclass(frozen=True, repr=False)
class Diagram:
    """A picture of an idea: it shows itself in a notebook, and reads as text elsewhere."""

    title: str
    alt: str
    svg: str

    def __repr__(self) -> str:
        return textwrap.fill(f"Diagram: {self.title}. {self.alt}", 80, subsequent_indent="  ")

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        # As an image: JupyterLab takes the elements of SVG out of a page that it does not trust.
        data = base64.b64encode(self.svg.encode("utf-8")).decode("ascii")
        alt = html.escape(f"{self.title}. {self.alt}")
        return (
            f'<img src="data:image/svg+xml;base64,{data}" alt="{alt}" width="{WIDTH}" '
            'style="max-width: 100%; height: auto">'
        )


class Drawing:
    """A card on which shapes and words are put, one after the other."""

    def __init__(self, title: str, alt: str, *, height: int) -> None:
        self.title, self.alt, self.height = title, alt, height
        self._parts: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        tone: str = "grey",
        *,
        radius: float = 10,
        dashed: bool = False,
    ) -> None:
        """Draw a rectangle with round corners, filled; (x, y) is its upper left corner."""
        look = f'fill="{TONES[tone].area}" {_stroke(tone, 2, dashed=dashed)}'
        place = f'x="{_short(x)}" y="{_short(y)}" width="{_short(width)}" height="{_short(height)}"'
        self._parts.append(f'<rect {place} rx="{_short(radius)}" {look}/>')

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """Draw a rectangle around other things, with nothing in it."""
        place = f'x="{_short(x)}" y="{_short(y)}" width="{_short(width)}" height="{_short(height)}"'
        self._parts.append(f'<rect {place} rx="10" fill="none" {_stroke("ink", 2)}/>')

    def dot(
        self, x: float, y: float, radius: float, tone: str = "ink", *, full: bool = True
    ) -> None:
        """Draw a disc in the tone of words, or where it is not ``full`` a ring."""
        colour = TONES[tone].words if full else PAPER
        place = f'cx="{_short(x)}" cy="{_short(y)}" r="{_short(radius)}"'
        self._parts.append(f'<circle {place} fill="{colour}" {_stroke(tone, 2)}/>')

    def line(
        self, *points: Point, tone: str = "ink", width: float = 2, dashed: bool = False
    ) -> None:
        """Draw a line through all points."""
        look = f'fill="none" {_stroke(tone, width, dashed=dashed)}'
        self._parts.append(f'<polyline points="{_path(points)}" {look}/>')

    def area(self, *points: Point, tone: str = "grey") -> None:
        """Fill what lies within the points."""
        look = f'fill="{TONES[tone].area}" {_stroke(tone, 1.5)}'
        self._parts.append(f'<polygon points="{_path(points)}" {look}/>')

    def arrow(self, *points: Point, tone: str = "ink", width: float = 2.5) -> None:
        """Draw a line through all points, with a head at the last."""
        (x0, y0), (x, y) = points[-2:]
        length = math.hypot(x - x0, y - y0)
        dx, dy = (x - x0) / length, (y - y0) / length
        foot = x - 11 * dx, y - 11 * dy
        head = ((x, y), *((foot[0] - side * dy, foot[1] + side * dx) for side in (6, -6)))
        self.line(*points[:-1], foot, tone=tone, width=width)
        self._parts.append(f'<polygon points="{_path(head)}" fill="{TONES[tone].line}"/>')

    def words(
        self,
        x: float,
        y: float,
        text: str,
        *,
        tone: str = "ink",
        anchor: str = "middle",
        bold: bool = False,
        size: int = SIZE,
    ) -> None:
        """Write lines of text; y is the foot of the first, x its "start", "middle" or "end"."""
        weight = ' font-weight="bold"' if bold else ""
        for number, line in enumerate(text.split("\n")):
            self._parts.append(
                f'<text x="{_short(x)}" y="{_short(y + number * LEADING)}" font-size="{size}" '
                f'text-anchor="{anchor}" fill="{TONES[tone].words}"{weight}>'
                f"{html.escape(line)}</text>"
            )

    def badge(self, x: float, y: float, text: str, tone: str) -> None:
        """Write a number or a sign in white on a disc around (x, y)."""
        self.dot(x, y, 14, tone)
        self._parts.append(
            f'<text x="{_short(x)}" y="{_short(y + 6.5)}" font-size="{SIZE}" text-anchor="middle" '
            f'fill="{PAPER}" font-weight="bold">{html.escape(text)}</text>'
        )

    def done(self) -> Diagram:
        """Return the finished picture."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
            f'width="{WIDTH}" role="img" style="max-width: 100%; height: auto" '
            f'font-family="{FONT}">\n<title>{html.escape(self.title)}</title>\n'
            f"<desc>{html.escape(self.alt)}</desc>"
        )
        card = (
            f'<rect x="1" y="1" width="{WIDTH - 2}" height="{self.height - 2}" rx="14" '
            f'fill="{PAPER}" stroke="{EDGE}" stroke-width="1.5"/>'
        )
        return Diagram(self.title, self.alt, "\n".join((head, card, *self._parts, "</svg>")))


def _stroke(tone: str, width: float, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="6 5"' if dashed else ""
    return (
        f'stroke="{TONES[tone].line}" stroke-width="{_short(width)}" '
        f'stroke-linejoin="round" stroke-linecap="round"{dashes}'
    )


def _path(points: tuple[Point, ...]) -> str:
    return " ".join(f"{_short(x)},{_short(y)}" for x, y in points)


def _short(number: float) -> str:
    """Write a number with one digit after the point, so that all machines write the same."""
    return f"{number + 0.0:.1f}".removesuffix(".0")
