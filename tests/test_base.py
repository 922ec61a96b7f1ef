"""The base model: the file is the one that the recipe wrote, and damage to it is seen."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers import base
from helpers.model import SmallLM, token_loss


@pytest.fixture(scope="module")
def story():
    return json.loads(base.STORY.read_text("utf-8"))


def test_the_recipe_starts_the_curve_of_the_story(story):
    _, run = base.start(updates=3)
    assert run.loss == pytest.approx(story["first losses"][:3], abs=2e-3)


def test_the_loss_flattened_and_half_precision_lost_nothing(story):
    losses = {int(done): loss for done, loss in story["held-out losses"].items()}
    last = losses.pop(story["updates"])
    assert losses[0] > 4
    assert 0.37 < last < losses[3000] < last + 0.03  # above the floor of the text
    _, held_out = base.windows()
    model = base.load()
    with torch.no_grad():
        found = token_loss(model(held_out[:, :-1]), held_out[:, 1:]).item()
    assert found == pytest.approx(last, abs=1e-3)


def test_its_file_is_small_and_its_text_is_the_default_one(story):
    assert base.WEIGHTS.stat().st_size < 5e6
    assert story["sha256"] == hashlib.sha256(base.WEIGHTS.read_bytes()).hexdigest()
    training, held_out = base.windows()
    assert len(training) * base.EPOCHS == pytest.approx(story["examples"], abs=base.BATCH_SIZE)
    assert {part.dtype for part in base.load().state_dict().values()} == {torch.float32}
    assert len(held_out) == base.HELD_OUT


def test_a_damaged_file_is_refused(tmp_path):
    content = bytearray(base.WEIGHTS.read_bytes())
    content[-1] ^= 1
    damaged = tmp_path / "base.safetensors"
    damaged.write_bytes(content)
    with pytest.raises(ValueError, match="weights must be the file that was written with base"):
        base.load(damaged)


@pytest.mark.parametrize("change", ["shape", "name", "no safetensors"])
def test_weights_of_another_model_are_refused(tmp_path, change):
    parts = load_file(base.WEIGHTS)
    if change == "shape":
        parts["final_norm.weight"] = torch.ones(7)
    if change == "name":
        parts["another"] = parts.pop("final_norm.weight")
    weights, story = tmp_path / "base.safetensors", tmp_path / "base.json"
    save_file(parts, weights)
    if change == "no safetensors":
        weights.write_bytes(b"something else")
    story.write_text(json.dumps({"sha256": hashlib.sha256(weights.read_bytes()).hexdigest()}))
    with pytest.raises(ValueError, match="weights must be those of the base model"):
        base.load(weights, story)


def test_what_is_written_is_what_is_loaded(tmp_path):
    model, run = base.start(updates=1)
    base.write(model, run, tmp_path)
    back = base.load(tmp_path / "base.safetensors", tmp_path / "base.json")
    assert isinstance(back, SmallLM)
    for name, part in back.state_dict().items():
        assert torch.equal(part, model.state_dict()[name].half().float()), name
