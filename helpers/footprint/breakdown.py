"""The answer: bytes by moment of a step and by what they are for."""

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from helpers._checks import one_of, whole

PARTS = ("parameters", "gradients", "states", "activations", "temporary")
MOMENTS = ("forward", "backward", "update")
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#767676")  # Okabe and Ito 2008, and grey


def gib(count: float) -> str:
    """Write a number of bytes with the largest unit of which it has one or more."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(count) >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count:,.0f} B"


@dataclass(frozen=True)
class Breakdown:
    """The bytes on one device in a step of training, by what they are for.

    ``moments`` holds the fullest instant of the "forward" pass, the "backward" pass and the
    "update", each as bytes by part:

    parameters
        The weights, and buffers with them.
    gradients
        Of the parameters alone.
    states
        What the optimizer keeps from step to step; float32 master weights are among it.
    activations
        What the forward pass has made and is still there, the batch itself included.
    temporary
        What the backward pass or the update makes and throws away.

    ``peak`` is the most of all together, and ``at_peak`` the bytes by part at that moment, which
    add up to it. ``breakdown.activations`` is the most of that part at any moment, and that may be
    another one: activations are gone when the last gradients come. Two breakdowns add moment by
    moment, as for two models on one card, and ``<`` compares their peaks. ``notes`` are sentences
    on what deserves a second look.

    Raises ``ValueError`` for an unknown moment or part, or a negative number of bytes.

    >>> small = Breakdown({"forward": {"parameters": 4, "activations": 9}, "update": {"states": 8}})
    >>> small.peak, small.when, (small + small).states
    (13, 'forward', 16)
    """

    moments: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.moments:
            raise ValueError("moments must hold at least one moment; got none")
        filled = {}
        for moment, parts in self.moments.items():
            one_of("moments", moment, MOMENTS)
            for part in parts:
                one_of("moments", part, PARTS)
            filled[moment] = {part: whole(part, parts.get(part, 0), at_least=0) for part in PARTS}
        object.__setattr__(self, "moments", filled)

    def _most(self, part: str) -> int:
        return max(parts[part] for parts in self.moments.values())

    parameters = property(partial(_most, part="parameters"))
    gradients = property(partial(_most, part="gradients"))
    states = property(partial(_most, part="states"))
    activations = property(partial(_most, part="activations"))
    temporary = property(partial(_most, part="temporary"))

    @property
    def when(self) -> str:
        """The moment of the peak."""
        return max(self.moments, key=lambda moment: sum(self.moments[moment].values()))

    @property
    def at_peak(self) -> dict[str, int]:
        """The bytes of each part at the fullest moment; together they are the peak."""
        return dict(self.moments[self.when])

    @property
    def peak(self) -> int:
        """The most bytes at one instant."""
        return sum(self.at_peak.values())

    def __add__(self, other: object) -> "Breakdown":
        if not isinstance(other, Breakdown):
            return NotImplemented
        both = [*self.moments, *(moment for moment in other.moments if moment not in self.moments)]
        return Breakdown(
            {
                moment: {
                    part: sum(one.moments.get(moment, {}).get(part, 0) for one in (self, other))
                    for part in PARTS
                }
                for moment in both
            },
            tuple(dict.fromkeys(self.notes + other.notes)),
        )

    def __lt__(self, other: "Breakdown") -> bool:
        return self.peak < other.peak

    def __le__(self, other: "Breakdown") -> bool:
        return self.peak <= other.peak

    def against(self, other: "Breakdown") -> dict[str, float]:
        """Return how far each part and the peak lie from ``other``'s, relative to its peak."""
        names = (*PARTS, "peak")
        return {name: (getattr(self, name) - getattr(other, name)) / other.peak for name in names}

    def __repr__(self) -> str:
        parts = ", ".join(f"{part} {gib(count)}" for part, count in self.at_peak.items())
        first = f"Breakdown: peak {gib(self.peak)} in the {self.when} ({parts})"
        return "\n  ".join((first, *self.notes))

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col">{part}</th>' for part in (*PARTS, "together", ""))
        rows = "".join(self._row(moment) for moment in self.moments)
        title = html.escape(f"peak {gib(self.peak)} in the {self.when}")
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return (
            f'<table><caption>{title}</caption><tr><th scope="col"></th>{heads}</tr>{rows}</table>'
            f"{notes}"
        )

    def _row(self, moment: str) -> str:
        parts = self.moments[moment]
        cells = "".join(
            f"<td>{gib(count)}</td>" for count in (*parts.values(), sum(parts.values()))
        )
        bars = "".join(
            f'<span title="{part}" style="display:inline-block;height:1em;background:{colour};'
            f'width:{300 * parts[part] / max(self.peak, 1):.1f}px"></span>'
            for part, colour in zip(PARTS, COLOURS)
        )
        bar = f'<td style="text-align:left;white-space:nowrap">{bars}</td>'
        return f'<tr><th scope="row">{moment}</th>{cells}{bar}</tr>'
