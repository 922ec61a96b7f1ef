"""A statement checked against what was measured."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

STORED = Path(__file__).with_name("verdicts.json")  # written by make notebooks
VERDICTS = ("holds", "holds when", "does not hold", "no effect at this scale")


class ClaimError(AssertionError):
    """A statement that the measurement does not bear out."""


def claim(text: str, ok: Any, /, **measured: Any) -> None:  # noqa: ANN401
    """Print ``text`` with a tick and the measured numbers, or raise ``ClaimError`` with them.

    ``ok`` is the comparison: true or false, also as a tensor or array of one element. Anything
    else, such as a tuple, which is true whatever it holds, raises ``TypeError``.

    >>> claim("Two and two are four.", 2 + 2 == 4, total=4)
    ✓ Two and two are four. [total = 4]
    """
    numbers = _numbers(measured)
    if not _truth(ok):
        raise ClaimError(f"not borne out here: {text}{numbers}")
    print(f"✓ {text}{numbers}")


def verdict(number: str, statement: str, finding: str, ok: Any, /, **measured: Any) -> None:  # noqa: ANN401
    """Print a popular statement with its verdict, or raise ``ClaimError`` if it is not measured so.

    ``finding`` begins with one of ``VERDICTS``; "holds when" goes on with the condition. ``ok`` is
    the comparison that the verdict rests on, as in ``claim``.

    >>> verdict("P0", "Bigger is better.", "holds when it is free", 3 > 2, price=0)
    P0 “Bigger is better.”
       holds when it is free [price = 0]
    """
    if not re.fullmatch(r"P\d+", number):
        raise ValueError(f"number must be P and digits, such as 'P7'; got {number!r}")
    if not _FINDING.fullmatch(finding):
        raise ValueError(
            f"finding must begin with one of {VERDICTS}, with a condition after when and no square "
            f"brackets; got {finding!r}"
        )
    numbers = _numbers(measured)
    if not _truth(ok):
        raise ClaimError(f"not borne out here: {number} {finding}{numbers}")
    print(f"{number} “{statement}”\n   {finding}{numbers}")


class Verdict(NamedTuple):
    """A popular statement, what was found, and the notebook that measured it."""

    number: str
    statement: str
    finding: str
    notebook: str


_FINDING = re.compile(rf"(?!holds when\W*$)({'|'.join(VERDICTS)})\b[^\[\]]*")
_PRINTED = re.compile(r"^(P\d+) “(.*)”\n   (.*?)(?: \[.*\])?$", re.MULTILINE)


def collect_verdicts(folder: str | Path) -> list[Verdict]:
    """Return the verdicts that the notebooks of a folder printed when they last ran, by number."""
    found = [verdict for path in sorted(Path(folder).glob("*.ipynb")) for verdict in _read(path)]
    return sorted(found, key=lambda verdict: (int(verdict.number[1:]), verdict.notebook))


def stored_verdicts() -> list[Verdict]:
    """Return the verdicts of all notebooks, as they were collected when the notebooks last ran.

    They come with the package, so that they are there in Colab too.
    """
    return [Verdict(*row) for row in json.loads(STORED.read_text("utf-8"))]


def _read(path: Path) -> Iterator[Verdict]:
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["id"] == "verdicts":
            for output in cell["outputs"]:
                text = "".join(output.get("text", ()))
                for number, statement, finding in _PRINTED.findall(text):
                    yield Verdict(number, statement, finding, path.stem)


def _truth(ok: Any) -> bool:  # noqa: ANN401
    try:
        value = ok.item() if hasattr(ok, "item") else ok
    except (RuntimeError, ValueError):
        value = None
    if not isinstance(value, bool):
        raise TypeError(f"ok must be one comparison, true or false; got {ok!r}")
    return value


def _numbers(measured: dict[str, Any]) -> str:
    shown = [f"{name.replace('_', ' ')} = {_shown(value)}" for name, value in measured.items()]
    return f" [{', '.join(shown)}]" if shown else ""


def _shown(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, (list, tuple)):
        return " / ".join(map(_shown, value))
    if hasattr(value, "tolist"):  # of numpy or torch
        return _shown(value.tolist())
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"
    return str(value)
