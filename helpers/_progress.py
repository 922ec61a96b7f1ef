"""One progress bar for everything that takes longer than two seconds."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tqdm.auto import tqdm

_HIDDEN = ContextVar("bars are hidden", default=False)


@contextmanager
def hidden_bars() -> Iterator[None]:
    """Show no further bar inside the block: there is one around it already."""
    token = _HIDDEN.set(True)
    try:
        yield
    finally:
        _HIDDEN.reset(token)


def progress(iterable: Iterable, description: str, unit: str) -> tqdm:
    """Return the iterable with a bar that shows after two seconds and goes away at its end.

    With ``TQDM_DISABLE`` set there is none. tqdm itself overlooks that variable in a notebook.
    """
    return tqdm(
        iterable,
        desc=description,
        unit=f" {unit}",
        delay=2,
        mininterval=0.5,
        leave=False,
        disable=_HIDDEN.get() or bool(os.environ.get("TQDM_DISABLE")),
    )
