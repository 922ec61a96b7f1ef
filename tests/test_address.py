"""The project's address: one, everywhere, changed by one command; and the ways in that use it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from book.address import change, current, site

ROOT = Path(__file__).parent.parent
BINARY = (".png", ".safetensors")
OWN = r"([A-Za-z0-9-]+/[\w.-]*\w)"
# Every form in which a repository's own address is written.
FORMS = (
    rf"colab\.research\.google\.com/github/{OWN}/blob/",
    rf"mybinder\.org/v2/gh/{OWN}/",
    rf"codespaces\.new/{OWN}",
    rf"git\+https://github\.com/{OWN}",
    rf"github\.com/{OWN}/(?:blob|tree)/main/",
    rf'Repository = "https://github\.com/{OWN}"',
    rf"repository-code: https://github\.com/{OWN}",
    r"https://([a-z0-9-]+\.github\.io/[\w.-]*)",
)


def tracked(root=ROOT):
    listed = subprocess.run(
        ["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.split() if name != "tests/test_address.py"]
    return [root / name for name in names if (root / name).is_file()]


def addresses(root):
    found = {form: set() for form in FORMS}
    for path in tracked(root):
        if path.suffix not in BINARY and path != root / "book" / "address.py":
            for form in FORMS:
                found[form] |= set(re.findall(form, path.read_text("utf-8")))
    return found


def only(address):
    *links, pages = FORMS
    where = site(address).removeprefix("https://").rstrip("/")
    return {form: {address} for form in links} | {pages: {where}}


def test_there_is_one_address_and_no_other():
    assert addresses(ROOT) == only(current())


@pytest.fixture
def copy(tmp_path):
    """A copy of the project in which everything may be changed."""
    for path in tracked():
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_another_address_goes_everywhere_and_comes_back(copy):
    before = {path: path.read_bytes() for path in tracked(copy)}
    first = current(copy)
    changed = change("Some-One/a.course", copy)
    assert addresses(copy) == only("Some-One/a.course")
    assert "https://some-one.github.io/a.course/planner.html" in (copy / "README.md").read_text()
    assert {"README.md", "pyproject.toml", "CITATION.cff"} < {*changed}
    assert not [name for name in changed if name.startswith(("helpers/", "tests/"))]
    change(first, copy)
    assert {path: path.read_bytes() for path in tracked(copy)} == before


@pytest.mark.parametrize("wrong", ["", "owner", "a/b/c", "https://github.com/a/b", "a b/c", "-a/b"])
def test_what_is_no_address_is_refused(wrong):
    with pytest.raises(ValueError, match="address must be OWNER/NAME"):
        change(wrong)


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_make_takes_the_word_after_it(copy):
    command = ["make", f"PYTHON={sys.executable}", "address", "someone/course"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True)
    assert "pyproject.toml" in done.stdout
    assert current(copy) == "someone/course"
    failed = subprocess.run([*command[:-1]], cwd=copy, capture_output=True, text=True, check=False)
    assert failed.returncode != 0
    assert "OWNER/NAME" in failed.stderr


def test_binder_installs_as_conda_does():
    """By the rules of repo2docker: a folder for it would hide ``environment.yml``."""
    assert not (ROOT / "binder").exists()
    assert not (ROOT / ".binder").exists()
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    *packages, last = environment["dependencies"]
    assert any(re.fullmatch(r"python=3\.\d+", name) for name in packages)  # x.y and no more
    # Only what begins with a point after its flag is known to need the rest of the repository.
    for line in last["pip"]:
        assert re.fullmatch(r"(?:-e|--editable) \..*", line)
    opened = re.search(r"mybinder\.org/\S+/main\?urlpath=lab/tree/([^)]+)", read("README.md"))[1]
    assert (ROOT / opened).exists()


def test_codespaces_have_what_make_needs():
    container = json.loads(read(".devcontainer/devcontainer.json"))
    assert set(container) <= {
        *("name", "image", "hostRequirements", "postCreateCommand", "customizations"),
    }
    assert re.fullmatch(r"make (\w+)", container["postCreateCommand"])[1] in read("Makefile")
    minor = int(re.fullmatch(r"\S+/python:3\.(\d+)", container["image"])[1])
    assert minor >= int(re.search(r'requires-python = ">=3\.(\d+)"', read("pyproject.toml"))[1])
    python = container["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert python == "${containerWorkspaceFolder}/.venv/bin/python"


def test_pages_are_built_and_then_published():
    workflow = yaml.safe_load(read(".github/workflows/pages.yml"))
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert {"run": "make book"} in build["steps"]
    assert workflow["permissions"] == {"contents": "read"}
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"pages": "write", "id-token": "write"}
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for action in re.findall(r"uses: (\S+) # v\d+\.\d+\.\d+|uses: (\S+)", path.read_text()):
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action[0]), (path.name, action)


def read(name):
    return (ROOT / name).read_text("utf-8")
