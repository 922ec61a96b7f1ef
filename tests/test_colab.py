"""Notebooks as Colab runs them: an empty folder, its own versions, the helpers by their address."""

import os
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from packaging.requirements import Requirement

from tests.test_set_up_cell import PATHS, SET_UP, redirected, run

# What Colab has beside its own IPython and ipywidgets. It is there already, and stays as it is.
PROVIDED = ("torch", "matplotlib", "tqdm", "safetensors", "pooch")
VERSIONS = {
    "as in Colab": ("ipython==7.34.0", "ipywidgets==7.7.1"),
    "current": ("ipython", "ipywidgets>=8"),
}
MOVES = """
import IPython, ipywidgets
from helpers import widgets
from helpers.glossary import define
define("nats")
box = widgets.plan_explorer()
*sliders, words, picture = box.children
seen = set()
for examples in (10, 810, 800):
    sliders[0].value = examples
    assert picture.value.count("<img") == 1
    seen.add(picture.value)
assert len(seen) == 3 and ">300<" in words.value
print(IPython.__version__, ipywidgets.__version__)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("colab"),  # its environments are made once
    pytest.mark.skipif(os.name == "nt", reason="links to installed packages"),
]


def needed_by(names):
    """Return the installed distributions that these need, themselves included."""
    found = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = distribution(name)
            for line in found[name].requires or ():
                requirement = Requirement(line)
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    waiting.append(requirement.name)
    return found.values()


def link(distributions, folder):
    """Put installed distributions into another environment, without a copy."""
    for found in distributions:
        for top in {path.parts[0] for path in found.files if not path.parts[0].startswith(".")}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(found.locate_file(top)).resolve())


@pytest.fixture(scope="module", params=VERSIONS)
def colab(request, tmp_path_factory):
    """An environment that holds what Colab does, and an empty folder to work in."""
    if request.param == "as in Colab" and sys.version_info >= (3, 13):
        pytest.skip("IPython 7 is older than this Python")
    home = tmp_path_factory.mktemp("colab")
    venv.create(home / "venv", with_pip=True)
    python = home / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "ipykernel", *VERSIONS[request.param]], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"pip cannot fetch what Colab has: {done.stderr[-200:]}")
    (site,) = (home / "venv" / "lib").glob("python*/site-packages")
    link(needed_by(PROVIDED), site)
    (home / "content").mkdir()
    return python, home / "content", redirected(home), request.param


def versions(python):
    code = (
        "from importlib.metadata import distributions\n"
        "print([(found.name, found.version) for found in distributions()])"
    )
    return eval(subprocess.run([python, "-c", code], capture_output=True, check=True).stdout)


def test_set_up_brings_in_the_helpers_and_widgets_work(colab):
    python, content, environment, kind = colab
    before = versions(python)
    done = run(f"{SET_UP}\n{MOVES}", content, python=python, **environment)
    assert done.returncode == 0, done.stderr
    ready, *entry, found = done.stdout.splitlines()
    assert ready == "helpers is ready."
    assert entry[0].startswith("nats: The unit of a loss")  # the page is in the package
    assert kind != "as in Colab" or found == "7.34.0 7.7.1"
    # Nothing was changed or added but the helpers, so nothing asks for a restart.
    assert [name for name, _ in set(versions(python)) - set(before)] == ["batch-notebooks"]
    assert set(before) < set(versions(python))


def test_notebook_runs_there_from_its_first_cell(colab, tmp_path, monkeypatch):
    python, content, environment, _ = colab
    spec = tmp_path / "kernels" / "colab" / "kernel.json"
    spec.parent.mkdir(parents=True)
    command = f'["{python}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    spec.write_text(f'{{"argv": {command}, "display_name": "Colab", "language": "python"}}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    # The last one trains, measures, moves widgets, and shows what the others found.
    notebook = nbformat.read(PATHS[-1], as_version=4)
    NotebookClient(
        notebook, kernel_name="colab", timeout=600, resources={"metadata": {"path": str(content)}}
    ).execute()
    printed = [
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.get("name") == "stdout"
    ]
    assert printed[0] == "helpers is ready.\n"
    assert "✓" in "".join(printed)
    assert list(content.iterdir()) == []
