"""How much room the claims of a notebook have: run its cells over several seeds.

``python -m tests.margins NOTEBOOK [--seeds 5] [--preset medium] [--text PATH]`` prints each claim
with what was measured under each seed. A claim that fails is counted and the run goes on.
"""

import argparse
import contextlib
import inspect
import io
from collections import defaultdict
from pathlib import Path

import nbformat

from helpers import claims, data, device, model, train
from helpers.claims import _judgement, _numbers
from helpers.replicates import Outcome

SEEDED = (model.SmallLM.__init__, train.train, data.split, data.make_records)


def run(path: Path, seed: int, heard: dict) -> None:
    """Execute the code cells of a notebook under a seed and note what it claims."""

    def note(text: str, ok: object, **measured: object) -> None:
        judged = _judgement(ok)
        borne_out = judged.outcome is Outcome.BORNE_OUT
        heard[text].append((borne_out, _numbers(measured, judged.words)))

    claims.claim = note
    claims.verdict = lambda number, _, finding, ok, **measured: note(
        f"{number} {finding}", ok, **measured
    )
    for function in SEEDED:
        function.__kwdefaults__["seed"] = seed
    device.seed_everything(seed)
    space: dict = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(cell.source, f"{path.stem}:{cell.id}", "exec"), space)
            # The seed of a notebook that passes it on; ten apart, since some take the next few too.
            if "SEED" in space:
                space["SEED"] = 10 * seed


def main() -> None:
    """Run the notebook over the seeds and print the claims."""
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__ or ""))
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--preset", help="the preset in place of the one that fits this machine")
    parser.add_argument("--text", help="a text file in place of the default text")
    arguments = parser.parse_args()
    if arguments.preset:
        chosen = device.preset(arguments.preset)
        device.preset = lambda _: chosen
    if arguments.text:
        data.load_text.__defaults__ = (arguments.text,)
    heard: dict = defaultdict(list)
    for seed in range(arguments.seeds):
        run(arguments.notebook, seed, heard)
    for text, results in heard.items():
        print(f"\n{sum(ok for ok, _ in results)} of {len(results)}: {text}")
        for ok, numbers in results:
            print("  " if ok else "✗ ", numbers)


if __name__ == "__main__":
    main()
