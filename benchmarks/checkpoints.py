"""What saving the state of a run costs, as a share of the run that it protects."""

import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from benchmarks.table import Report, Row, spread
from benchmarks.training import LR, SIZES, examples
from helpers.keeper import RunKeeper
from helpers.model import SmallLM
from helpers.train import train

ROUNDS = 3
LIMIT = 2.0  # per cent


def report(updates: int = 300) -> Report:
    """Train with a checkpoint three times in a run, and add up the seconds in which it saves."""
    size = SIZES["medium"]
    windows, vocab_size = examples(size.context)
    shares = []
    for _ in range(ROUNDS):
        saving: list[float] = []
        save = RunKeeper.save

        def timed(keeper: RunKeeper, save=save, saving=saving) -> None:  # noqa: ANN001
            started = time.perf_counter()
            save(keeper)
            saving.append(time.perf_counter() - started)

        with tempfile.TemporaryDirectory() as folder, patch.object(RunKeeper, "save", timed):
            started = time.perf_counter()
            train(
                SmallLM(size.config(vocab_size)), windows, batch_size=size.batch, lr=LR,
                steps=updates, checkpoint=Path(folder) / "run", save_every=updates // 3,
            )  # fmt: skip
            shares.append(100 * sum(saving) / (time.perf_counter() - started))
        assert len(saving) == 3, saving
    middle = sorted(shares)[ROUNDS // 2]
    name = f"three checkpoints in {updates} updates of the medium model"
    row = Row(name, f"{middle:.2f} %", spread(shares), f"at most {LIMIT:g} %", middle <= LIMIT)
    return Report([row])
