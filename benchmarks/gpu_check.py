"""What only a GPU can tell, as one JSON object: ``python -m benchmarks.gpu_check``.

Without a GPU, or with ``--device cpu``, the same parts run at a tiny size. A part that fails is
reported with its error, and the others run all the same; what is done is told on stderr meanwhile.
"""

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import linear_regression, mean, median
from typing import Any

import torch
from torch import Tensor

from benchmarks import training
from helpers.accumulate import gradients, relative_difference
from helpers.data import CharTokenizer, collate, make_records
from helpers.device import pick, preset, seed_everything
from helpers.model import ModelConfig, SmallLM
from helpers.train import OPTIMIZERS, train

TIME_LIMIT = 230.0
NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
Found = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How much is done: updates of a run, comparisons, and the pool and draws of the noise."""

    updates: int
    compared_updates: int
    compared_seconds: float
    pool: int
    draws: int


GPU = Effort(updates=30, compared_updates=200, compared_seconds=12.0, pool=1024, draws=16)
TINY = Effort(updates=2, compared_updates=2, compared_seconds=0.0, pool=64, draws=4)


def machine(device: torch.device, _: Effort) -> Found:
    """Say what the device is and how much memory it has."""
    name, memory = platform.processor() or platform.machine(), None
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        name, memory = properties.name, properties.total_memory / 2**30
    return {"name": name, "memory_gib": memory, "torch": torch.__version__}


def throughput(device: torch.device, effort: Effort) -> Found:
    """Measure ``train`` with the preset of this device at several batch sizes."""
    shape = preset(device)
    windows, vocab_size = training.examples(shape.context)
    found: Found = {"preset": shape.name}
    for batch_size in (1, 4, 16, 64):
        model = SmallLM(shape.model(vocab_size)).to(device)
        found["parameters"] = training.parameters(model)
        run = partial(train, model, windows, batch_size=batch_size, lr=shape.rates[0])
        run(steps=2)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        seconds = training.timed(partial(run, steps=effort.updates), device)
        peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
        found[f"batch {batch_size}"] = {
            "examples_per_second": batch_size * effort.updates / seconds,
            "peak_mib": peak and peak / 2**20,
        }
    return found


def against_others(device: torch.device, effort: Effort) -> Found:
    """Compare ``train`` with a bare loop and the Trainer, at the sizes of ``make bench``."""
    found: Found = {"trainer": training.trainer_is_here()}
    for name, size in training.SIZES.items():
        speeds, _ = training.measure(
            size, device, updates=effort.compared_updates, limit=effort.compared_seconds
        )
        found[name] = {
            "examples_per_second": {who: median(values) for who, values in speeds.items()},
            "ratios": {other: median(training.ratios(speeds, other)) for other in list(speeds)[1:]},
            "rounds": len(speeds["train"]),
        }
    return found


def noise_slope(device: torch.device, effort: Effort) -> Found:
    """Fit how the gradient noise of a random batch falls with its size: −0.5 on log scales.

    Batches are drawn with replacement: without it, a batch that is much of the pool would be less
    noisy than its size says.
    """
    shape = preset(device)
    windows, vocab_size = training.examples(shape.context)
    model = SmallLM(shape.model(vocab_size)).to(device)
    pool = windows[: effort.pool].to(device)
    generator = torch.Generator().manual_seed(0)

    def gradient(examples: Tensor) -> Tensor:
        pieces = [(piece[:, :-1], piece[:, 1:]) for piece in examples.split(64)]
        return torch.cat([part.flatten() for part in gradients(model, pieces).values()])

    whole = gradient(pool)
    noise = {}
    for batch_size in (1, 4, 16, 64, 256):
        squares = []
        for _ in range(effort.draws):
            drawn = torch.randint(len(pool), (batch_size,), generator=generator).to(device)
            squares.append(float((gradient(pool[drawn]) - whole).square().sum()))
        noise[batch_size] = math.sqrt(mean(squares) / float(whole.square().sum()))
    slope, _ = linear_regression(list(map(math.log, noise)), list(map(math.log, noise.values())))
    return {"noise_over_gradient": noise, "slope": slope, "ok": abs(slope + 0.5) < 0.1}


def optimizers(device: torch.device, _: Effort) -> Found:
    """Train for a moment with each optimizer: the loss must stay finite and fall."""
    shape = preset(device)
    windows, vocab_size = training.examples(shape.context)
    rates = {"adamw": shape.rates[2], "sgd": 0.1, "momentum": 0.03}
    found: Found = {}
    for name in OPTIMIZERS:
        seed_everything(0)
        model = SmallLM(shape.model(vocab_size)).to(device)
        history = train(
            model, windows, batch_size=16, lr=rates[name], optimizer=name, clip=1.0, steps=30
        )
        found[name] = {"first": mean(history.loss[:5]), "last": mean(history.loss[-5:])}
        found[name]["finite"] = history.steps == 30
    found["ok"] = all(run["finite"] and run["last"] < run["first"] for run in found.values())
    return found


def float64_update(device: torch.device, _: Effort) -> Found:
    """Compare one update, accumulated on this device, with the whole batch on the CPU."""
    records = make_records(16)
    tokenizer = CharTokenizer("".join(record.text for record in records))
    data = collate(records, tokenizer)
    config = ModelConfig(tokenizer.vocab_size, data[0].shape[1], width=64, layers=2, heads=4)

    def change(device: torch.device, batch_size: int) -> dict[str, Tensor]:
        model = SmallLM(config).double().to(device)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        train(
            model,
            data,
            batch_size=batch_size,
            accumulation=16 // batch_size,
            lr=1.0,
            optimizer="sgd",
            clip=0.5,
            steps=1,
        )
        return {name: (p.detach() - before[name]).cpu() for name, p in model.named_parameters()}

    difference = relative_difference(change(device, 4), change(torch.device("cpu"), 16))
    return {"relative_difference": difference, "ok": difference < 1e-12}


PARTS: dict[str, Callable[[torch.device, Effort], Found]] = {
    "machine": machine,
    "throughput": throughput,
    "against_others": against_others,
    "noise_slope": noise_slope,
    "optimizers": optimizers,
    "float64_update": float64_update,
}


def notebooks(stop: float) -> Found:
    """Run each notebook in a kernel of its own, to its first error.

    A cell may run until ``stop``, and for a second if that has passed.
    """
    try:
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError
    except ImportError as error:
        return {"skipped": str(error)}
    found: Found = {}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        client = NotebookClient(
            nbformat.read(path, as_version=4),
            kernel_name="python3",
            timeout_func=lambda _: max(1, round(stop - time.perf_counter())),
            resources={"metadata": {"path": str(path.parent)}},
        )
        started = time.perf_counter()
        run = found[path.stem] = {"finished": False, "error": None}
        try:
            client.execute()
            run["finished"] = True
        except CellTimeoutError:
            pass
        except CellExecutionError as error:
            run["error"] = f"{error.ename}: {error.evalue}"
        except Exception as error:
            run["error"] = _described(error)
        run["seconds"] = time.perf_counter() - started
    found["ok"] = all(run["error"] is None for run in found.values())
    return found


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def guarded(name: str, part: Callable[[], Found]) -> Found:
    """Return what a part found, or its error, with the seconds that it took."""
    started = time.perf_counter()
    try:
        found = _rounded(part())
        json.dumps(found, allow_nan=False)
    except Exception as error:
        found = {"error": _described(error), "ok": False}
    found["seconds"] = round(time.perf_counter() - started, 1)
    print(name, json.dumps(found), file=sys.stderr, flush=True)
    return found


def _rounded(value: Any) -> Any:  # noqa: ANN401
    """Return the same with floats of four digits."""
    if isinstance(value, dict):
        return {str(key): _rounded(part) for key, part in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts, print the JSON, and return 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: CUDA if there is one")
    parser.add_argument("--no-notebooks", action="store_true", help="leave the notebooks out")
    options = parser.parse_args(arguments)
    os.environ["TQDM_DISABLE"] = "1"
    started = time.perf_counter()
    device = pick(options.device)
    effort = GPU if device.type == "cuda" else TINY
    parts = {name: guarded(name, partial(part, device, effort)) for name, part in PARTS.items()}
    if not options.no_notebooks:
        parts["notebooks"] = guarded("notebooks", partial(notebooks, started + TIME_LIMIT))
    failed = [name for name, found in parts.items() if not found.get("ok", True)]
    seconds = round(time.perf_counter() - started, 1)
    whole = {"cuda": device.type == "cuda", "failed": failed, "seconds": seconds, "parts": parts}
    print(json.dumps(whole, indent=2))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
