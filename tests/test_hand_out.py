"""What a teacher hands out: no solutions for the students, and marks that can be lost."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from course.hand_out import CHECK, for_nbgrader, for_students
from helpers.exercises import EXERCISES

ROOT = Path(__file__).parent.parent
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def read(path):
    return nbformat.read(path, as_version=4)


def by_id(notebook):
    return {cell.id: cell for cell in notebook.cells}


def ids(cells):
    return [cell.id for cell in cells]


@pytest.fixture(scope="module")
def graded():
    return {path.stem: for_nbgrader(read(path), path.stem) for path in PATHS}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_students_get_everything_but_outputs_and_solutions(path):
    stored, handed = read(path), for_students(read(path))
    assert ids(handed.cells) == ids(stored.cells)
    for before, after in zip(stored.cells, handed.cells):
        if after.cell_type == "code":
            assert (after.source, after.outputs, after.execution_count) == (before.source, [], None)
        elif after.id.endswith("-solution"):
            assert "<details>" not in after.source
            assert after.source.startswith("Stuck? Run `hint(")
        else:
            assert after.source == before.source


def test_every_exercise_is_worth_one_point(graded):
    asked = []
    for notebook in graded.values():
        for cell in notebook.cells:
            mark = cell.metadata.get("nbgrader", {})
            if mark.get("grade"):
                assert (mark["points"], mark["locked"], mark["solution"]) == (1, True, False)
                asked.append(cell.source.split('"')[1])
    assert sorted(asked) == sorted(EXERCISES)


def test_grade_ids_are_unique_and_of_the_third_schema(graded):
    marks = [
        cell.metadata.nbgrader
        for notebook in graded.values()
        for cell in notebook.cells
        if "nbgrader" in cell.metadata
    ]
    assert len({mark.grade_id for mark in marks}) == len(marks)
    assert {mark.schema_version for mark in marks} == {3}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_solution_earns_the_points_and_no_answer_loses_them(path, graded):
    cells = by_id(graded[path.stem])
    unanswered = by_id(for_students(read(path)))
    for name in [name for name in cells if name.endswith("-answer")]:
        right, none = {"check": print}, {"check": print}
        exec(cells[name].source, right)
        exec(unanswered[name].source, none)
        points = [cell for cell in cells if cell.startswith(name.replace("answer", "points"))]
        assert len(points) == len(CHECK.findall(cells[name].source)) > 0
        for point in points:
            exec(cells[point].source, right)
            with pytest.raises(AssertionError, match="waiting for your answer"):
                exec(cells[point].source, none)


def test_the_command_writes_both_kinds(tmp_path):
    command = [sys.executable, "-m", "course.hand_out", "--to", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for kind in ("student", "nbgrader"):
        written = sorted((tmp_path / kind).glob("*.ipynb"))
        assert [path.name for path in written] == [path.name for path in PATHS]
        assert (tmp_path / kind / "glossary.md").exists()
        for path in written:
            nbformat.validate(read(path))
