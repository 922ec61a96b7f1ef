"""The map of ``helpers``, drawn from its imports: ``python -m tests.map`` writes it anew.

A *file* is known by its dotted name. A *room* is what lies directly in the folder: a module, or a
package with all that is in it.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

HELPERS = Path(__file__).parent.parent / "helpers"
PAGE = HELPERS / "README.md"
START, END = "<!-- map -->\n", "<!-- end of map -->\n"

Arrows = dict[str, set[str]]


@dataclass(frozen=True)
class House:
    """The files of a package, what each imports of the others, and what from elsewhere."""

    files: dict[str, Path]
    arrows: Arrows
    outside: Arrows

    @property
    def rooms(self) -> Arrows:
        """Which rooms each room imports, itself left out."""
        found: Arrows = {room(name): set() for name in self.files if "." in name}
        for name, others in self.arrows.items():
            if "." in name:
                found[room(name)] |= {room(other) for other in others if "." in other}
        return {name: others - {name} for name, others in sorted(found.items())}

    @property
    def without_torch(self) -> list[str]:
        """The rooms that import no torch, nor any room that does."""
        heavy = {room(name) for name, others in self.outside.items() if "torch" in others}
        return [name for name in self.rooms if not heavy & {name, *reached(self.rooms, name)}]


def room(name: str) -> str:
    return name.split(".")[1]


def survey(folder: Path) -> House:
    """Read every file of a package, with imports inside functions and under TYPE_CHECKING."""
    files = {dotted(path, folder): path for path in sorted(folder.rglob("*.py"))}
    arrows, outside = {}, {}
    for name, path in files.items():
        package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        imported = set(imports(path.read_text("utf-8"), package))
        ours = {known(one, files) for one in imported if one.split(".")[0] == folder.name}
        arrows[name] = ours - {name}
        outside[name] = {one.split(".")[0] for one in imported} - {folder.name}
    return House(files, arrows, outside)


def dotted(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(code: str, package: Sequence[str] = ()):
    """Yield the dotted name of all that code imports, with the name after ``import`` on it.

    ``package`` is what it lies in, for imports that begin with a dot.
    """
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = [*package][: len(package) - node.level + 1] if node.level else []
            module = [*start, *([node.module] if node.module else [])]
            yield from (".".join([*module, alias.name]) for alias in node.names)


def known(name: str, files: dict[str, Path]) -> str:
    """Return the file that an imported name comes from."""
    while name not in files and "." in name:
        name = name.rpartition(".")[0]
    return name


def reached(arrows: Arrows, start: str) -> set[str]:
    """Return all that is imported from ``start``, directly or through others."""
    found: set[str] = set()
    waiting = [*arrows[start]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += arrows[name]
    return found


def circle(arrows: Arrows) -> list[str]:
    """Return names that import each other in a circle, or nothing."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def nearest(arrows: Arrows) -> Arrows:
    """Leave out each arrow that a way over other rooms implies."""
    return {
        name: {
            other
            for other in others
            if not any(other in reached(arrows, between) for between in others - {other})
        }
        for name, others in arrows.items()
    }


def picture(house: House) -> str:
    """Return the arrows between rooms in the language of Mermaid, from the ground up."""
    rooms = nearest(house.rooms)
    lines = [
        "```mermaid",
        "flowchart TD",
        "    accTitle: The rooms of helpers",
        "    accDescr: An arrow leads from a room to each that is built on it.",
        *(f"    {name}" for name, others in rooms.items() if not others),
        *(f"    {other} --> {name}" for name, others in rooms.items() for other in sorted(others)),
        "    classDef light fill:#d9f0e6,stroke:#009e73,color:#000",
        f"    class {','.join(house.without_torch)} light",
        "```",
    ]
    return "\n".join(lines)


def idea(path: Path) -> str:
    """Return the first paragraph of a file's docstring, as Markdown."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`")


def rooms_in_words(house: House, names: list[str]) -> str:
    """Return a line for each room, with those of its files below it."""
    lines = []
    for name in names:
        inside = [one for one in house.files if "." in one and room(one) == name]
        path = house.files[inside[0]]
        place = f"{name}/" if path.name == "__init__.py" else path.name
        lines.append(f"- [`{place}`]({place}): {idea(path)}")
        for one in inside[1:]:
            path = house.files[one]
            lines.append(f"  - [`{path.name}`]({place}{path.name}): {idea(path)}")
    return "\n".join(lines)


def drawn(house: House) -> str:
    """Return the part of the page that follows from the code."""
    light = [name for name in house.without_torch if not name.startswith("_")]
    shared = [name for name in house.rooms if name.startswith("_")]
    heavy = [name for name in house.rooms if name not in light + shared]
    return "\n\n".join(
        (
            picture(house),
            "### Without torch",
            rooms_in_words(house, light),
            "### With torch",
            rooms_in_words(house, heavy),
            "### For all rooms",
            rooms_in_words(house, shared),
        )
    )


def redrawn(page: str, house: House) -> str:
    """Return the page with its map as it is now, and its own words as they are."""
    before, _, rest = page.partition(START)
    return f"{before}{START}\n{drawn(house)}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text("utf-8"), survey(HELPERS)), "utf-8")
