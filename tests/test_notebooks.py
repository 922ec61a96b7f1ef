"""What nbval cannot see: a notebook that is stripped, unrun, or not as all of them are built."""

import ast
import copy
import doctest
import html
import math
import re
from pathlib import Path

import nbformat
import pytest
import torch
from nbconvert import HTMLExporter

from course.hand_out import SOLUTION, without_outputs
from helpers import exercises
from tests.run_notebooks import (
    METADATA,
    PICTURE,
    PICTURE_CELL,
    WIDGET_TEXT,
    WIDGET_VIEW,
    normalise,
    picture_of,
    run,
)

ROOT = Path(__file__).parent.parent
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
IGNORED = "nbval-ignore-output"
SPEAKS = re.compile(
    r"^(print|claim|verdict|check|(plots|widgets|diagrams)\.|(table|quiz|progress)\()|^    print\(",
    re.MULTILINE,
)
CLAIMS = re.compile(r"^(claim|verdict)\(", re.MULTILINE)
SECTIONS = ("## What people say", "## Questions", "## Recap", "## References")
MOST_LINES = 20
LISTS = ("set-up", "imports", "verdicts")  # their length is no matter of reading
RESULTS = re.compile(r"<summary>What should come out</summary>.*?```python\n(.*?)```", re.DOTALL)


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose(notebook):
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def ignored(cell):
    return IGNORED in cell.metadata.get("tags", [])


def problems_of_file(notebook):
    """What a notebook must not bring into the repository."""
    if notebook.metadata != METADATA:
        yield f"metadata of a machine: {dict(notebook.metadata)}"
    if len({cell.id for cell in notebook.cells}) != len(notebook.cells):
        yield "two cells have the same id"
    for cell in notebook.cells:
        if set(cell.metadata) - {"tags"}:
            yield f"{cell.id}: metadata of an editor: {dict(cell.metadata)}"
        if set(cell.metadata.get("tags", [])) - {IGNORED}:
            yield f"{cell.id}: unknown tags {cell.metadata.tags}"


def problems_of_outputs(notebook):
    """What would make nbval pass without having compared anything, or fail for no reason."""
    cells = code_cells(notebook)
    if [cell.execution_count for cell in cells] != list(range(1, len(cells) + 1)):
        yield "not run from top to bottom: execution counts are missing or out of order"
    for cell in cells:
        if SPEAKS.search(cell.source) and not cell.outputs:
            yield f"{cell.id}: its output is stripped"
        for output in cell.outputs:
            if output.output_type == "error":
                yield f"{cell.id}: an error is stored"
            if output.get("name") == "stderr":
                yield f"{cell.id}: something on stderr is stored: {output.text[:80]}"
            data = output.get("data", {})
            if data.get("text/plain") == WIDGET_TEXT and "widgets." not in cell.source:
                yield f"{cell.id}: a progress bar is stored as if it were a widget"
            if WIDGET_VIEW in data:
                yield f"{cell.id}: a widget is stored, which no reader can load"
            if "image/png" in data and not output.metadata.get("image/png", {}).get("alt"):
                yield f"{cell.id}: a picture without an alternative text"
    if all(ignored(cell) or not cell.outputs for cell in cells):
        yield "not one output is compared"


def problems_of_code(notebook):
    """Habits that break in a course, in Colab or under nbval."""
    cells = code_cells(notebook)
    for position, cell in enumerate(cells):
        if cell.source.rstrip().endswith(";"):
            yield f"{cell.id}: ends with a semicolon, which hides the output from nbval"
        if "NBVAL_" in cell.source:
            yield f"{cell.id}: an nbval comment; use the cell tag"
        for word in ("num_workers", ".cuda(", "torch.cuda", "%matplotlib", "pyplot", "Agg"):
            if word in cell.source:
                yield f"{cell.id}: {word}"
        lines = [line for line in cell.source.splitlines() if line.strip()]
        alone = len(ast.parse(cell.source).body) == 1  # one definition cannot be cut
        if len(lines) > MOST_LINES + 4 * alone and cell.id not in LISTS:
            yield f"{cell.id}: {len(lines)} lines are too many to read"
        if "widgets." in cell.source and "import" not in cell.source and not ignored(cell):
            yield f"{cell.id}: a widget, which is another one in each run; tag it {IGNORED}"
        measured = ignored(cell) or "plots." in cell.source
        if measured and "widgets." not in cell.source and cell.id != "still-plan":
            following = cells[position : position + 4]
            if not any(CLAIMS.search(later.source) for later in following):
                yield f"{cell.id}: measured, and no claim follows"


