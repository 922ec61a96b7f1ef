"""What a benchmark found: rows of one table, and the words that go under it."""

from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Row:
    """One measured number; ``within`` is None where there is no target to compare it with."""

    name: str
    measured: str
    spread: str = ""
    target: str = ""
    within: bool | None = None

    @classmethod
    def at_least(cls, name: str, ratios: list[float], target: float | None) -> "Row":
        """Return the row of a ratio, one value a round, whose median should reach ``target``."""
        middle = median(ratios)
        measured = f"{middle:.2f} ×"
        if target is None:
            return cls(name, measured, spread(ratios))
        return cls(name, measured, spread(ratios), f"at least {target} ×", middle >= target)


@dataclass
class Report:
    """The rows and notes of one benchmark."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def spread(values: list[float], digits: int = 2) -> str:
    """Write the smallest and the largest of the rounds."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}, {len(values)} rounds"


def written(reports: list[Report]) -> str:
    """Return the table of all reports, and their notes below it."""
    verdicts = {None: "", True: "ok", False: "below target"}
    lines = [("name", "measured", "spread", "target", "")]
    for report in reports:
        lines += [
            (row.name, row.measured, row.spread, row.target, verdicts[row.within])
            for row in report.rows
        ]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    table = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in lines
    ]
    table.insert(1, "-" * len(max(table, key=len)))
    notes = [f"- {note}" for report in reports for note in report.notes]
    return "\n".join((*table, "", *notes))
