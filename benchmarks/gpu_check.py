"""What only a GPU can tell, as one JSON object: ``python -m benchmarks.gpu_check``.

Without a GPU, or with ``--device cpu``, the same parts run at a tiny size, and the notebooks as
they are. A part that fails is reported with its error, and the others run all the same; what is
done is told on stderr meanwhile.
"""

import argparse
import gc
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import linear_regression, mean, median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import many_runs, training
from helpers.accumulate import gradients, relative_difference
from helpers.data import CharTokenizer, collate, make_records
from helpers.decoder import Decoder
from helpers.device import pick, preset, seed_everything, timed
from helpers.memory import (
    Measurement,
    estimate,
    fixed_and_slope,
    largest_batch,
    measure,
    simulate,
)
from helpers.model import ModelConfig, SmallLM, token_loss
from helpers.shapes import SHAPES, Shape
from helpers.train import OPTIMIZERS, train

TIME_LIMIT = 25 * 60.0  # seconds, after which no notebook goes on
SHARE = 1 / 32  # of a card, in which the largest batch is looked for
CPU_LIMIT = 8 * 2**20  # bytes, where there is no card
TOLERANCE = 0.1  # of a peak of memory, and of the largest batch
LOST_TO_GAPS = 0.25  # of the largest batch: what the allocator may round up or be unable to use
SAME_LOSS = 1e-3  # in nats: runs trained together and one by one differ by rounding alone
ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"
Found = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How much is done.

    Updates of a run, comparisons, and the pool and draws of the noise; the large shapes to weigh;
    the batch sizes of many runs, with the updates of each run.
    """

    updates: int
    compared_updates: int
    compared_seconds: float
    pool: int
    draws: int
    shapes: tuple[str, ...]
    sweeps: tuple[tuple[int, int], ...]


GPU = Effort(
    updates=30,
    compared_updates=200,
    compared_seconds=12.0,
    pool=1024,
    draws=16,
    shapes=("gpt2-124m",),
    sweeps=((16, 160), (64, 60)),
)
TINY = Effort(
    updates=2,
    compared_updates=2,
    compared_seconds=0.0,
    pool=64,
    draws=4,
    shapes=(),
    sweeps=((16, 2),),
)


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
        seconds = timed(partial(run, steps=effort.updates), device)
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


@dataclass(frozen=True)
class Weighed:
    """A model whose memory is looked at: what makes it, its sizes and the precision of it all."""

    make: Callable[[], nn.Module]
    shape: Shape
    precision: str

    def told(self, how: Callable[..., Any], batch_size: int) -> int:
        """Return the peak that ``simulate`` or ``estimate`` gives, in bytes."""
        context = self.shape.context
        told = how(self.shape, batch_size=batch_size, context=context, precision=self.precision)
        return told.peak

    def step(self, batch_size: int, device: torch.device) -> Callable[[], None]:
        """Return what makes one update of a new model, on the same random tokens each time."""
        model = self.make().to(device, getattr(torch, self.precision))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)  # as simulated
        size = batch_size, self.shape.context
        tokens = torch.randint(self.shape.vocab_size, size, device=device)

        def step() -> None:
            _loss(model, tokens).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    def trial(self, device: torch.device, batch_size: int) -> None:
        """Make two updates of a new model."""
        step = self.step(batch_size, device)
        step()
        step()


def _loss(model: nn.Module, tokens: Tensor) -> Tensor:
    return (
        token_loss(model(tokens), tokens) if isinstance(model, SmallLM) else model(tokens, tokens)
    )


def memory(device: torch.device, effort: Effort) -> Found:
    """Compare what training steps take with what is simulated and estimated, and what fits.

    Each row is guarded, so that one that fails leaves the others.
    """
    chosen = preset(device)
    config = chosen.model(training.examples(chosen.context)[1])
    small = Weighed(partial(SmallLM, config), Shape(**asdict(config)), "float32")
    rows = {
        f"{chosen.name}, batch {size}": partial(_peak, small, size, device) for size in (1, 16, 64)
    }
    for name in effort.shapes:
        large = Weighed(partial(Decoder, SHAPES[name]), SHAPES[name], "bfloat16")
        for size in (1, 4, 16):
            rows[f"{name}, batch {size}"] = partial(_peak, large, size, device)
    rows["largest batch by a limit"] = partial(_largest, small, device)
    if device.type == "cuda":
        rows["largest batch of the card"] = partial(_largest, small, device, on_card=True)
    found = {name: guarded(f"memory, {name}", row) for name, row in rows.items()}
    return found | {"ok": all(row["ok"] for row in found.values())}


def _peak(weighed: Weighed, batch_size: int, device: torch.device) -> Found:
    """Compare the peak of real steps with those that are told without them."""
    before = _held_by_others(device)
    step = weighed.step(batch_size, device)
    seen = measure(step, device=device.type)
    found: Found = {"peak_bytes": _later_peak(seen, before), "tracked_bytes": seen.later.peak}
    ratios = []
    for name, how in (("simulated", simulate), ("estimated", estimate)):
        told = weighed.told(how, batch_size)
        ratios.append(found["peak_bytes"] / told)
        found[name] = {"bytes": told, "ratio": ratios[-1]}
    if device.type == "cuda":
        found["card"] = _card(seen)
    return found | {"ok": all(abs(ratio - 1) < TOLERANCE for ratio in ratios)}


def _later_peak(seen: Measurement, before: int) -> int:
    """Return the peak after the first step, by the allocator where it was asked.

    ``before`` are the active bytes that were there without the model.
    """
    if seen.allocator:
        return max(peaks["active"] for peaks in seen.allocator[1:]) - before
    return seen.later.peak


def _held_by_others(device: torch.device) -> int:
    """Return the active bytes on a card before a model comes: cuBLAS's workspaces among them.

    It takes one for each thread that multiplies, and the backward pass has a thread of its own.
    """
    gc.collect()
    if device.type != "cuda":
        return 0
    for dtype in (torch.float32, torch.bfloat16):
        layer = nn.Linear(64, 64, device=device, dtype=dtype)
        layer(torch.ones(64, 64, device=device, dtype=dtype)).sum().backward()
    del layer
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_stats()["active_bytes.all.current"]


def _card(seen: Measurement) -> Found:
    """Return the bytes on the card now, by PyTorch and by the driver, and PyTorch's peaks.

    The driver counts every process on the card, and what CUDA itself needs.
    """
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "driver": total - free,
        "total": total,
        "peak_allocated": max(peaks["allocated"] for peaks in seen.allocator),
        "peak_reserved": max(peaks["reserved"] for peaks in seen.allocator),
    }


def _largest(weighed: Weighed, device: torch.device, *, on_card: bool = False) -> Found:
    """Find the largest batch within a limit, and compare it with where the line gets there.

    The limit counts tensors. ``on_card`` it is set to CUDA's allocator instead, which runs out in
    earnest: less may fit than the line says, as it has gaps that it cannot use.
    """
    limit = CPU_LIMIT
    if device.type == "cuda":
        limit = int(SHARE * torch.cuda.mem_get_info()[1])
    before = _held_by_others(device) if on_card else 0
    sizes = (16, 64)  # the backward pass is the fullest at both
    fixed, slope = fixed_and_slope(sizes, [weighed.told(simulate, size) for size in sizes])
    told = int((limit - before - fixed) / slope)
    with _only(SHARE) if on_card else nullcontext():
        found = largest_batch(
            partial(weighed.trial, device),
            limit=None if on_card else limit,
            report=partial(print, file=sys.stderr),
        )
    least = 1 - (LOST_TO_GAPS if on_card else TOLERANCE)
    return {
        "limit_bytes": limit,
        "fixed_bytes": fixed,
        "bytes_an_example": slope,
        "predicted": told,
        "found": found,
        "ok": least < found / told < 1 + TOLERANCE,
    }


@contextmanager
def _only(share: float) -> Iterator[None]:
    """Let PyTorch have only a share of the card."""
    torch.cuda.set_per_process_memory_fraction(share)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def runs_together(device: torch.device, effort: Effort) -> Found:
    """Train the runs of ``make bench`` in stacks and one by one: how long, and the same losses?"""
    found: Found = {}
    for batch_size, updates in effort.sweeps:
        many_runs.runs(batch_size, 2, "together", device)  # only to warm up
        results = {
            method: many_runs.runs(batch_size, updates, method, device)
            for method in ("one-by-one", "together")
        }
        alone, together = results.values()
        difference = float((alone.loss - together.loss).abs().max())
        seconds = {method: result.seconds[batch_size] for method, result in results.items()}
        found[f"batch {batch_size}"] = {
            "runs": alone.loss.numel(),
            "updates": updates,
            "seconds": seconds,
            "times_as_fast": seconds["one-by-one"] / seconds["together"],
            "together": together.ways[batch_size],
            "loss_difference": difference,
            "same": difference < SAME_LOSS,
        }
    found["ok"] = all(row["same"] for row in found.values())
    return found


PARTS: dict[str, Callable[[torch.device, Effort], Found]] = {
    "machine": machine,
    "throughput": throughput,
    "against_others": against_others,
    "noise_slope": noise_slope,
    "optimizers": optimizers,
    "float64_update": float64_update,
    "memory": memory,
    "sweep": runs_together,
}


def notebooks(stop: float) -> Found:
    """Run each notebook in a kernel of its own, to its first error, and write down what it claims.

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
        with TemporaryDirectory() as folder:
            file = Path(folder) / "heard.json"
            client = NotebookClient(
                _listened_to(nbformat.read(path, as_version=4), file),
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
            run |= json.loads(file.read_text("utf-8")) if file.exists() else {"claims": []}
    found["ok"] = all(
        run["error"] is None and all(claim["outcome"] != "contradicted" for claim in run["claims"])
        for run in found.values()
    )
    return found


def _listened_to(notebook: Any, file: Path) -> Any:  # noqa: ANN401
    """Put a cell before the first one, from which on all that is claimed goes to a file."""
    ids = [cell.id for cell in notebook.cells if cell.cell_type == "code"]
    first = type(notebook.cells[0])(
        cell_type="code", id="listen", metadata={}, outputs=[], execution_count=None
    )
    first.source = (
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from benchmarks.listening import listen\n"
        f"listen(get_ipython(), {str(file)!r}, {ids!r})"
    )
    notebook.cells.insert(0, first)
    return notebook


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
