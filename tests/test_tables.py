import math
from xml.etree import ElementTree

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.tables import WIDTH, table

HEADS = ("batch size", "loss (nats)")
NAN = float("nan")


def cells(made):
    """Return the heads and rows of the HTML."""
    root = ElementTree.fromstring(made._repr_html_())
    return [[cell.text or "" for cell in row] for row in root.iter("tr")]


def column(*values):
    """Return a column of a table as it is written."""
    made = table([(f"row {n}", value) for n, value in enumerate(values)], HEADS, "Some values.")
    return [row[1] for row in made.rows]


def test_text_is_aligned_with_its_caption_heads_and_a_rule():
    made = table([(4, 2.104, "sgd"), (1024, 12.5, "adamw")], (*HEADS, "rule"), "The end of runs.")
    assert repr(made) == (
        "The end of runs.\n\n"
        "batch    loss\n"
        " size  (nats)  rule\n"
        "─────  ──────  ─────\n"
        "    4     2.1  sgd\n"
        "1,024    12.5  adamw"
    )


def test_html_is_a_real_table_with_the_same_cells():
    made = table([("a < b", 1.5), ("c", None)], ("name & kind", "loss"), "A caption with <.")
    root = ElementTree.fromstring(made._repr_html_())
    assert root.tag == "table"
    assert root.find("caption").text == "A caption with <."
    assert [cell.get("scope") for cell in root.iter("th")] == ["col", "col", "row", "row"]
    assert cells(made) == [list(made.heads), *map(list, made.rows)]
    assert cells(made)[1][0] == "a < b"


@pytest.mark.parametrize("lost", [NAN, math.inf, torch.tensor(NAN), numpy.float32("nan")])
def test_a_lost_run_is_lost_and_never_nan(lost):
    made = table([(4, 2.5), (64, lost)], HEADS, "One was lost.")
    for shown in (repr(made), made._repr_html_()):
        assert "lost" in shown.partition("One was lost.")[2]
        assert "nan" not in shown
        assert "inf" not in shown
    assert made.numeric == (True, True)


def test_a_huge_number_can_be_read():
    assert column(482555681832962.188, 3.0) == ["4.83e14", "3.00"]
    assert column(123_456_789) == ["123,456,789"]
    assert column(10**16) == ["1.00e16"]


def test_digits_tell_values_apart_and_suit_their_size():
    assert column(2.101, 2.104) == ["2.101", "2.104"]
    assert column(2.104, 2.5) == ["2.10", "2.50"]
    assert column(1, 2.5) == ["1.00", "2.50"]
    assert column(123.4, 99.0) == ["123", "99"]
    assert column(1e-5, 0.1) == ["1e-05", "0.1"]
    assert column(0.0, -0.001, 2.5, 0.3)[0] == "0"
    assert column(12345.6, 0.01) == ["12,346", "0.01"]
    assert column(0.5, -0.5) == ["0.500", "-0.500"]
    assert column(2.0, 2.0) == ["2.00", "2.00"]


def test_words_for_true_false_and_nothing():
    assert column(True, False, None) == ["yes", "no", ""]


@pytest.mark.parametrize("number", [numpy.int64(1234), torch.tensor(1234), 1234])
def test_numbers_from_anywhere(number):
    assert column(number) == ["1,234"]


@pytest.mark.parametrize(
    ("value", "numeric"),
    [("12 %", True), ("3.1 ± 0.2", True), ("1,024", True), ("4 at once", False), ("sgd", False)],
)
def test_text_that_is_a_number_stands_to_the_right(value, numeric):
    assert table([("a", value)], HEADS, "Sides.").numeric == (False, numeric)


def test_columns_that_do_not_fit_go_below_with_the_names_again():
    heads = ("batch size", *(f"rate {number}" for number in range(20)))
    made = table([(4, *range(20)), (16, *range(20))], heads, "Wide.")
    blocks = repr(made).split("\n\n")[1:]
    assert len(blocks) == 2
    assert all("batch" in block.splitlines()[0] for block in blocks)
    assert all(f"rate {number}" in made._repr_html_() for number in range(20))


def test_many_words_take_several_lines_and_none_is_left_out():
    finding = "holds when " * 20
    made = table([("P1", finding, 3)], ("number", "finding", "notebook"), "Found. " * 30)
    assert (repr(made).count("holds"), repr(made).count("when")) == (20, 20)
    assert repr(made).count("Found.") == 30


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text("ab <&", max_size=99)
)


@given(st.lists(st.lists(VALUES, min_size=5, max_size=5), min_size=1, max_size=4))
def test_no_line_is_cut_by_a_page_and_html_is_well_formed(rows):
    made = table(rows, ("name", "a", "some more words", "c", "d (nats)"), "Whatever comes.")
    assert max(map(len, repr(made).splitlines())) <= WIDTH
    assert len(cells(made)) == len(rows) + 1
    assert repr(made) == repr(table(rows, made.heads, made.caption))


@given(st.lists(st.floats(0.5, 400), min_size=1, max_size=6))
def test_values_can_be_read_back_to_two_digits(values):
    for written, value in zip(column(*values), values):
        assert float(written.replace(",", "")) == pytest.approx(value, rel=0.05)


@pytest.mark.parametrize(
    ("rows", "heads", "caption", "problem"),
    [
        ([], HEADS, "No rows.", "rows must hold"),
        ([(1, 2, 3)], HEADS, "Too long.", "a value for each of the 2 heads; got 3"),
        ([(1, 2)], HEADS, "", "caption must say"),
        ([(1, 2)], ("size", ""), "No head.", "heads must name"),
    ],
)
def test_bad_input_is_told(rows, heads, caption, problem):
    with pytest.raises(ValueError, match=problem):
        table(rows, heads, caption)
