"""The site: built without a warning, with figures, alternative texts, and links that lead there."""

import html
import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

pytestmark = pytest.mark.xdist_group("book")  # built once

ROOT = Path(__file__).parent.parent
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OUTSIDE = ("https://", "http://", "mailto:", "data:", "javascript:")


def page(book, name):
    return (book / name).read_text("utf-8")


def pictures(path):
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                yield output.metadata["image/png"]["alt"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebook_has_its_figures_folds_and_way_into_colab(path, book):
    text = page(book, f"notebooks/{path.stem}.html")
    shown = re.findall(r'<img alt="([^"]*)"[^>]*src="\.\./_images/', text)
    assert [html.unescape(alt) for alt in shown] == list(pictures(path))
    assert text.count("<summary>Your guess first, then open</summary>") >= 3
    assert re.search(rf'href="https://colab[^"]+/notebooks/{path.name}"', text)
    for fold in re.findall(r"<details>.*?</details>", text, re.DOTALL):
        assert "```" not in fold  # what is in a fold is Markdown too


def test_every_link_inside_the_site_leads_somewhere(book):
    pages = {path: path.read_text("utf-8") for path in book.rglob("*.html")}
    assert len(pages) >= len(PATHS) + 5
    for path, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            if link.startswith(OUTSIDE):
                continue
            place, _, anchor = unquote(html.unescape(link)).partition("#")
            target = (path.parent / place.partition("?")[0]).resolve() if place else path
            assert target.exists(), (path.name, link)
            if anchor and "=" not in anchor and target in pages:  # with one it is a plan
                assert f'id="{anchor}"' in pages[target], (path.name, link)


def test_words_lead_to_their_entry_on_the_site(book):
    for path in PATHS:
        links = re.findall(
            r'href="([^"]*glossary[^"]*)"', page(book, f"notebooks/{path.stem}.html")
        )
        assert "glossary.html" in {link.partition("#")[0] for link in links}
        assert all(link.startswith("glossary.html") for link in links), links


def test_words_can_be_searched_for(book):
    index = page(book, "searchindex.js")
    for word in ("accumul", "sharp", "epoch"):
        assert f"{word}" in index
    assert all(f'"notebooks/{path.stem}"' in index for path in PATHS)


def test_the_first_page_is_the_readme(book):
    assert 'url=README.html"' in page(book, "index.html")
    assert "<h1>Batch notebooks" in page(book, "README.html")
