"""The site that ``make book`` builds: README, notebooks, glossary and the page for teachers."""

import json
from importlib.metadata import metadata
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent
REPOSITORY = metadata("batch-notebooks")["Project-URL"].removeprefix("Repository, ")
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
PAGES = [*(f"notebooks/{name}" for name in NOTEBOOKS), "notebooks/glossary", "course/README"]
PAGES += ["CONTRIBUTING", "CHANGELOG"]

project = "Batch notebooks"
root_doc = "README"
include_patterns = ["*.md", "notebooks/*", "course/*.md"]
exclude_patterns = [".*", "build", "dist", "helpers", "tests", "benchmarks"]
extensions = ["myst_nb"]
nb_execution_mode = "off"  # the stored outputs are those that the tests compare
myst_heading_anchors = 3
html_theme = "furo"
html_title = project
html_show_sourcelink = False
html_copy_source = False
templates_path = ["_templates"]
html_additional_pages = {"index": "to_readme.html"}


def prepare(_: Sphinx, page: str, source: list[str]) -> None:
    """Change a page as it is read: what links to the repository stays within the site."""
    source[0] = source[0].replace(f"{REPOSITORY}/blob/main/", "../")
    if page == root_doc:
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(PAGES) + "\n```\n"
    if page.removeprefix("notebooks/") in NOTEBOOKS:
        source[0] = with_alternative_texts(source[0])


def with_alternative_texts(text: str) -> str:
    """Copy the alternative text of each stored picture to where myst-nb looks for it."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            alt = output.get("metadata", {}).get("image/png", {}).get("alt")
            if alt:
                cell["metadata"]["mystnb"] = {"image": {"alt": alt}}
    return json.dumps(notebook)


def finish(_: Sphinx, page: str, template: str, context: dict, doctree: object) -> None:
    """Let long lines of code be scrolled by key as well."""
    context["body"] = context.get("body", "").replace("<pre>", '<pre tabindex="0">')


def setup(app: Sphinx) -> None:
    """Let Sphinx call us as it reads and as it writes each page."""
    app.connect("source-read", prepare)
    app.connect("html-page-context", finish)
