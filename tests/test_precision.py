import math
from functools import partial

import pytest
import torch

from helpers import precision as module
from helpers.checkpoint import load_state
from helpers.model import ModelConfig, SmallLM
from helpers.precision import HALVINGS, Precision
from helpers.schedule import lr_factors
from helpers.train import train

WINDOWS = torch.randint(11, (45, 9), generator=torch.Generator().manual_seed(0))
CONFIG = ModelConfig(11, 8, 8, 1, 2)
STEPS = 8
HOW = {"batch_size": 4, "lr": 0.01, "steps": STEPS, "schedule": lr_factors(STEPS, 3)}


def scale_from(monkeypatch, exponent):
    scaler = partial(torch.amp.GradScaler, init_scale=2.0**exponent)
    monkeypatch.setattr(module.torch.amp, "GradScaler", scaler)


def run(**changes):
    model = SmallLM(CONFIG)
    return model, train(model, WINDOWS, **(HOW | changes))


@pytest.mark.parametrize(("name", "digits"), [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_sixteen_bits_differ_by_their_rounding_and_leave_weights_in_32(name, digits):
    model, history = run(precision=name)
    _, exact = run()
    apart = max(abs(a - b) for a, b in zip(history.loss, exact.loss))
    assert 0 < apart < 4 * digits
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert history.skipped == 0


@pytest.mark.parametrize("clip", [None, 0.1])
def test_a_skipped_update_is_counted_not_scheduled_and_made_at_a_smaller_scale(monkeypatch, clip):
    how = {"precision": "float16", "clip": clip}
    scale_from(monkeypatch, 36)
    model, skipping = run(**how)
    assert 0 < skipping.skipped < HALVINGS
    assert skipping.lr == [0.01 * factor for factor in HOW["schedule"]]
    assert skipping.examples[-1] == STEPS * 4
    # Powers of two round nothing, so a run that begins where it fits is the same bit for bit.
    scale_from(monkeypatch, 36 - skipping.skipped)
    same, fitting = run(**how)
    assert fitting.skipped == 0
    assert fitting.loss == skipping.loss
    assert all(map(torch.equal, model.parameters(), same.parameters()))
    assert f"{skipping.skipped} skipped" in repr(skipping)


def test_a_gradient_that_overflows_at_every_scale_ends_the_run(monkeypatch):
    scale_from(monkeypatch, 100)
    model, history = run(precision="float16")
    assert (history.diverged_at, history.steps, history.skipped) == (1, 0, HALVINGS)
    assert all(map(torch.equal, model.parameters(), SmallLM(CONFIG).parameters()))
    assert math.isnan(history.final_loss)


def test_a_resumed_run_goes_on_with_its_scale(monkeypatch, tmp_path):
    scale_from(monkeypatch, 36)
    _, expected = run(precision="float16", checkpoint=tmp_path / "whole")
    made = []

    def stop(*_):
        made.append(1)
        if len(made) == 4:
            raise KeyboardInterrupt

    def stopping(groups, lr):
        optimizer = torch.optim.AdamW(groups, lr=lr)
        optimizer.register_step_post_hook(stop)
        return optimizer

    how = {"precision": "float16", "checkpoint": tmp_path / "run", "optimizer": stopping}
    run(save_every=1, **how)
    kept = load_state(tmp_path / "run")
    assert kept["history"]["skipped"] == expected.skipped
    assert kept["precision"]["scale"] == 2.0 ** (36 - expected.skipped)
    made.extend([1] * 4)
    _, resumed = run(resume=True, **how)
    assert resumed.skipped == expected.skipped
    assert resumed.steps == STEPS
    ends = load_state(tmp_path / "run"), load_state(tmp_path / "whole")
    assert ends[0]["precision"] == ends[1]["precision"]
    with pytest.raises(ValueError, match="precision was 'float16' and is 'float32'"):
        run(resume=True, checkpoint=tmp_path / "whole")


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"precision must be one of 'float32', .*; got 'int8'"):
        run(precision="int8")
    with pytest.raises(ValueError, match=r"model must be in torch.float32 .* got torch.float64"):
        Precision("float16", SmallLM(CONFIG).double())
    with pytest.raises(ValueError, match="'meta' has no float16"):
        Precision("float16", SmallLM(CONFIG).to("meta"))


@pytest.mark.parametrize(("capability", "slow"), [((7, 5), True), ((8, 0), False)])
def test_bfloat16_on_a_card_without_it_says_that_it_is_slow(monkeypatch, recwarn, capability, slow):
    monkeypatch.setattr(module.torch, "autocast", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    module._refuse_or_warn("bfloat16", torch.device("cuda"))
    assert [("slowly" in str(w.message), "sm_75" in str(w.message)) for w in recwarn] == (
        [(True, True)] if slow else []
    )
