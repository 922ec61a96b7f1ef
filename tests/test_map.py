"""The map of helpers is as the code, and the code keeps the rules that are written on it."""

import subprocess
import sys

import pytest

from tests.map import HELPERS, PAGE, circle, idea, nearest, reached, redrawn, survey

HOUSE = survey(HELPERS)
LIGHT = ("plan", "schedule", "footprint", "shapes", "settings", "oom", "planner")


def test_the_map_is_as_the_code():
    page = PAGE.read_text("utf-8")
    assert redrawn(page, HOUSE) == page, "run python -m tests.map"


def test_every_file_says_its_idea():
    assert [name for name, path in HOUSE.files.items() if not idea(path)] == []


def test_no_circle_among_files():
    assert circle(HOUSE.arrows) == []


def test_no_circle_among_rooms():
    assert circle(HOUSE.rooms) == []


@pytest.mark.parametrize("name", LIGHT)
def test_arithmetic_needs_the_standard_library_alone(name):
    """So that it starts in a blink, and in a browser: here no other package can be found."""
    code = f"import sys; sys.path.insert(0, {str(HELPERS.parent)!r}); import helpers.{name}"
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert name in HOUSE.without_torch


def test_nothing_imports_widgets_and_only_widgets_imports_plots():
    assert [name for name, others in HOUSE.rooms.items() if "widgets" in others] == []
    assert [name for name, others in HOUSE.rooms.items() if "plots" in others] == ["widgets"]


def test_what_goes_into_a_run_knows_nothing_of_training():
    for name in ("data", "model", "device", "decoder"):
        assert not reached(HOUSE.rooms, name) & {"train", "sweep", "parallel", "noise", "memory"}


def test_no_file_is_longer_than_400_lines():
    lengths = {name: path.read_text("utf-8").count("\n") for name, path in HOUSE.files.items()}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


@pytest.fixture
def small(tmp_path):
    """Return a function that writes a package of these files, and surveys it."""

    def write(**files):
        folder = tmp_path / "small"
        for name, text in {"__init__": "", **files}.items():
            path = folder / f"{name.replace('__in__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return survey(folder)

    return write


@pytest.mark.parametrize(
    "back",
    [
        "import small.one",
        "import small.one as one",
        "from small import one",
        "from small.one import thing",
        "from . import one",
        "from .one import thing",
        "def late():\n    from small.one import thing",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from small.one import thing",
    ],
)
def test_a_circle_is_found_however_it_is_written(small, back):
    house = small(one="from small import two", two=back)
    assert set(circle(house.arrows)) == {"small.one", "small.two"}
    assert set(circle(house.rooms)) == {"one", "two"}


def test_rooms_may_stand_in_a_circle_where_their_files_do_not(small):
    house = small(
        a__in____init__="",
        a__in__first="",
        a__in__last="from small.b import thing",
        b="from small.a.first import thing",
    )
    assert circle(house.arrows) == []
    assert set(circle(house.rooms)) == {"a", "b"}


def test_torch_is_seen_through_other_rooms(small):
    house = small(heavy="def late():\n    import torch.nn", uses="from .heavy import x", light="")
    assert house.without_torch == ["light"]


def test_an_arrow_that_others_imply_is_left_out():
    assert nearest({"a": set(), "b": {"a"}, "c": {"a", "b"}}) == {
        "a": set(),
        "b": {"a"},
        "c": {"b"},
    }
