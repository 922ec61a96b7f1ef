"""Run notebooks in place and store their outputs: ``python -m tests.run_notebooks PATH ...``.

What is stored depends on the notebook alone, as far as that can be: no metadata of the machine,
no times, no state of widgets. So a diff shows what was meant.
"""

import base64
import json
import os
import platform
import re
import sys
import time
from pathlib import Path

import nbformat
import torch
from nbclient import NotebookClient
from nbformat import NotebookNode

from helpers.claims import STORED, collect_verdicts

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# The README shows what this cell drew.
PICTURE_CELL = ("01_batches.ipynb", "best")
NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
PICTURE = Path(__file__).parent.parent / ".github" / "picture.png"
README = Path(__file__).parent.parent / "README.md"
ORIGIN = re.compile(r"The stored outputs come from Python .*? thread\w*\.")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_TEXT = "Run this cell to move the sliders; without a kernel, see the still figure above."


def run(path: Path) -> None:
    """Execute one notebook from the top and write it back."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    normalise(notebook)
    nbformat.write(notebook, path)
    for cell in notebook.cells:
        if (path.name, cell.id) == PICTURE_CELL:
            PICTURE.write_bytes(picture_of(cell))


def picture_of(cell: NotebookNode) -> bytes:
    """Return the stored picture of a cell, as a PNG file."""
    return base64.b64decode(cell.outputs[-1].data["image/png"])


def normalise(notebook: NotebookNode) -> None:
    """Take out of a notebook what belongs to the machine that ran it."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        if cell.cell_type == "code":
            cell.outputs = _joined([_still(output) for output in cell.outputs])


def _still(output: NotebookNode) -> NotebookNode:
    """Put words in place of a live widget, which no reader could load from a file."""
    if WIDGET_VIEW in output.get("data", {}):
        output.data = nbformat.from_dict({"text/plain": WIDGET_TEXT})
    return output


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join neighbouring pieces of one stream: where they were cut is chance."""
    joined: list[NotebookNode] = []
    for output in outputs:
        last = joined[-1] if joined else {}
        if output.output_type == "stream" == last.get("output_type") and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def store_verdicts() -> None:
    """Collect the verdicts of all notebooks into the package, where notebook 09 reads them."""
    rows = [list(verdict) for verdict in collect_verdicts(NOTEBOOKS)]
    STORED.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")


def origin() -> str:
    """Return the sentence that says on which machine the outputs were made."""
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    return (
        f"The stored outputs come from Python {platform.python_version()}, torch "
        f"{torch.__version__.partition('+')[0]}, a processor with "
        f"{torch.backends.cpu.get_cpu_capability()}, and {threads} "
        f"thread{'s' if threads != '1' else ''}."
    )


def store_origin() -> None:
    """Put that sentence into the README."""
    README.write_text(ORIGIN.sub(origin(), README.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    os.environ["TQDM_DISABLE"] = "1"  # a bar would be stored as a widget
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in the tests
    os.environ["CLAIMS"] = "strict"  # nothing that is not decided is stored
    store_origin()
    for name in sys.argv[1:]:
        started = time.perf_counter()
        run(Path(name))
        store_verdicts()
        print(f"{name}: {time.perf_counter() - started:.0f} s")
