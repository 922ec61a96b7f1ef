"""Make the notebooks that a teacher hands out: ``python -m course.hand_out [--to build]``.

``student`` holds the notebooks without outputs and without solutions, ready to be worked through.
``nbgrader`` holds the same with nbgrader's marks: each answer is a solution cell, followed by a
locked cell for each exercise that is worth one point. It has the solutions in it, for nbgrader to
take out.
"""

import argparse
import re
import shutil
from pathlib import Path

import nbformat
from nbformat import NotebookNode

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
FOLD = re.compile(r"\n*<details><summary>Solution</summary>.*?</details>", re.DOTALL)
SOLUTION = re.compile(r"<summary>Solution</summary>.*?```python\n(.*?)```", re.DOTALL)
CHECK = re.compile(r"^check\((.*)\)$", re.MULTILINE)


def without_outputs(notebook: NotebookNode) -> NotebookNode:
    """Take the outputs out of a notebook, and return it as if it had never run."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def for_students(notebook: NotebookNode) -> NotebookNode:
    """Take outputs and solutions out of a notebook, and return it."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = FOLD.sub("", cell.source)
    return without_outputs(notebook)


def for_nbgrader(notebook: NotebookNode, name: str) -> NotebookNode:
    """Mark the answers of a notebook as nbgrader wants them, and return it without outputs."""
    solutions = {
        cell.id.removesuffix("-solution"): SOLUTION.search(cell.source)
        for cell in notebook.cells
        if cell.id.endswith("-solution")
    }
    marked = []
    for cell in for_students(notebook).cells:
        marked.append(cell)
        exercise = cell.id.removesuffix("-answer")
        if exercise == cell.id:
            continue
        grade_id, checks = f"{name}-{exercise}", CHECK.findall(cell.source)
        answer = CHECK.sub("", solutions[exercise][1]).strip()
        asked = "\n".join(f"check({arguments})" for arguments in checks)
        cell.source = f"### BEGIN SOLUTION\n{answer}\n### END SOLUTION\n\n{asked}"
        cell.metadata["nbgrader"] = _mark(grade_id, solution=True)
        for number, arguments in enumerate(checks, start=1):
            marked.append(_graded(arguments, f"{exercise}-points-{number}", name))
    notebook.cells = marked
    return notebook


def _graded(arguments: str, cell_id: str, name: str) -> NotebookNode:
    """Return the locked cell that follows an answer: an error in it costs the point."""
    source = f"from helpers.exercises import require\n\nrequire({arguments})"
    mark = _mark(f"{name}-{cell_id}", grade=True, locked=True, points=1)
    return nbformat.v4.new_code_cell(source, id=cell_id, metadata={"nbgrader": mark})


def _mark(grade_id: str, **values: bool | int) -> dict:
    """Return the metadata of a cell in nbgrader's third schema."""
    mark = {"grade": False, "locked": False, "solution": False, "task": False}
    return mark | {"grade_id": grade_id, "schema_version": 3} | values


def main() -> None:
    """Write both kinds of every notebook."""
    parser = argparse.ArgumentParser(prog="python -m course.hand_out", description=__doc__)
    parser.add_argument("--to", type=Path, default=Path("build"), help="the folder to write into")
    folder = parser.parse_args().to
    for kind in ("student", "nbgrader"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        shutil.copy(NOTEBOOKS / "glossary.md", folder / kind)  # the notebooks link to it
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        student = for_students(nbformat.read(path, as_version=4))
        nbformat.write(student, folder / "student" / path.name)
        graded = for_nbgrader(nbformat.read(path, as_version=4), path.stem)
        nbformat.write(graded, folder / "nbgrader" / path.name)
    print(f"written: {folder / 'student'} and {folder / 'nbgrader'}")


if __name__ == "__main__":
    main()
