import ast
import json
import math

import nbformat
import pytest

from helpers import claims, data, device, model, train
from tests import evidence
from tests.evidence import MACHINES, TEXTS, Column, Finding, columns, table


def test_each_seed_meets_each_text_and_every_machine_has_its_turn():
    chosen = columns(5)
    assert len(set(chosen)) == 10
    assert {(column.seed, column.text) for column in chosen} == {
        (seed, text) for seed in range(5) for text in TEXTS
    }
    assert {(column.threads, column.capability) for column in chosen} == set(MACHINES)
    assert len(set(columns(5, full=True))) == 5 * 2 * 6


def test_a_column_makes_its_machine(monkeypatch):
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    old = Column(0, "harbour", "1", "default").environment
    assert (old["OMP_NUM_THREADS"], old["ATEN_CPU_CAPABILITY"]) == ("1", "default")
    assert "ATEN_CPU_CAPABILITY" not in Column(0, "harbour", "all", "best").environment


NOTEBOOK = """
from helpers.claims import claim, verdict
from helpers.data import load_text
from helpers.replicates import Replicates
SEED = 0
values = Replicates([SEED + 1.0, SEED + 1.1, SEED + 0.9])
claim("It is above a half.", values > 0.5, mean=values)
claim("It is wrong.", 1 > 2)
verdict("P1", "People say so.", "holds", len(load_text()) > 10**6)
"""


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """A small notebook, with all that ``run`` changes put back afterwards."""
    for module, name in ((claims, "claim"), (claims, "verdict"), (device, "preset")):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(data.load_text, "__defaults__", data.load_text.__defaults__)
    for function in (model.SmallLM.__init__, train.train, data.split, data.make_records):
        monkeypatch.setattr(function, "__kwdefaults__", dict(function.__kwdefaults__))
    path = tmp_path / "01_toy.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)]), path)
    return path


def test_a_run_notes_every_claim_and_goes_on(notebook):
    above, wrong, verdict = evidence.run(notebook, 2, "python-docs")
    # Seeds are ten apart: the mean is 21, its error 0.1 ÷ √3.
    assert above.outcome == "BORNE_OUT"
    assert above.distance == pytest.approx(20.5 / (0.1 / math.sqrt(3)))
    assert wrong == Finding("It is wrong.", "CONTRADICTED", None, "")
    assert (verdict.text, verdict.outcome) == (
        "P1 holds",
        "CONTRADICTED",
    )  # the other text is short
    assert model.SmallLM.__init__.__kwdefaults__["seed"] == 2


def test_a_call_that_trains_is_no_showing():
    bring, showing, training = ast.parse("import math\nplots.losses(x)\ntrain(model, data)").body
    assert evidence._only_shows(bring)
    assert evidence._only_shows(showing)
    assert not evidence._only_shows(training)


def test_what_ran_is_not_run_again_until_the_code_changes(notebook, tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "KEPT", tmp_path)
    column = Column(0, "harbour", "1", "best")
    assert evidence.found_before(notebook, column) is None
    row = {"text": "A.", "outcome": "BORNE_OUT", "distance": 4.0, "numbers": ""}
    stored = {"fingerprint": evidence.fingerprint(notebook), "findings": [row]}
    (tmp_path / f"01_toy-{column.name}.json").write_text(json.dumps(stored), "utf-8")
    assert evidence.found_before(notebook, column) == [Finding(**row)]
    evidence.fingerprint.cache_clear()
    book = nbformat.read(notebook, as_version=4)
    layout = "  # a remark\n\nprint(\n    values\n)\n"
    book.cells[0].source += layout
    nbformat.write(book, notebook)
    assert evidence.found_before(notebook, column) == [Finding(**row)]
    evidence.fingerprint.cache_clear()
    book.cells[0].source += "values = 1\n"
    nbformat.write(book, notebook)
    assert evidence.found_before(notebook, column) is None


def test_the_table_shows_the_worst_column():
    one, two = Column(0, "harbour", "1", "best"), Column(1, "python-docs", "all", "avx2")
    found = {
        "01_toy": {
            "A.": [
                (one, Finding("A.", "BORNE_OUT", 8.0, " [x = 1]")),
                (two, Finding("A.", "NOT_DECIDED", 2.5, " [x = 2]")),
            ],
            "B.": [(one, Finding("B.", "BORNE_OUT", None, ""))],
            "C.": [
                (one, Finding("C.", "BORNE_OUT", 5.0, "")),
                (two, Finding("C.", "CONTRADICTED", None, " [y = 3]")),
            ],
        }
    }
    lines = list(table(found))
    assert "| A. | 2 | 1 | 2.5 | x = 2 (python-docs, seed 1, all threads, avx2) |" in lines
    assert any(line.startswith("| B. | 1 | 1 | exact |") for line in lines)
    assert any(line.startswith("Not run with the code as it is now: 01_batches,") for line in lines)
    assert any("| C. | 2 | 1 | lost | y = 3 (python-docs" in line for line in lines)


def test_only_the_files_behind_a_notebook_count():
    behind = {path.name for path in evidence._files_behind("import helpers\n" + NOTEBOOK)}
    assert {"claims.py", "data.py", "world.py", "replicates.py"} <= behind
    assert not {"sweep.py", "train.py", "plots.py", "parallel.py"} & behind
    assert "train.py" in {p.name for p in evidence._files_behind("from helpers.sweep import sweep")}
