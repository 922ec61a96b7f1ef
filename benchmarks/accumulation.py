"""What accumulating costs beside as many separate passes, and how soon a launch has its result."""

import statistics

import torch

from benchmarks.table import Report, Row
from helpers.accumulate import backward
from helpers.data import CharTokenizer, collate, make_records
from helpers.device import timed
from helpers.model import ModelConfig, SmallLM, token_loss
from helpers.parallel import launch, replica

PIECES = 8
CPU = torch.device("cpu")


def report() -> Report:
    """Compare one accumulated update of eight micro-batches with eight passes, interleaved."""
    model = SmallLM(ModelConfig(103, 64, 64, 2, 4))
    tokens = torch.randint(103, (16 * PIECES, 65))
    pieces = [(part[:, :-1], part[:, 1:]) for part in tokens.split(16)]

    def separate() -> None:
        for inputs, targets in pieces:
            token_loss(model(inputs), targets).backward()

    ratios = []
    for _ in range(15):
        accumulated = timed(lambda: backward(model, pieces), CPU)
        ratios.append(accumulated / timed(separate, CPU))
        model.zero_grad()
    middle = statistics.median(ratios)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} rounds"
    rows = [
        Row(
            "accumulating 8, against 8 passes",
            f"{middle:.2f} ×",
            spread,
            "at most 1.05 ×",
            middle <= 1.05,
        )
    ]

    records = make_records(40)
    tokenizer = CharTokenizer("".join(record.text for record in records))
    data = collate(records, tokenizer)
    config = ModelConfig(tokenizer.vocab_size, data[0].shape[1], 16, 1, 2)
    how = {"batch_size": 4, "lr": 1e-3, "steps": 1}
    taken = timed(lambda: launch(replica, config, data, torch.float32, how), CPU)
    rows.append(
        Row(
            "launch of two processes, to its first update",
            f"{taken:.1f} s",
            "",
            "below 15 s",
            taken < 15,
        )
    )
    return Report(rows)
