"""What holds the project together: dependencies, commands, what is installed."""

import os
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

import helpers
from tests.map import HELPERS, survey
from tests.run_notebooks import ORIGIN, origin

ROOT = Path(__file__).parent.parent
HOUSE = survey(HELPERS)


def read(name):
    return (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize("name", [name for name in HOUSE.rooms if not name.startswith("_")])
def test_every_room_has_its_tests(name):
    assert (ROOT / "tests" / f"test_{name}.py").exists()


def test_every_file_of_helpers_is_installed():
    """As hatchling does it: one folder with all in it, but for what git ignores."""
    assert 'packages = ["helpers"]' in read("pyproject.toml")
    found = {module.name for module in pkgutil.walk_packages(helpers.__path__, "helpers.")}
    assert {"helpers", *found} == set(HOUSE.files)
    command = ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "helpers"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [name for name in listed.stdout.split() if "__pycache__" not in name] == []


def test_no_dependency_is_listed_twice():
    lists = re.findall(
        r"^(?:dependencies|lab|test|peers) = \[(.*?)\]\n", read("pyproject.toml"), re.M | re.S
    )
    names = re.findall(r'"([A-Za-z0-9-]+)[<>=~]', "".join(lists))
    assert len(lists) == 4
    assert len(names) == len(set(names)) > 10
    for name in names:
        assert not re.search(rf"\b{name}\b", read("environment.yml"))
    pins = [line for line in read("constraints.txt").splitlines() if not line.startswith("#")]
    assert pins == ["torch==2.13.0"]


@pytest.mark.parametrize(
    "target",
    [
        "lab",
        "test",
        "notebooks",
        "student",
        "book",
        "address",
        "bench",
        "gpu-check",
        "lint",
        "clean",
        "install",
    ],
)
def test_make_knows_the_command(target):
    assert re.search(rf"^{target}:", read("Makefile"), re.MULTILINE)
    assert re.search(rf"^\.PHONY:.*\b{target}\b", read("Makefile"), re.MULTILINE)


def test_continuous_check_calls_the_readme_command_and_nothing_else():
    lines = [line for line in read(".ci/run").splitlines() if line and not line.startswith("#")]
    assert lines[0] == "set -euo pipefail"
    *_, browser, command = lines
    assert command == "BROWSER=required make test"
    assert browser.startswith("command -v chromium")
    assert len(lines) == 4
    assert os.name == "nt" or os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "make test" in read("README.md")


def test_no_file_names_a_machine_or_a_registry():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    folders = [f"/{name}/" for name in ("work", "root", "home")]
    words = [*folders, *(".".join(name) for name in (("pypi", "org"), ("pythonhosted", "org")))]
    for name in listed.stdout.split():
        if (ROOT / name).suffix not in (".png", ".safetensors", "") and (ROOT / name).exists():
            text = read(name)
            assert not [word for word in words if word in text], name


def test_citation_names_this_version_and_this_repository():
    version = re.search(r'__version__ = "(.+)"', read("helpers/__init__.py"))[1]
    citation = read("CITATION.cff")
    assert f"\nversion: {version}\n" in citation
    assert re.search(rf"^## {re.escape(version)}, (.+)$", read("CHANGELOG.md"), re.MULTILINE)
    repository = re.search(r'Repository = "(.+)"', read("pyproject.toml"))[1]
    assert f"repository-code: {repository}\n" in citation


def test_the_readme_says_where_the_outputs_come_from():
    (told,) = ORIGIN.findall(read("README.md"))
    assert ORIGIN.fullmatch(origin())
    pinned = read("constraints.txt").partition("torch==")[2].split()[0]
    assert f"torch {pinned}," in told
