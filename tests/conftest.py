"""What more than one file of tests needs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def book(tmp_path_factory):
    """The folder of the site, built as ``make book`` does."""
    pytest.importorskip("myst_nb")
    pytest.importorskip("furo")
    folder = tmp_path_factory.mktemp("book") / "book"
    command = [
        *(sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"),
        *("--conf-dir", "book", ".", str(folder)),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder
