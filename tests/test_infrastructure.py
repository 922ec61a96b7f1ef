"""What holds the project together: dependencies, commands, the order of the modules."""

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# A room is a module of helpers, or a package there: all of its files.
MODULES = {
    path.stem: sorted(path.rglob("*.py")) or [path]
    for path in (ROOT / "helpers").iterdir()
    if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").exists()
}

# An arrow points from a module to those that may import it, and never back.
LAYERS = (
    {"_checks", "_progress", "_replica", "replicates", "world"},
    {"plan", "schedule", "settings", "claims", "shapes", "footprint", "history"},
    {"data", "model", "device", "exercises", "decoder"},
    {"accumulate", "checkpoint", "noise", "curvature", "memory"},
    {"examples", "_arguments"},
    {"keeper"},
    {"train"},
    {"sweep", "parallel"},
    {"plots"},
    {"widgets"},
)


def read(name):
    return (ROOT / name).read_text("utf-8")


def imports(paths):
    """Return the modules that files import, at their top or inside a function."""
    names = set()
    for node in (node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return names


def imports_of_ours(name):
    found = {
        found.split(".")[1] for found in imports(MODULES[name]) if found.startswith("helpers.")
    }
    return found & set(MODULES) - {name}


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_one_way(name):
    level = next(number for number, layer in enumerate(LAYERS) if name in layer)
    allowed = set().union(*LAYERS[: level + 1]) - {"widgets"}
    assert imports_of_ours(name) <= allowed


@pytest.mark.parametrize(
    "name", ["plan", "schedule", "settings", "_checks", "shapes", "footprint", "history"]
)
def test_arithmetic_needs_no_torch(name):
    assert not {found for found in imports(MODULES[name]) if found.split(".")[0] == "torch"}
    assert imports_of_ours(name) <= {"_checks", "plan", "schedule", "shapes"}


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith("_")])
def test_every_module_has_its_tests(name):
    assert (ROOT / "tests" / f"test_{name}.py").exists()


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
        if (ROOT / name).suffix not in (".png", "") and (ROOT / name).exists():
            text = read(name)
            assert not [word for word in words if word in text], name


def test_citation_names_this_version_and_this_repository():
    version = re.search(r'__version__ = "(.+)"', read("helpers/__init__.py"))[1]
    citation = read("CITATION.cff")
    assert f"\nversion: {version}\n" in citation
    assert re.search(rf"^## {re.escape(version)}, (.+)$", read("CHANGELOG.md"), re.MULTILINE)
    repository = re.search(r'Repository = "(.+)"', read("pyproject.toml"))[1]
    assert f"repository-code: {repository}\n" in citation
