"""The first cell of every notebook: it finds our helpers, brings them in, or says what it found."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELLS = {path.name: nbformat.read(path, as_version=4).cells for path in PATHS}
SET_UP = next(cell.source for cell in CELLS[PATHS[0].name] if cell.cell_type == "code")
REPOSITORY = re.search(r"git\+(https://[^\"]+)", SET_UP)[1]


def run(code, folder, *, python=sys.executable, path=None, **environment):
    """Run code in a new process, as a kernel does: its folder comes first on the path."""
    code = f"import sys; sys.path.insert(0, {str(path or folder)!r})\n{code}"
    return subprocess.run(
        [str(python), "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", CELLS)
def test_cell_is_the_same_in_all_notebooks(name):
    first = next(cell for cell in CELLS[name] if cell.cell_type == "code")
    assert (first.id, first.source) == ("set-up", SET_UP)


@pytest.mark.parametrize("name", CELLS)
def test_badge_opens_this_notebook(name):
    owner = REPOSITORY.removeprefix("https://github.com/")
    link = f"https://colab.research.google.com/github/{owner}/blob/main/notebooks/{name}"
    assert f"]({link})" in CELLS[name][0].source
    assert f"]({link})" in (ROOT / "README.md").read_text("utf-8")


def test_address_is_that_of_the_project():
    assert f'Repository = "{REPOSITORY}"' in (ROOT / "pyproject.toml").read_text("utf-8")


@pytest.mark.parametrize("folder", ["notebooks", ".", None])
def test_works_from_any_folder_and_twice(folder, tmp_path):
    done = run(f"{SET_UP}\n{SET_UP}", tmp_path if folder is None else ROOT / folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "helpers is ready.\n" * 2


@pytest.mark.parametrize("kind", ["helpers.py", "helpers/__init__.py"])
def test_another_package_of_the_name_is_named(kind, tmp_path):
    decoy = tmp_path / kind
    decoy.parent.mkdir(exist_ok=True)
    decoy.write_text("answer = 42\n")
    done = run(SET_UP, tmp_path)
    assert done.returncode != 0
    assert f"ImportError: another package called helpers comes first: {decoy}" in done.stderr


def test_a_mere_folder_of_the_name_is_no_obstacle(tmp_path):
    (tmp_path / "helpers").mkdir()
    done = run(f"{SET_UP}\nimport helpers.plan; print(helpers.__file__)", tmp_path)
    assert done.stdout.splitlines()[0] == "helpers is ready.", done.stderr
    assert Path(done.stdout.splitlines()[1]).parent == ROOT / "helpers"


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """An environment with pip and nothing else, as far as ours is concerned."""
    folder = tmp_path_factory.mktemp("colab")
    venv.create(folder / "venv", with_pip=True)
    return folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"


def redirected(folder):
    """Return what makes git find the project's address in a clone of this one."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True, capture_output=True)
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{clone.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": REPOSITORY,
    }


def distributions(python):
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {line.split("==")[0].split(" ")[0] for line in listed.stdout.splitlines()}


def test_elsewhere_it_brings_in_the_helpers_and_nothing_else(clean, tmp_path):
    """As in Colab: the repository is reached by its address, here a clone of this one."""
    redirect = redirected(tmp_path)
    before = distributions(clean)
    work = tmp_path / "content"
    work.mkdir()
    code = f"{SET_UP}\nimport helpers.plan; print(helpers.plan.RunPlan(810, 8).total_steps)"
    done = run(code, work, python=clean, **redirect)
    if "Could not find a version" in done.stderr and "hatchling" in done.stderr:
        pytest.skip("pip cannot fetch the build backend here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["helpers is ready.", "102"]
    assert distributions(clean) - before == {"batch-notebooks"}
    # Again, with the repository out of reach: nothing is installed a second time.
    again = run(code, work, python=clean, PATH="")
    assert again.stdout.splitlines() == ["helpers is ready.", "102"], again.stderr
    assert list(work.iterdir()) == []
