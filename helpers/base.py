"""The base model: small, trained once on the default text, and shipped with the package.

``load`` reads it. ``python -m helpers.base`` trains it anew by the recipe below, in a quarter of an
hour on two cores, and writes the two files beside this one: the weights, and the story of the run.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from helpers.data import CharTokenizer, load_text, sequences, split
from helpers.device import pick, preset
from helpers.history import History
from helpers.model import SmallLM
from helpers.plan import RunPlan
from helpers.schedule import lr_factors
from helpers.train import train

WEIGHTS = Path(__file__).with_name("base.safetensors")
STORY = Path(__file__).with_name("base.json")

SIZE = preset("medium")
BATCH_SIZE, LEARNING_RATE, EPOCHS, WARMUP = 64, 3e-3, 4, 0.02
HELD_OUT = 1024  # windows of the text that the base model was not trained on


def tokenizer() -> CharTokenizer:
    """Return the base model's tokenizer: a line's end, and the 95 printable characters of ASCII."""
    return CharTokenizer("\n" + "".join(map(chr, range(32, 127))))


def windows() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the default text as the base model has seen it: training windows, held-out windows."""
    return split(sequences(tokenizer().encode(load_text()), SIZE.context), held_out=HELD_OUT)


def load(weights: str | Path = WEIGHTS, story: str | Path = STORY) -> SmallLM:
    """Return the base model on the CPU, in 32 bits; its file holds 16.

    Raises ``ValueError`` if the file is not the one that the story tells of, byte for byte, or if
    its weights have other names or shapes; ``FileNotFoundError`` where there is none.
    """
    content = Path(weights).read_bytes()
    expected = json.loads(Path(story).read_text(encoding="utf-8"))["sha256"]
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise ValueError(
            f"weights must be the file that was written with {Path(story).name}, of SHA-256 "
            f"{expected[:12]}…; {weights} has {found[:12]}…, so it is damaged or another one. "
            f"Install the package again, or make both with python -m helpers.base"
        )
    return _model_of(content, weights)


def _model_of(content: bytes, name: str | Path) -> SmallLM:
    model = SmallLM(SIZE.model(tokenizer().vocab_size))
    try:
        model.load_state_dict(from_bytes(content))
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(
            f"weights must be those of the base model, {model.config}; {name} holds others "
            f"({str(error).splitlines()[-1].strip()})"
        ) from None
    return model


def start(updates: int | None = None, *, eval_every: int | None = None) -> tuple[SmallLM, History]:
    """Train by the recipe, all of it or the first ``updates``; return the model and its run."""
    training, held_out = windows()
    plan = RunPlan(len(training), BATCH_SIZE, epochs=EPOCHS, warmup=WARMUP)
    factors = lr_factors(plan.total_steps, plan.warmup_steps, "cosine")
    updates = plan.total_steps if updates is None else updates
    model = SmallLM(SIZE.model(tokenizer().vocab_size)).to(pick())
    history = train(
        model,
        training,
        batch_size=BATCH_SIZE,
        lr=LEARNING_RATE,
        steps=updates,
        schedule=factors[:updates],
        clip=1.0,
        eval_data=held_out,
        eval_every=eval_every,
    )
    return model.cpu(), history


def write(model: SmallLM, history: History, folder: Path = WEIGHTS.parent) -> None:
    """Write weights of 16 bits, and the story: checksum, recipe, and losses along the run."""
    content = to_bytes({name: part.half() for name, part in model.state_dict().items()})
    (folder / WEIGHTS.name).write_bytes(content)
    story = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "updates": history.steps,
        "examples": history.examples[-1],
        "first losses": _rounded(history.loss[:20]),
        "held-out losses": {str(done): round(loss, 4) for done, loss in history.held_out.items()},
    }
    (folder / STORY.name).write_text(json.dumps(story, indent=1) + "\n", encoding="utf-8")


def _rounded(losses: Sequence[float]) -> list[float]:
    return [round(loss, 4) for loss in losses]


if __name__ == "__main__":
    trained, run = start(eval_every=250)
    write(trained, run)
    print(run)
