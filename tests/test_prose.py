"""What is written for people: links that lead somewhere, a glossary, and the page for teachers."""

import re
from pathlib import Path

import nbformat
import pytest

from helpers.exercises import EXERCISES
from tests.test_set_up_cell import REPOSITORY

ROOT = Path(__file__).parent.parent
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "course" / "README.md",
    ROOT / "helpers" / "README.md",
    ROOT / "notebooks" / "glossary.md",
    *PATHS,
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
TERM = re.compile(r"^## (.+)\n\n(.+)\n\n(.+)$", re.MULTILINE)


def prose(path):
    if path.suffix != ".ipynb":
        return path.read_text("utf-8")
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def anchors(path):
    """Return the anchors that GitHub and the site give to the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_inside_the_project_lead_somewhere(path):
    for link in LINK.findall(prose(path)):
        link = link.removeprefix(f"{REPOSITORY}/blob/main/")
        if link.startswith("https://"):
            continue
        place, _, anchor = link.partition("#")
        from_root = f"({REPOSITORY}/blob/main/{link})" in prose(path)
        target = (ROOT if from_root else path.parent) / place if place else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def glossary():
    return TERM.findall(prose(ROOT / "notebooks" / "glossary.md"))


def test_every_term_has_a_meaning_a_notebook_and_three_languages():
    assert len(glossary()) == len(anchors(ROOT / "notebooks" / "glossary.md")) - 1  # its title
    for term, meaning, words in glossary():
        assert re.search(r"\[Notebook (\d\d)\]\(\1_\w+\.ipynb\)\.$", meaning), term
        languages = re.fullmatch(r"\*es\* (.+) · \*da\* (.+) · \*pt\* (.+)", words)
        assert languages, term
        assert all(languages.groups()), term


def test_every_term_is_linked_from_its_first_mention():
    for term, meaning, _ in glossary():
        (name,) = re.findall(r"\((\w+\.ipynb)\)", meaning)
        link = f"](glossary.md#{term.replace(' ', '-')})"
        assert prose(ROOT / "notebooks" / name).count(link) == 1, term


def test_headings_of_the_glossary_are_their_own_anchors():
    """JupyterLab keeps capital letters in an anchor, and GitHub and the site do not."""
    for term, _, _ in glossary():
        assert re.fullmatch(r"[a-z0-9]+([ -][a-z0-9]+)*", term), term


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_glossary_is_beside_the_notebook_and_for_colab_on_the_web(path):
    page = f"{REPOSITORY}/blob/main/notebooks/glossary.md"
    links = LINK.findall(prose(path))
    assert [link for link in links if link.startswith(page)] == [page]
    assert links.count("glossary.md") == 1
    assert "define(" in prose(path)


def test_teachers_find_every_exercise_once_and_in_its_notebook():
    text = prose(ROOT / "course" / "README.md")
    section = text.partition("## Exercises")[2].partition("\n## ")[0]
    listed = []
    rows = re.findall(r'^\| (\d\d) \| "([^"]+)" \| (●+) \| (\d+) \|$', section, re.MULTILINE)
    for number, name, dots, minutes in rows:
        listed.append(name)
        (path,) = (path for path in PATHS if path.name.startswith(number))
        cells = nbformat.read(path, as_version=4).cells
        assert any(f'check("{name}"' in cell.source for cell in cells), name
        exercise = EXERCISES[name]
        assert (len(dots), int(minutes)) == (exercise.dots, exercise.minutes), name
    assert sorted(listed) == sorted(EXERCISES)


def test_readme_and_teachers_name_every_notebook():
    for page in (ROOT / "README.md", ROOT / "course" / "README.md"):
        for path in PATHS:
            assert f"{path.name})" in prose(page)
