import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.claims import ClaimError, Verdict, claim, collect_verdicts, stored_verdicts, verdict
from helpers.replicates import Replicates

SURE = Replicates([0.31, 0.36, 0.33, 0.38])
UNSURE = Replicates([0.1, 0.9, 0.2, 0.8])
LONG = "A statement that goes on and on until no page of eighty characters could hold it any more."


def test_claim_prints_the_statement_and_its_numbers(capsys):
    claim("It holds.", 2 > 1, slope_of_it=-0.4987, updates=12345, parts=[0.5, 2], ok_=True)
    out = capsys.readouterr().out
    assert out == (
        "✓ It holds. [slope of it = -0.499, updates = 12,345, parts = 0.5 / 2, ok  =\n  True]\n"
    )


def test_false_claim_raises_with_the_numbers():
    with pytest.raises(ClaimError, match=r"not borne out here: It holds\. \[gap = nan\]"):
        claim("It holds.", math.nan < 1, gap=math.nan)


@pytest.mark.parametrize("ok", [True, np.bool_(True), torch.tensor(True), torch.tensor([True])])
def test_one_truth_is_accepted(ok):
    claim("It holds.", ok)


@pytest.mark.parametrize("ok", [np.bool_(False), torch.tensor(False)])
def test_one_falsehood_is_seen(ok):
    with pytest.raises(ClaimError):
        claim("It holds.", ok)


@pytest.mark.parametrize(
    "ok", [(False, "reason"), "False", None, 1, 0.5, [], torch.tensor([True, True]), np.ones(2)]
)
def test_what_is_no_comparison_is_refused(ok):
    with pytest.raises(TypeError, match="ok must be one comparison"):
        claim("It holds.", ok)


def test_verdict_prints_statement_finding_and_numbers(capsys):
    verdict("P2", "Bigger is steadier.", "holds", torch.tensor(True), slope=torch.tensor(-0.5))
    assert capsys.readouterr().out == "P2 “Bigger is steadier.”\n   holds [slope = -0.5]\n"


def test_verdict_that_is_not_measured_raises():
    with pytest.raises(ClaimError, match="P2 does not hold"):
        verdict("P2", "Bigger is steadier.", "does not hold", False)


@pytest.mark.parametrize("finding", ["true", "maybe", ""])
def test_verdict_is_one_of_four(finding):
    with pytest.raises(ValueError, match="finding must begin with"):
        verdict("P2", "Bigger is steadier.", finding, True)


def test_verdicts_are_collected_from_what_notebooks_printed(tmp_path, capsys):
    verdict("P10", "Big is “fast”.", "holds when it is; not else", True, ratio=2.5)
    verdict("P2", "Small is slow.", "does not hold", True)
    printed = capsys.readouterr().out
    cells = [
        {"id": "first", "outputs": [{"text": ["P3 “No verdict cell.”\n", "   holds\n"]}]},
        {"id": "verdicts", "outputs": [{"text": printed.splitlines(keepends=True)}]},
    ]
    (tmp_path / "01_a.ipynb").write_text(json.dumps({"cells": cells}), "utf-8")
    assert collect_verdicts(tmp_path) == [
        Verdict("P2", "Small is slow.", "does not hold", "01_a"),
        Verdict("P10", "Big is “fast”.", "holds when it is; not else", "01_a"),
    ]
    assert collect_verdicts(tmp_path / "none") == []


def test_stored_verdicts_are_those_of_the_notebooks():
    notebooks = Path(__file__).parent.parent / "notebooks"
    assert stored_verdicts() == collect_verdicts(notebooks)
    assert {verdict.number for verdict in stored_verdicts()} == {f"P{n}" for n in range(1, 24)}


@pytest.mark.parametrize(
    ("number", "finding", "words"),
    [
        ("7", "holds", "number must be P and digits"),
        ("P7", "holdsnonsense", "finding must begin with"),
        ("P7", "holds when", "finding must begin with"),
        ("P7", "holds when B is in [8, 64]", "no square brackets"),
    ],
)
def test_a_verdict_that_could_not_be_collected_is_refused(number, finding, words):
    with pytest.raises(ValueError, match=words):
        verdict(number, "S", finding, True)


def test_a_false_claim_shows_all_elements_of_what_was_measured():
    with pytest.raises(ClaimError, match=r"losses = 1 / 2"):
        claim("x", False, losses=torch.tensor([1.0, 2.0]))


def test_a_claim_on_runs_says_how_sure_it_is(capsys):
    claim("It is higher.", SURE > 0.15, by=SURE)
    assert capsys.readouterr().out == (
        "✓ It is higher. [by = 0.345 ± 0.0155 (4 runs); 12.5 standard errors from 0.15]\n"
    )


def test_what_is_not_decided_does_not_stop_a_reader(capsys, monkeypatch):
    monkeypatch.delenv("CLAIMS", raising=False)
    claim("It is higher.", UNSURE > 0.3, by=UNSURE)
    verdict("P2", "Bigger is steadier.", "holds", UNSURE > 0.3)
    out = " ".join(capsys.readouterr().out.split())
    assert "? Not decided by so few runs: It is higher. About 14 would decide it. [by = 0.5" in out
    assert "“Bigger is steadier.” ? Not decided by so few runs: P2 holds" in out


def test_in_the_checks_what_is_not_decided_is_an_error(monkeypatch):
    monkeypatch.setenv("CLAIMS", "strict")
    with pytest.raises(ClaimError, match="Not decided by so few runs: It is higher"):
        claim("It is higher.", UNSURE > 0.3)
    with pytest.raises(ClaimError, match="Not decided"):
        verdict("P2", "Bigger is steadier.", "holds", UNSURE > 0.3)


def test_what_is_contradicted_stops_everybody(monkeypatch):
    monkeypatch.delenv("CLAIMS", raising=False)
    with pytest.raises(ClaimError, match=r"not borne out here: It is lower\. \[by = 0\.345"):
        claim("It is lower.", SURE < 0.15, by=SURE)


def test_no_line_is_cut_and_long_verdicts_can_be_read_back(tmp_path, capsys):
    claim(LONG, True, measured=[1.5] * 20)
    verdict("P4", LONG, f"holds when {LONG[:-1]}", SURE > 0.15, by=SURE)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    cells = [{"id": "verdicts", "outputs": [{"text": printed}]}]
    (tmp_path / "01_a.ipynb").write_text(json.dumps({"cells": cells}), "utf-8")
    assert collect_verdicts(tmp_path) == [Verdict("P4", LONG, f"holds when {LONG[:-1]}", "01_a")]


def test_an_undecided_verdict_is_not_collected(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("CLAIMS", raising=False)
    verdict("P3", "Small is slow.", "holds", UNSURE > 0.3)
    verdict("P2", "Small is slow.", "holds", True)
    cells = [{"id": "verdicts", "outputs": [{"text": capsys.readouterr().out}]}]
    (tmp_path / "01_a.ipynb").write_text(json.dumps({"cells": cells}), "utf-8")
    assert [found.number for found in collect_verdicts(tmp_path)] == ["P2"]
