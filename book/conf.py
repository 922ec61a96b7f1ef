"""The site that ``make book`` builds: README, notebooks, glossary, planner, page for teachers."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the helpers that lie beside this file, whatever is installed

from book import address  # noqa: E402
from helpers.planner import EXAMPLES, GROUPS  # noqa: E402

REPOSITORY = f"https://github.com/{address.current()}"
SITE = address.site(address.current())
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
PAGES = [*(f"notebooks/{name}" for name in NOTEBOOKS), "notebooks/glossary", "course/README"]
PAGES += ["CONTRIBUTING", "CHANGELOG", "tests/evidence"]

# What the planner needs of Pyodide's npm package, which `make book` brings in: no packages.
PYODIDE = ROOT / "book" / "node_modules" / "pyodide"
OF_PYODIDE = {
    "compiled.zip": "python_stdlib.zip",
    **{name: name for name in ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm")},
    "pyodide-lock.json": "pyodide-lock.json",
}
RUNS = shutil.which("node") and all((PYODIDE / name).exists() for name in OF_PYODIDE)

# Nothing but the site's own files, and no code made from text: WebAssembly alone is let in.
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'{scripts}; style-src 'self' "
    "'unsafe-hashes'{styles}; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self' blob:; "
    "base-uri 'none'; form-action 'self'"
)

project = "Batch notebooks"
root_doc = "README"
include_patterns = ["*.md", "notebooks/*", "course/*.md", "tests/evidence.md"]
exclude_patterns = [".*", "build", "dist", "helpers", "benchmarks"]
extensions = ["myst_nb"]
nb_execution_mode = "off"  # the stored outputs are those that the tests compare
myst_heading_anchors = 3
html_theme = "furo"
html_title = project
html_show_sourcelink = False
html_copy_source = False
templates_path = ["_templates"]
html_static_path = ["_static"]
html_additional_pages = {"index": "to_readme.html", "planner": "planner.html"}


def prepare(_: Sphinx, page: str, source: list[str]) -> None:
    """Change a page as it is read: what links to the repository stays within the site."""
    source[0] = source[0].replace(f"{REPOSITORY}/blob/main/", "../")
    if page == root_doc:
        pages = [f"The planner <{SITE}planner.html>", *PAGES]
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"
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
    """Let long lines of code be scrolled by key as well, and keep links to the site within it."""
    context["body"] = context.get("body", "").replace("<pre>", '<pre tabindex="0">')
    for part in ("body", "furo_navigation_tree"):
        context[part] = re.sub(
            f'class="reference external" href="{SITE}([^"]*)"',
            lambda link: f'class="reference internal" href="{context["pathto"](link[1], 1)}"',
            context.get(part, ""),
        )
    if page == "planner":
        context |= {"groups": GROUPS, "examples": EXAMPLES, "runs": RUNS}
        context["policy"] = POLICY


def finish_planner(app: Sphinx, error: Exception | None) -> None:
    """Lay the planner's Python beside its page, and name in its policy what stands in the page."""
    page = Path(app.outdir) / "planner.html"
    if error or not page.exists():
        return
    text = page.read_text("utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    styles = re.findall(r"<style>(.*?)</style>", text, re.S) + re.findall(r' style="(.*?)"', text)
    policy = POLICY.format(scripts=_hashed(scripts), styles=_hashed(styles))
    page.write_text(text.replace(POLICY, policy), "utf-8")
    static = page.parent / "_static"
    if not RUNS:
        return
    (static / "pyodide").mkdir(exist_ok=True)
    for name, there in OF_PYODIDE.items():
        shutil.copy(PYODIDE / name, static / "pyodide" / there)
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "sources.zip"
        with zipfile.ZipFile(sources, "w") as packed:
            for path in sorted((ROOT / "helpers").rglob("*.py")):
                packed.write(path, path.relative_to(ROOT))
        command = ["node", ROOT / "book" / "compile.mjs", sources, static / "helpers.zip"]
        subprocess.run(command, check=True)


def _hashed(texts: list[str]) -> str:
    digests = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts}
    return "".join(f" 'sha256-{digest}'" for digest in sorted(digests))


def setup(app: Sphinx) -> None:
    """Let Sphinx call us as it reads and as it writes each page, and at the end."""
    app.connect("source-read", prepare)
    app.connect("html-page-context", finish, priority=900)  # after the theme
    app.connect("build-finished", finish_planner)
