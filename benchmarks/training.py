"""How fast ``train`` is, against Transformers' Trainer and against a loop with nothing in it."""

import io
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.table import Report, Row
from helpers.data import CharTokenizer, load_text, sequences
from helpers.device import timed, wait
from helpers.model import ModelConfig, SmallLM
from helpers.train import train

LR = 1e-3
CLIP = 1.0
AGAINST_BARE = 0.95
SECONDS = 45.0  # for each size
Run = Callable[[int], float]


@dataclass(frozen=True)
class Size:
    """A shape of model and batch, and how long to run it."""

    batch: int
    context: int
    width: int
    layers: int
    heads: int
    updates: int

    def __str__(self) -> str:
        return (
            f"batch {self.batch}, context {self.context}, width {self.width}, "
            f"layers {self.layers}, heads {self.heads}"
        )

    def config(self, vocab_size: int) -> ModelConfig:
        """Return the configuration of the model."""
        return ModelConfig(vocab_size, self.context, self.width, self.layers, self.heads)


SIZES = {
    "small": Size(16, 32, 32, 1, 2, updates=300),
    "medium": Size(64, 64, 64, 2, 4, updates=20),
}


def examples(context: int) -> tuple[Tensor, int]:
    """Return the windows of the default text and the size of its vocabulary."""
    text = load_text()
    tokenizer = CharTokenizer(text)
    return sequences(tokenizer.encode(text), context), tokenizer.vocab_size


def parameters(model: nn.Module) -> int:
    """Return how many numbers are trained."""
    return sum(parameter.numel() for parameter in model.parameters())


def ours(size: Size, device: torch.device) -> tuple[SmallLM, Run]:
    """Return the model, and what trains it for so many updates and returns the seconds."""
    windows, vocab_size = examples(size.context)
    model = SmallLM(size.config(vocab_size)).to(device)

    def run(updates: int) -> float:
        call = partial(train, model, windows, batch_size=size.batch, lr=LR, clip=CLIP)
        return timed(partial(call, steps=updates), device)

    return model, run


def bare(size: Size, device: torch.device) -> tuple[SmallLM, Run]:
    """Return the same for a loop that sees one batch, prepared beforehand."""
    windows, vocab_size = examples(size.context)
    model = SmallLM(size.config(vocab_size)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)
    inputs = windows[: size.batch, :-1].to(device).contiguous()
    targets = windows[: size.batch, 1:].to(device).flatten()

    def loop(updates: int) -> None:
        for _ in range(updates):
            F.cross_entropy(model(inputs).flatten(0, -2), targets).backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()

    return model, lambda updates: timed(lambda: loop(updates), device)


def trainer(
    size: Size, device: torch.device, activation: str, *, logging_off: bool
) -> tuple[nn.Module, Run]:
    """Return the same for a GPT-2 and a Trainer, with the bar and the logs it comes with or none.

    The clock starts at the first update, after the Trainer has set itself up.
    """
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        PrinterCallback,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        logging,
    )

    class Start(TrainerCallback):
        at: float

        def on_train_begin(self, *_: object, **__: object) -> None:
            self.at = time.perf_counter()

    logging.set_verbosity_error()
    windows, vocab_size = examples(size.context)
    inputs = windows[:, :-1].contiguous()
    data = [{"input_ids": row, "labels": row} for row in inputs]
    config = GPT2Config(
        vocab_size=vocab_size,
        n_positions=size.context,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        activation_function=activation,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config)
    logs = {"logging_strategy": "no", "logging_nan_inf_filter": False} if logging_off else {}

    def run(updates: int) -> float:
        hidden = io.StringIO()  # what it shows is made, but not seen
        with (
            tempfile.TemporaryDirectory() as folder,
            redirect_stdout(hidden),
            redirect_stderr(hidden),
        ):
            arguments = TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=size.batch,
                max_steps=updates,
                learning_rate=LR,
                lr_scheduler_type="constant",
                weight_decay=0.01,  # torch's default, which the others have
                max_grad_norm=CLIP,
                optim="adamw_torch_fused",
                use_cpu=device.type == "cpu",
                dataloader_pin_memory=device.type != "cpu",
                dataloader_num_workers=0,
                save_strategy="no",
                report_to="none",
                disable_tqdm=logging_off,
                **logs,
            )
            start = Start()
            loop = Trainer(model, arguments, train_dataset=data, callbacks=[start])
            if logging_off:
                loop.remove_callback(PrinterCallback)
            loop.train()
            wait(device)
            return time.perf_counter() - start.at

    return model, run


def measure(
    size: Size, device: torch.device, *, updates: int, limit: float
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Return each contender's examples per second, one value a round, and its parameters.

    In each round all run once, in an order drawn anew, and no round begins after ``limit`` seconds.
    The Trainer takes part if it is installed: as it comes, with its logging off, and then with the
    activation that our model has.
    """
    contenders = {"train": ours(size, device), "bare loop": bare(size, device)}
    if trainer_is_here():
        for label, activation, off in (
            ("as it comes", "gelu_new", False),
            ("logging off", "gelu_new", True),
            ("logging off, same activation", "gelu", True),
        ):
            contenders[f"Trainer, {label}"] = trainer(size, device, activation, logging_off=off)
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    draw = random.Random(0)
    for _, run in contenders.values():
        run(3)
    stop = time.perf_counter() + limit
    while not speeds["train"] or time.perf_counter() < stop:
        draw.shuffle(order)
        for name in order:
            speeds[name].append(size.batch * updates / contenders[name][1](updates))
    return speeds, {name: parameters(model) for name, (model, _) in contenders.items()}


def trainer_is_here() -> bool:
    """Return whether Transformers and what its Trainer needs are installed."""
    return all(map(find_spec, ("transformers", "accelerate")))


def ratios(speeds: dict[str, list[float]], other: str) -> list[float]:
    """Return, round by round, how many times as fast ``train`` is as the other."""
    return [mine / its for mine, its in zip(speeds["train"], speeds[other])]


def report() -> Report:
    """Compare the contenders at both sizes on the CPU."""
    found = Report()
    for name, size in SIZES.items():
        speeds, counts = measure(size, torch.device("cpu"), updates=size.updates, limit=SECONDS)
        for other in list(speeds)[1:]:
            label = f"train, {name}, against {other}"
            target = AGAINST_BARE if other == "bare loop" else None
            found.rows.append(Row.at_least(label, ratios(speeds, other), target))
        medians = "; ".join(
            f"{who} {median(values) * size.context:,.0f} tokens/s, {counts[who]:,} parameters"
            for who, values in speeds.items()
        )
        found.notes.append(f"Training, {name} ({size}, {size.updates} updates a round): {medians}.")
        if max(speeds["train"]) > 1.5 * min(speeds["train"]):
            found.notes.append(
                f"The machine was busy with something else during {name}: one round of train was "
                "more than one and a half times as fast as another. Run it again when it is quiet."
            )
    if not trainer_is_here():
        found.notes.append("transformers or accelerate is not installed: no Trainer to compare.")
        return found
    found.notes.append(
        f"The Trainer of Transformers {version('transformers')} trains a GPT-2, with its own "
        "activation or with ours. No dropout and no cache; fused AdamW, decay, clipping and a "
        "constant rate as ours; its loader as it comes, without workers; no saves. As it comes it "
        "has its bar, its log every 500 updates and its filter of losses that are NaN; with "
        "logging off, none of them. Its clock starts at the first update; ours has all of train() "
        "in it. From the same inputs it learns one target fewer an example."
    )
    return found
