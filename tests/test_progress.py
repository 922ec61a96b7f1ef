"""Progress bars: there after two seconds, silent under nbval, and harmless where nobody looks."""

import os
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from helpers._progress import hidden_bars, progress
from tests.run_notebooks import normalise

TRAINING = """
import time
from helpers._progress import progress
for _ in progress(range(25), "training", "updates"):
    time.sleep(0.1)
"""


def environment(bars):
    chosen = {name: value for name, value in os.environ.items() if name != "TQDM_DISABLE"}
    return chosen if bars else chosen | {"TQDM_DISABLE": "1"}


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """A notebook with a bar, executed and stored as ours are."""
    cells = [
        nbformat.v4.new_code_cell(TRAINING, metadata={"tags": ["nbval-ignore-output"]}),
        nbformat.v4.new_code_cell("print('done')"),
    ]
    made = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(made, kernel_name="python3", store_widget_state=False).execute()
    normalise(made)
    path = tmp_path_factory.mktemp("bars") / "bars.ipynb"
    nbformat.write(made, path)
    return path


@pytest.mark.parametrize("bars", [True, False], ids=["with bars", "without"])
def test_nbval_passes(notebook, bars):
    # nbval 56: bars change the streams
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-p", "no:cacheprovider",
         notebook.name],
        cwd=notebook.parent, env=environment(bars), capture_output=True, text=True,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout


def test_headless_run_writes_few_lines():
    # papermill 765
    done = subprocess.run(
        [sys.executable, "-c", TRAINING], env=environment(True), capture_output=True, text=True
    )
    assert done.returncode == 0
    assert 0 < done.stderr.count("training") < 10
    assert done.stderr.count("\n") < 5


def test_silent_when_told_so():
    done = subprocess.run(
        [sys.executable, "-c", TRAINING], env=environment(False), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_bar_hands_on_what_it_is_given():
    assert list(progress([3, 1, 2], "counting", "things")) == [3, 1, 2]


def test_bars_inside_another_are_hidden_and_later_ones_are_not(monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    with hidden_bars():
        assert progress([], "inner", "things").disable
    assert not progress([], "later", "things").disable
