"""What training side by side gains, and what the noise scale costs beside an ordinary pass."""

from statistics import median

import torch
from torch import Tensor

from benchmarks.peak import MATRICES, operations_per_token, product_rate
from benchmarks.table import Report, Row, spread
from benchmarks.training import examples
from helpers.device import timed
from helpers.model import ModelConfig, SmallLM, token_loss
from helpers.noise import noise_scale
from helpers.sweep import SweepResult, sweep

ROUNDS = 3
CONTEXT = 32
CPU = torch.device("cpu")
UPDATES = {1: 300, 4: 200, 16: 160, 64: 60}  # a batch size and the updates of each of its runs
# Rates low enough that no run diverges: a run that leaves its stack would flatter the ratio.
RATES = tuple(1e-4 * 1.2**k for k in range(15))
SEEDS = (0, 1, 2)
TOGETHER = {1: 5.0, 4: 3.0, 16: 1.5}
AUTO = 0.98
NOISE_LIMIT = 2.5


def problem() -> tuple[ModelConfig, Tensor]:
    """Return the shape of the model, and the windows of the default text that it learns."""
    windows, vocab_size = examples(CONTEXT)
    return ModelConfig(vocab_size, CONTEXT, 32, 1, 2), windows


def runs(
    batch_size: int, updates: int, method: str, device: torch.device | None = None
) -> SweepResult:
    """Train 45 runs at one batch size in one way, on ``sweep``'s own choice of device if none."""
    config, windows = problem()
    return sweep(
        config, windows, learning_rates=RATES, batch_sizes=[batch_size], seeds=SEEDS,
        optimizer="adamw", examples=batch_size * updates, method=method, device=device,
    )  # fmt: skip


def report(updates: dict[int, int] = UPDATES) -> Report:
    """Train 45 runs at each batch size in each way, in turns, and measure noise against a pass."""
    config, windows = problem()

    def trained(batch_size: int, method: str) -> tuple[float, SweepResult]:
        result = runs(batch_size, updates[batch_size], method)
        return result.seconds[batch_size], result

    made = Report()
    peak = max(product_rate(width, CPU) for width in MATRICES)
    for batch_size, count in updates.items():
        together, auto = [], []
        for _ in range(ROUNDS):
            alone, _ = trained(batch_size, "one-by-one")
            if batch_size in TOGETHER:
                together.append(alone / trained(batch_size, "together")[0])
            taken, result = trained(batch_size, "auto")
            auto.append(alone / taken)
        name = f"45 runs, batch {batch_size}"
        if together:
            made.rows.append(Row.at_least(f"{name}, together", together, TOGETHER[batch_size]))
        made.rows.append(Row.at_least(f"{name}, auto", auto, AUTO))
        tokens = 45 * count * batch_size * CONTEXT
        operations = operations_per_token(SmallLM(config)) * tokens / taken
        made.notes.append(
            f"{name}: auto took them {result.ways[batch_size]}, {operations / 1e9:.0f} GFLOP/s, "
            f"{100 * operations / peak:.0f} % of the best matrix product."
        )
    made.rows.append(_noise_row(SmallLM(config), windows[:256]))
    return made


def _noise_row(model: SmallLM, windows: Tensor) -> Row:
    inputs, targets = windows[:, :-1], windows[:, 1:]

    def ordinary() -> None:
        token_loss(model(inputs), targets).backward()
        model.zero_grad()

    ratios = []
    for _ in range(9):
        measured = timed(lambda: noise_scale(model, inputs, targets), CPU)
        ratios.append(measured / timed(ordinary, CPU))
    middle = median(ratios)
    return Row(
        "noise scale of 256 sequences, against a pass",
        f"{middle:.2f} ×",
        spread(ratios),
        f"at most {NOISE_LIMIT} ×",
        middle <= NOISE_LIMIT,
    )
