"""The words of the notebooks, looked up anywhere: also in Colab, and without a network."""

import re
import textwrap
from pathlib import Path

from helpers._checks import one_of

WIDTH = 79  # of a line that no page cuts
# In the installed package the page lies beside this file; in a clone beside the notebooks.
PLACES = (Path(__file__).parent, Path(__file__).parent.parent / "notebooks")
ENTRY = re.compile(r"^## (.+)\n\n(.+)\n\n(.+)$", re.MULTILINE)
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


def entries() -> dict[str, tuple[str, str]]:
    """Return for each term of the glossary its meaning and its words in other languages."""
    path = next(place / "glossary.md" for place in PLACES if (place / "glossary.md").exists())
    return {
        term: (LINK.sub(r"\1", meaning), words.replace("*", ""))
        for term, meaning, words in ENTRY.findall(path.read_text("utf-8"))
    }


def define(term: str) -> None:
    """Print what a term means, the notebook that explains it, and what it is called elsewhere.

    ``term`` is a heading of the glossary, in small or large letters. Raises ``ValueError`` with
    all terms for one that is not there.

    >>> define("Epoch")
    epoch: One pass over all the training examples, in a new order. Notebook 02.
    es época · da epoke · pt época
    """
    known = entries()
    found = one_of("term", term.lower() if isinstance(term, str) else term, sorted(known))
    meaning, words = known[found]
    print(textwrap.fill(f"{found}: {meaning}", WIDTH, break_on_hyphens=False))
    print(textwrap.fill(words, WIDTH, break_on_hyphens=False))
