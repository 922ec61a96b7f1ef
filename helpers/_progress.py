"""One progress bar for everything that takes longer than two seconds."""

import os
from collections.abc import Iterable

from tqdm.auto import tqdm


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
        disable=bool(os.environ.get("TQDM_DISABLE")),
    )
