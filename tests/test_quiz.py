import re
from pathlib import Path
from statistics import mean
from xml.etree import ElementTree

import pytest

from helpers.claims import stored_verdicts
from helpers.exercises import NOTEBOOKS, quiz
from helpers.exercises.questions import WIDTH, Quiz, ask, no, yes

NUMBERS = range(1, len(NOTEBOOKS) + 1)
QUESTIONS = [question for number in NUMBERS for question in quiz(number).questions]
FOLDER = Path(__file__).parent.parent / "notebooks"
VERDICTS = stored_verdicts()
PLANNING = 9  # the notebook that measures no verdict of its own, and lists those of all


def tree(made):
    return ElementTree.fromstring(f"<div>{made._repr_html_()}</div>")


def words(element):
    return " ".join("".join(element.itertext()).split())


@pytest.mark.parametrize("number", NUMBERS)
def test_a_notebook_has_four_to_six_questions(number):
    assert 4 <= len(quiz(number).questions) <= 6


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text[:30])
def test_one_answer_is_right_and_each_has_its_why(question):
    assert [answer.right for answer in question.answers].count(True) == 1
    assert 2 <= len(question.answers) <= 4
    assert question.text.endswith(("?", "."))
    assert "?" in question.text or "checked" in question.text
    for answer in question.answers:
        assert len(answer.why) > 20
        assert answer.why.endswith(".")
    texts = [answer.text for answer in question.answers]
    assert len({*texts, *(answer.why for answer in question.answers)}) == 2 * len(texts)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_verdict_of_a_notebook_is_asked_after(number):
    measured = {verdict.number for verdict in VERDICTS if verdict.notebook[:2] == f"{number:02}"}
    asked = {question.verdict for question in quiz(number).questions} - {""}
    assert asked <= {verdict.number for verdict in VERDICTS}
    assert asked == measured or number == PLANNING


def test_the_statement_that_held_without_condition_is_the_only_one_offered():
    (question,) = (question for question in quiz(PLANNING).questions if question.verdict)
    findings = {verdict.statement: verdict.finding for verdict in VERDICTS}
    for answer in question.answers:
        assert (findings[answer.text] == "holds") == answer.right


@pytest.mark.parametrize("number", NUMBERS)
def test_place_does_not_tell_the_right_answer(number):
    places = [
        [a.right for a in question.answers].index(True) for question in quiz(number).questions
    ]
    assert len(set(places)) == 3
    assert max(map(places.count, places)) <= 3


def test_length_does_not_tell_the_right_answer():
    longest = (max(question.answers, key=lambda answer: len(answer.text)) for question in QUESTIONS)
    assert 0.2 < mean(answer.right for answer in longest) < 0.5


@pytest.mark.parametrize("number", NUMBERS)
def test_in_a_notebook_each_answer_is_a_fold_with_its_own_name(number):
    made = quiz(number)
    asked = tree(made).findall("ol/li")
    assert len(asked) == len(made.questions)
    for item, question in zip(asked, made.questions):
        assert words(item.find("p")).startswith(" ".join(question.text.split()))
        folds = item.findall("details")
        assert all(fold.get("open") is None for fold in folds)
        names = [words(fold.find("summary")) for fold in folds]
        assert [name[3:] for name in names] == [answer.text for answer in question.answers]
        assert [name[:2] for name in names] == ["a.", "b.", "c."]
        for fold, answer in zip(folds, question.answers):
            sign = "✓ Right." if answer.right else "✗ No."
            assert words(fold.find("p")) == f"{sign} {answer.why}"


@pytest.mark.parametrize("number", NUMBERS)
def test_it_needs_no_script_no_style_sheet_and_no_form(number):
    shown = quiz(number)._repr_html_()
    assert not re.search(r"<script|<style|<input|<button|\son\w+=|\sid=|https?://", shown)
    assert {element.tag for element in tree(quiz(number)).iter()} == {
        *("div", "p", "strong", "ol", "li", "details", "summary")
    }


@pytest.mark.parametrize("number", NUMBERS)
def test_as_text_it_lists_questions_and_answers_and_does_not_tell(number):
    text = repr(quiz(number))
    assert max(map(len, text.splitlines())) <= WIDTH
    flat = " ".join(text.split())
    for question in quiz(number).questions:
        assert question.text in flat
        assert all(answer.text in flat for answer in question.answers)
        assert not any(answer.why in flat for answer in question.answers)
    assert "Right" not in text
    assert text == repr(quiz(number))


def test_signs_of_html_in_a_question_are_shown():
    made = Quiz(1, (ask("Is 1 < 2 & 3?", yes("x < y", "As <b>."), no("x > y", "It is not.")),))
    assert words(tree(made).find("ol/li/p")) == "Is 1 < 2 & 3?"
    assert words(tree(made).find("ol/li/details/p")) == "✓ Right. As <b>."


@pytest.mark.parametrize("number", [0, 10, -1])
def test_no_such_notebook(number):
    with pytest.raises(ValueError, match="number must be"):
        quiz(number)
    with pytest.raises(TypeError, match="number must be"):
        quiz("01")
