"""An entry of the glossary printed anywhere: as on the page, in lines that nothing cuts."""

import pytest

from helpers import glossary
from helpers.glossary import define, entries
from tests.test_prose import glossary as on_the_page


def test_every_entry_of_the_page_is_printed_whole(capsys):
    for term, meaning, words in on_the_page():
        define(term.upper())
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 79
        said = " ".join(lines)
        assert said.startswith(f"{term}: {meaning.split('[Notebook')[0]}"[:60])
        assert said.endswith(words.replace("*", ""))
        assert "](" not in said


@pytest.mark.parametrize("wrong", ["batches", "", None, 3])
def test_what_is_no_term_is_refused_with_the_terms_that_are(wrong):
    with pytest.raises(ValueError, match=r"term must be one of .*'batch'.*'warmup'; got"):
        define(wrong)


def test_in_an_installed_package_the_page_lies_beside_it(monkeypatch, tmp_path):
    page = (
        "# Glossary\n\n## word\n\nA [thing](#thing). [Notebook 01](x.ipynb).\n\n*es* a · *da* b\n"
    )
    (tmp_path / "glossary.md").write_text(page, "utf-8")
    monkeypatch.setattr(glossary, "PLACES", (tmp_path,))
    assert entries() == {"word": ("A thing. Notebook 01.", "es a · da b")}
