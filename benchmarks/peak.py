"""Which share of the machine's best matrix product training reaches."""

import time
from statistics import median

import torch

from benchmarks import training
from benchmarks.table import Report, Row, spread
from helpers.device import timed
from helpers.model import SmallLM

SECONDS = 25.0
MATRICES = (256, 512, 1024, 2048)
PRODUCT_SECONDS = 0.2


def product_rate(width: int, device: torch.device, seconds: float = PRODUCT_SECONDS) -> float:
    """Return the operations per second of products of two square float32 matrices."""
    a, b, out = (torch.randn(width, width, device=device) for _ in range(3))
    best = float("inf")
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop:
        best = min(best, timed(lambda: torch.mm(a, b, out=out), device))
    return 2 * width**3 / best


def operations_per_token(model: SmallLM) -> int:
    """Return the operations of one forward and one backward pass, for one token.

    Kaplan et al. 2020 (arXiv 2001.08361, section 2.1) count 2 N + 2 × layers × context × width
    forward, with N the parameters in matrix products, and twice as many backward: 6 for each
    parameter and token, and the attention. Here N has the products with the vocabulary too. Norms,
    activations, look-ups and the optimizer count as nothing.
    """
    config = model.config
    in_blocks = sum(p.numel() for p in model.blocks.parameters() if p.dim() == 2)
    in_products = in_blocks + config.vocab_size * config.width
    return 6 * in_products + 6 * config.layers * config.context * config.width


def report() -> Report:
    """Measure matrix products and training in turns, and divide."""
    device = torch.device("cpu")
    size = training.SIZES["medium"]
    model, run = training.ours(size, device)
    run(5)
    best = dict.fromkeys(MATRICES, 0.0)
    speeds = []
    stop = time.perf_counter() + SECONDS
    while not speeds or time.perf_counter() < stop:
        for width in MATRICES:
            best[width] = max(best[width], product_rate(width, device))
        speeds.append(size.batch * size.context * size.updates / run(size.updates))
    peak = max(best.values())
    each = operations_per_token(model)
    shares = [100 * each * speed / peak for speed in speeds]
    products = ", ".join(f"{rate / 1e9:.0f} at {width}" for width, rate in best.items())
    return Report(
        [
            Row(
                "train, medium, share of the matrix peak",
                f"{median(shares):.0f} %",
                spread(shares, 0),
            )
        ],
        [
            f"Peak: best float32 product, in GFLOP/s: {products}. Training: {each:,} operations "
            "a token, forward and backward (6 × parameters in matrix products, and attention; "
            f"Kaplan et al. 2020), at {median(speeds):,.0f} tokens/s: "
            f"{each * median(speeds) / 1e9:.0f} GFLOP/s."
        ],
    )
