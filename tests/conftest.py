"""What more than one file of tests needs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


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


def missing(what):
    """Skip, or fail where ``BROWSER=required`` is set, as in the continuous checks."""
    if os.environ.get("BROWSER") == "required":
        pytest.fail(f"BROWSER=required, and {what}")
    pytest.skip(what)


@pytest.fixture(scope="module")
def chromium():
    """A real Chromium, where one is on the path."""
    sync_api = pytest.importorskip("playwright.sync_api")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        missing(f"none of {', '.join(BROWSERS)} is on the path")
    # As root, in a container, Chromium has no sandbox of its own.
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=flags)
        yield browser
        browser.close()
