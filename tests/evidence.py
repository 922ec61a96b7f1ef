"""The evidence: every claim of the notebooks on other seeds, texts and processors.

``python -m tests.evidence [NOTEBOOK ...]`` runs each notebook once for each column and writes the
table ``tests/evidence.md``. A column is a seed, a text, a number of threads, and a capability of
the processor, which decides the kernels that torch takes. Each seed meets each text, and the six
machines of threads and capability take turns; ``--full`` lets every seed and text meet every
machine. What is there already from the same code is not run again, so that a run that was stopped
goes on where it stood.
"""

import argparse
import ast
import contextlib
import hashlib
import inspect
import io
import itertools
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import NamedTuple

import nbformat
from tqdm.auto import tqdm

from helpers import claims, data, device, model, train
from tests.map import HELPERS, imports, known, room, survey

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "build" / "evidence"
TABLE = Path(__file__).with_name("evidence.md")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("0*.ipynb"))
SEEDED = (model.SmallLM.__init__, train.train, data.split, data.make_records)
TEXTS = ("harbour", "python-docs")
MACHINES = tuple(itertools.product(("1", "all"), ("default", "avx2", "best")))
MOST_SEEDS = 20
# What shows and asks, in notebooks and in helpers: no claim's number comes from it.
SHOWING = {"print", "plots", "widgets", "tables", "table", "diagrams", "quiz", "exercises"}
SHOWING |= {"check", "hint", "progress", "about", "glossary", "define"}
# What other tests hold to the digit: a change of a number there is red without any training.
EXACT = {"plan", "planner", "schedule", "footprint", "shapes", "settings", "memory", "oom"}
SURE = 3.0  # standard errors that every claim keeps from its bound


class Column(NamedTuple):
    """One way to run a notebook."""

    seed: int
    text: str
    threads: str
    capability: str

    @property
    def name(self) -> str:
        """The column as part of a file name."""
        return "-".join(map(str, self))

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make a machine of this kind."""
        threads = os.cpu_count() if self.threads == "all" else self.threads
        chosen = {"OMP_NUM_THREADS": str(threads), "TQDM_DISABLE": "1", "MPLBACKEND": "agg"}
        if self.capability != "best":
            chosen["ATEN_CPU_CAPABILITY"] = self.capability
        return {**os.environ, **chosen}


@dataclass(frozen=True)
class Finding:
    """What one column found of one claim."""

    text: str
    outcome: str
    distance: float | None  # None where there is no noise
    numbers: str


def columns(seeds: int, *, full: bool = False) -> list[Column]:
    """Return the columns: each seed with each text, on machines in turn or on all of them."""
    pairs = list(itertools.product(range(seeds), TEXTS))
    if full:
        return [Column(*pair, *machine) for pair in pairs for machine in MACHINES]
    return [Column(*pair, *machine) for pair, machine in zip(pairs, itertools.cycle(MACHINES))]


def run(path: Path, seed: int, text: str) -> list[Finding]:
    """Execute the code cells of a notebook and return what it claims; a false claim is noted."""
    heard: list[Finding] = []

    def note(text: str, ok: object, **measured: object) -> None:
        judged = claims._judgement(ok)
        distance = judged.distance if math.isfinite(judged.distance) else None
        numbers = claims._numbers(measured, judged.words)
        heard.append(Finding(text, judged.outcome.name, distance, numbers))

    claims.claim = note
    claims.verdict = lambda number, _, finding, ok, **measured: note(
        f"{number} {finding}", ok, **measured
    )
    data.load_text.__defaults__ = (text,)
    for function in SEEDED:
        function.__kwdefaults__["seed"] = seed
    device.seed_everything(seed)
    space: dict = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            # Ten apart, since a notebook also takes the next few seeds.
            source = re.sub(r"^SEED = 0$", f"SEED = {10 * seed}", cell.source, flags=re.MULTILINE)
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(source, f"{path.stem}:{cell.id}", "exec"), space)
    return heard


@cache
def fingerprint(path: Path) -> str:
    """Return digits that change when code does from which the numbers of a notebook's claims come.

    Layout, comments, docstrings, exercises, what only shows something, what other tests hold to the
    digit, and files that the notebook does not lead to are no part of it.
    """
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    digest = hashlib.sha256()
    for cell in cells:
        if not re.search(r"^check\(", cell.source, re.MULTILINE):
            statements = _without_docstrings(cell.source).body
            measuring = [ast.dump(node) for node in statements if not _only_shows(node)]
            digest.update("".join(measuring).encode())
    for file in _files_behind("\n".join(cell.source for cell in cells)):
        digest.update(ast.dump(_without_docstrings(file.read_text("utf-8"))).encode())
    return digest.hexdigest()


def _files_behind(code: str) -> Iterator[Path]:
    """Yield the files of ``helpers`` that code leads to, without those that only show."""
    house = survey(HELPERS)
    found: set[str] = set()
    waiting = {known(name, house.files) for name in imports(code)}
    while waiting:
        name = waiting.pop()
        ours = name in house.files and "." in name  # the package itself only has a version
        if ours and name not in found and room(name) not in SHOWING | EXACT:
            found.add(name)
            waiting |= house.arrows[name]
    for name in sorted(found):
        yield house.files[name]


def _only_shows(node: ast.stmt) -> bool:
    """Return if a statement imports, or is a call, such as ``plots.costs(x)``, that only shows."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.For):
        return all(map(_only_shows, node.body))
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    called = node.value.func
    while isinstance(called, ast.Attribute):
        called = called.value
    return isinstance(called, ast.Name) and called.id in SHOWING


