"""A statement checked against what was measured."""

import json
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from helpers.replicates import Judgement, Outcome, exactly

STORED = Path(__file__).with_name("verdicts.json")  # written by make notebooks
VERDICTS = ("holds", "holds when", "does not hold", "no effect at this scale")
WIDTH = 80  # characters of a line that no page cuts


class ClaimError(AssertionError):
    """A statement that the measurement does not bear out."""


def claim(text: str, ok: Any, /, **measured: Any) -> None:  # noqa: ANN401
    """Print ``text`` with a tick and the measured numbers, or raise ``ClaimError`` with them.

    ``ok`` is what the statement rests on. For arithmetic it is a comparison, true or false, also as
    a tensor or array of one element. For what training produced it is the judgement of several
    runs: see ``helpers.replicates``. Such a statement is borne out, contradicted, which raises the
    error, or not decided. Then it is printed with a question mark and with what would decide it,
    and the notebook goes on; where the environment variable CLAIMS is "strict", as in the tests,
    that is an error too. Anything else, such as a tuple, which is true whatever it holds, raises
    ``TypeError``.

    >>> claim("Two and two are four.", 2 + 2 == 4, total=4)
    ✓ Two and two are four. [total = 4]
    """
    _say(text, _judgement(ok), measured, borne_out=f"✓ {text}")


def verdict(number: str, statement: str, finding: str, ok: Any, /, **measured: Any) -> None:  # noqa: ANN401
    """Print a popular statement with its verdict, or raise ``ClaimError`` if it is not measured so.

    ``finding`` begins with one of ``VERDICTS``; "holds when" goes on with the condition. ``ok`` is
    what the verdict rests on, as in ``claim``.

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
    print(_wrapped(f"{number} “{statement}”"))
    _say(f"{number} {finding}", _judgement(ok), measured, borne_out=f"   {finding}")


def _judgement(ok: Any) -> Judgement:  # noqa: ANN401
    return ok if isinstance(ok, Judgement) else exactly(ok)


def _say(text: str, judged: Judgement, measured: dict[str, Any], *, borne_out: str) -> None:
    """Print what came of a statement, or raise ``ClaimError``."""
    numbers = _numbers(measured, judged.words)
    if judged.outcome is Outcome.CONTRADICTED:
        raise ClaimError(f"not borne out here: {text}{numbers}")
    if judged.outcome is Outcome.BORNE_OUT:
        print(_wrapped(borne_out + numbers))
        return
    how = f" About {judged.needed} would decide it." if judged.needed else ""
    undecided = f"? Not decided by so few runs: {text}{how}{numbers}"
    if os.environ.get("CLAIMS") == "strict":
        raise ClaimError(undecided)
    print(_wrapped(undecided))


def _wrapped(line: str) -> str:
    """Return a line broken so that no page cuts it, with the rest under its first word."""
    indent = " " * 3 if line.startswith(("P", " ")) else " " * 2
    return textwrap.fill(
        line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


class Verdict(NamedTuple):
    """A popular statement, what was found, and the notebook that measured it."""

    number: str
    statement: str
    finding: str
    notebook: str


_FINDING = re.compile(rf"(?!holds when\W*$)({'|'.join(VERDICTS)})\b[^\[\]]*")


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
            printed = "".join("".join(output.get("text", ())) for output in cell["outputs"])
            for block in re.split(r"^(?=P\d+ “)", printed, flags=re.MULTILINE):
                head, _, tail = block.partition("”\n   ")
                if tail:  # and not a question mark
                    number, _, statement = " ".join(head.split()).partition(" “")
                    finding = " ".join(tail.split()).partition(" [")[0]
                    yield Verdict(number, statement, finding, path.stem)


def _numbers(measured: dict[str, Any], words: str) -> str:
    shown = [f"{name.replace('_', ' ')} = {_shown(value)}" for name, value in measured.items()]
    inside = "; ".join(filter(None, (", ".join(shown), words)))
    return f" [{inside}]" if inside else ""


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