def problems_of_anatomy(notebook):
    """What every notebook offers to its reader."""
    text = prose(notebook)
    if (
        not notebook.cells[0].source.startswith("# ")
        or "colab-badge" not in notebook.cells[0].source
    ):
        yield "no title with a Colab badge"
    if code_cells(notebook)[0].id != "set-up":
        yield "the set-up cell is not first"
    for section in SECTIONS:
        if section not in text:
            yield f"no section {section}"
    if len(SOLUTION.findall(text)) < 3:
        yield "fewer than three exercises with a solution"
    if text.count("<summary>Your guess first") < 3:
        yield "fewer than three questions to guess at"
    if not any("widgets." in cell.source for cell in code_cells(notebook)):
        yield "no widget"
    if not any(cell.source.startswith("diagrams.") for cell in code_cells(notebook)):
        yield "no diagram"
    number = re.match(r"# (\d\d) ", notebook.cells[0].source)
    if not any(number and cell.source == f"quiz({int(number[1])})" for cell in notebook.cells):
        yield "no questions on its concepts"
    if code_cells(notebook)[-1].source != "progress()":
        yield "does not end with the reader's progress"
    if "You need from before:" not in notebook.cells[0].source:
        yield "does not say what is needed from before"
    for name, section in sections(notebook):
        if "**In short:**" not in section:
            yield f"{name}: no summary"


def sections(notebook):
    """Yield the number of each section of the lesson, and its prose."""
    parts = re.split(r"^## (?=\d)", prose(notebook), flags=re.MULTILINE)
    for part in parts[1:]:
        yield part.split(" ")[0], re.split(r"^## ", part, flags=re.MULTILINE)[0]


def problems(notebook):
    for look in (problems_of_file, problems_of_outputs, problems_of_code, problems_of_anatomy):
        yield from look(notebook)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebook_has_no_problem(path):
    nbformat.validate(read(path))
    assert list(problems(read(path))) == []
    assert path.stat().st_size < 400_000


def test_there_are_notebooks():
    assert len(PATHS) >= 2


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_export_to_html_keeps_figures_and_alternative_texts(path):
    body, _ = HTMLExporter(template_name="classic").from_notebook_node(read(path))
    pictures = [
        output for output in all_outputs(read(path)) if "image/png" in output.get("data", {})
    ]
    assert body.count('src="data:image/png;base64') == len(pictures) > 0
    for output in pictures:
        assert f'alt="{output.metadata["image/png"]["alt"]}"' in html.unescape(body)


def all_outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def cell_named(notebook, name):
    return next(cell for cell in notebook.cells if cell.id == name)


def strip_one(notebook):
    cell_named(notebook, "piles").outputs = []


def never_run(notebook):
    cell_named(notebook, "piles").execution_count = None


def swap(notebook):
    first, second = (cell_named(notebook, name) for name in ("piles", "claim-piles"))
    first.execution_count, second.execution_count = second.execution_count, first.execution_count


def semicolon(notebook):
    cell_named(notebook, "noise").source += ";"


def reason_behind_marker(notebook):
    cell_named(notebook, "noise").source += "\n# NBVAL_IGNORE_OUTPUT because of time"


def no_claim(notebook):
    for cell in code_cells(notebook):
        if cell.id.startswith("claim-") or cell.id == "verdicts":
            cell.source = "pass"


def ignore_all(notebook):
    for cell in code_cells(notebook):
        cell.metadata["tags"] = [IGNORED]


def progress_bar(notebook):
    output = nbformat.v4.new_output("stream", name="stderr", text="100%|####| 10/10")
    cell_named(notebook, "noise").outputs.append(output)


def bar_as_widget(notebook):
    output = nbformat.v4.new_output("display_data", {"text/plain": WIDGET_TEXT})
    cell_named(notebook, "noise").outputs.append(output)


def other_kernel(notebook):
    notebook.metadata["kernelspec"]["name"] = "conda-root-py"


def widget_state(notebook):
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {}}


def widget_without_tag(notebook):
    cell_named(notebook, "widget").metadata = nbformat.from_dict({})


def no_alt(notebook):
    for output in cell_named(notebook, "noise").outputs:
        output.metadata = nbformat.from_dict({})


def no_recap(notebook):
    cell_named(notebook, "recap").source = ""


def no_quiz(notebook):
    cell_named(notebook, "quiz").source = "quiz(2)"


def no_progress(notebook):
    cell_named(notebook, "progress").source = "pass"