def _without_docstrings(source: str) -> ast.Module:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() if ast.get_docstring(node):
                node.body[0] = ast.Pass()
    return tree


def found_before(path: Path, column: Column) -> list[Finding] | None:
    """Return what a column found of the code as it is now, if it ran."""
    kept = KEPT / f"{path.stem}-{column.name}.json"
    if not kept.exists():
        return None
    stored = json.loads(kept.read_text("utf-8"))
    if stored["fingerprint"] != fingerprint(path):
        return None
    return [Finding(**row) for row in stored["findings"]]


def gather(path: Path, column: Column) -> None:
    """Run a notebook in a process of its own, as the column says, and keep what it found."""
    command = [sys.executable, "-m", "tests.evidence", "--one", str(path)]
    command += [str(column.seed), column.text]
    done = subprocess.run(
        command, cwd=ROOT, env=column.environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{path.stem} in column {column.name}:\n{done.stderr[-2000:]}")
    findings = json.loads(done.stdout.splitlines()[-1])
    KEPT.mkdir(parents=True, exist_ok=True)
    stored = {"fingerprint": fingerprint(path), "findings": findings}
    (KEPT / f"{path.stem}-{column.name}.json").write_text(json.dumps(stored, indent=1), "utf-8")


def all_found() -> dict[str, dict[str, list[tuple[Column, Finding]]]]:
    """Return what is kept of the code as it is now, by notebook and claim."""
    found: dict = {}
    for path in NOTEBOOKS:
        of_claims = defaultdict(list)
        for column in columns(MOST_SEEDS, full=True):
            for finding in found_before(path, column) or ():
                of_claims[finding.text].append((column, finding))
        if of_claims:
            found[path.stem] = of_claims
    return found


def table(found: dict[str, dict[str, list[tuple[Column, Finding]]]]) -> Iterator[str]:
    """Yield the lines of the page: for each notebook its claims, with the worst column of each."""
    yield "# Evidence\n"
    yield (
        "Written by `make evidence`. Every claim is run again on other seeds, texts, threads and "
        "capabilities of the processor. The worst distance is that of the mean from its bound, in "
        "standard errors, in the column where it is nearest; “exact” has no noise: it is "
        "arithmetic, or every run agrees; “lost” is a claim that failed there. A claim is to keep "
        f"{SURE:g}.\n"
    )
    missing = [path.stem for path in NOTEBOOKS if path.stem not in found]
    if missing:
        yield f"Not run with the code as it is now: {', '.join(missing)}.\n"
    for stem, of_claims in found.items():
        yield f"\n## {stem}\n"
        yield "| claim | columns | borne out | worst distance | there it was |"
        yield "| --- | --- | --- | --- | --- |"
        for text, findings in of_claims.items():
            yield _row(text, findings)


def _row(text: str, findings: list[tuple[Column, Finding]]) -> str:
    outcomes = Counter(finding.outcome for _, finding in findings)
    column, worst = min(findings, key=lambda pair: _sureness(pair[1]))
    distance = f"{worst.distance:.1f}" if worst.distance is not None else "exact"
    if worst.distance is None and worst.outcome != "BORNE_OUT":
        distance = "lost"
    where = f"{column.text}, seed {column.seed}, {column.threads} threads, {column.capability}"
    numbers = worst.numbers.strip(" []").replace("|", "/")
    cells = [text, str(len(findings)), str(outcomes["BORNE_OUT"]), distance]
    return f"| {' | '.join(cells)} | {numbers} ({where}) |"


def _sureness(finding: Finding) -> float:
    if finding.distance is not None:
        return finding.distance
    return math.inf if finding.outcome == "BORNE_OUT" else -math.inf


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__ or ""))
    parser.add_argument("notebooks", type=Path, nargs="*", default=NOTEBOOKS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="every seed and text on every machine")
    parser.add_argument("--jobs", type=int, default=1, help="so many runs at a time")
    parser.add_argument("--one", nargs=3, metavar=("NOTEBOOK", "SEED", "TEXT"))
    arguments = parser.parse_args()
    if arguments.one:
        path, seed, text = arguments.one
        print(json.dumps([asdict(finding) for finding in run(Path(path), int(seed), text)]))
        return
    chosen = columns(arguments.seeds, full=arguments.full)
    work = list(itertools.product(chosen, map(Path.resolve, arguments.notebooks)))
    missing = [(path, column) for column, path in work if found_before(path, column) is None]
    with ThreadPool(arguments.jobs) as pool:
        done = pool.imap_unordered(lambda pair: gather(*pair), missing)
        for _ in tqdm(done, "evidence", len(missing), unit="run"):
            pass
    TABLE.write_text("\n".join(table(all_found())) + "\n", "utf-8")


if __name__ == "__main__":
    main()