def no_diagram(notebook):
    cell_named(notebook, "diagram").source = "pass"


def no_summary(notebook):
    cell_named(notebook, "short-3").source = ""


def needs_nothing(notebook):
    cell_named(notebook, "title").source = cell_named(notebook, "title").source.replace("need", "")


def long_cell(notebook):
    cell_named(notebook, "piles").source += "\nprint(1)" * 20


BREAKS = (
    without_outputs, strip_one, never_run, swap, semicolon, reason_behind_marker, no_claim,
    ignore_all, progress_bar, bar_as_widget, other_kernel, widget_state, widget_without_tag,
    no_alt, no_recap, no_quiz, no_progress, no_diagram, no_summary, needs_nothing, long_cell,
)  # fmt: skip


@pytest.mark.parametrize("damage", BREAKS, ids=lambda damage: damage.__name__)
def test_lint_sees_the_damage(damage):
    notebook = copy.deepcopy(read(PATHS[0]))
    damage(notebook)
    assert list(problems(notebook))


def test_readme_shows_the_picture_that_is_stored():
    name, cell = PICTURE_CELL
    notebook = next(read(path) for path in PATHS if path.name == name)
    assert PICTURE.read_bytes() == picture_of(cell_named(notebook, cell))
    assert f"({PICTURE.relative_to(ROOT).as_posix()})" in (ROOT / "README.md").read_text("utf-8")


def test_normalise_leaves_a_stored_notebook_as_it_is():
    notebook = read(PATHS[0])
    before = copy.deepcopy(notebook)
    normalise(notebook)
    assert notebook == before


def test_normalise_takes_out_widgets_times_and_cuts():
    cell = nbformat.v4.new_code_cell(
        "1",
        metadata={"execution": {"iopub.execute_input": "now"}, "tags": [IGNORED]},
        outputs=[
            nbformat.v4.new_output("stream", text="one "),
            nbformat.v4.new_output("stream", text="line"),
            nbformat.v4.new_output("stream", name="stderr", text="!"),
            nbformat.v4.new_output("display_data", {WIDGET_VIEW: {}, "text/plain": "VBox()"}),
        ],
    )
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": {}})
    normalise(notebook)
    assert notebook.metadata == METADATA
    assert cell.metadata == {"tags": [IGNORED]}
    assert [output.get("text") for output in cell.outputs] == ["one line", "!", None]
    assert WIDGET_VIEW not in cell.outputs[2].data


DRAWN = """
from helpers import plots
from helpers.plan import RunPlan
print(RunPlan(810, 8))
plots.run_timeline(RunPlan(810, 8), [1.0] * 102)
"""


def test_running_again_changes_nothing_where_nothing_changed(tmp_path):
    path = tmp_path / "drawn.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(DRAWN)]), path)
    run(path)
    first = path.read_bytes()
    assert b"image/png" in first
    run(path)
    assert path.read_bytes() == first


def solutions():
    for path in PATHS:
        for number, code in enumerate(SOLUTION.findall(prose(read(path))), start=1):
            yield pytest.param(code, id=f"{path.stem}-{number}")


@pytest.mark.parametrize("code", list(solutions()))
def test_solution_in_the_fold_passes_its_check(code):
    answers = {}
    exec(code, {"check": answers.__setitem__})
    assert answers
    assert all(exercises.assess(name, answer)[0] for name, answer in answers.items())


def results():
    for path in PATHS:
        for cell in read(path).cells:
            for examples in RESULTS.findall(cell.source):
                (code,) = SOLUTION.findall(cell_named(read(path), f"{cell.id}-solution").source)
                yield pytest.param(code, examples, id=f"{path.stem}-{cell.id}")


@pytest.mark.parametrize(("code", "examples"), list(results()))
def test_what_should_come_out_of_an_exercise_comes_out_of_its_solution(code, examples):
    space = {"check": lambda *_: None, "math": math, "torch": torch}
    exec(code, space)
    assert ">>> " in examples
    test = doctest.DocTestParser().get_doctest(examples, space, "fold", None, None)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_every_exercise_is_asked_once_and_left_open():
    asked = []
    for path in PATHS:
        for cell in code_cells(read(path)):
            names = re.findall(r'^check\("([^"]+)"', cell.source, re.MULTILINE)
            asked += names
            assert cell.source.count("...") >= len(names)
            for output in cell.outputs if names else []:
                assert output.text.count("waiting for your answer") == len(names)
    assert sorted(asked) == sorted(exercises.EXERCISES)
