import pytest
import torch

from helpers import settings
from helpers.plan import RunPlan
from helpers.schedule import batch_ramp
from helpers.settings import TOOLS, differences, settings_for

PLAN = RunPlan(800, 4, accumulation=2, epochs=3, warmup=0.05)


def test_each_tool_gets_its_own_names():
    assert settings_for("transformers", PLAN, lr=1e-4) == {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 3,
        "learning_rate": 1e-4,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 15,
        "dataloader_drop_last": False,
    }
    assert settings_for("unsloth", PLAN, lr=1e-4) == settings_for("transformers", PLAN, lr=1e-4)
    assert settings_for("axolotl", PLAN, lr=1e-4, decay="linear") == {
        "micro_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_epochs": 3,
        "learning_rate": 1e-4,
        "lr_scheduler": "linear",
        "warmup_steps": 15,
        "dataloader_drop_last": False,
    }
    assert settings_for("torchtune", PLAN, lr=1e-4) == {
        "batch_size": 4,
        "gradient_accumulation_steps": 2,
        "epochs": 3,
        "optimizer.lr": 1e-4,
        "lr_scheduler.num_warmup_steps": 15,
    }


def test_a_number_of_updates_takes_the_place_of_epochs():
    found = settings_for("transformers", RunPlan(800, 8, max_steps=39), lr=1e-4)
    assert found["max_steps"] == 39
    assert "num_train_epochs" not in found
    # 0.07 × 100 is 7.000000000000001 in floats, which a tool would round up to 8.
    for tool in ("transformers", "axolotl"):
        assert settings_for(tool, RunPlan(800, 8, epochs=0.07), lr=1.0)["max_steps"] == 7


@pytest.mark.parametrize("tool", ["transformers", "axolotl"])
def test_dropping_the_last_batch_reaches_the_tool(tool):
    assert settings_for(tool, RunPlan(810, 8, drop_last=True), lr=1.0)["dataloader_drop_last"]


# Seen with Accelerate 1.15: it fills whole batches up, 832 of 810; with drop_last 47 examples by 8
# on 3 devices are one batch each, where dealing examples gives two.
@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (RunPlan(810, 8, devices=8), "sees 832 examples an epoch and not 816"),
        (RunPlan(47, 8, devices=3, drop_last=True), "makes 1 updates an epoch and not 2"),
        (RunPlan(800, 8, devices=4), None),
    ],
)
def test_whole_batches_are_dealt_to_devices(plan, words):
    notes = differences(plan)["transformers"]
    assert [words in note for note in notes] == ([] if words is None else [True])


def test_what_a_tool_leaves_out_is_said():
    # 810 examples by 4: 202 full batches and a rest of 2; windows of 2: 101 full ones
    notes = differences(RunPlan(810, 4, accumulation=2))["torchtune"]
    assert notes == [
        "It makes 101 updates an epoch and not 102: what does not fill a batch and a window is "
        "left out."
    ]
    assert differences(RunPlan(800, 8)) == {tool: [] for tool in TOOLS}
    assert "rate of zero" in differences(PLAN)["transformers"][0]


def test_an_update_that_is_left_out_is_torchtunes_way():
    plan = RunPlan(810, 4, accumulation=2, drop_last_update=True)
    assert differences(plan)["torchtune"] == []
    assert settings_for("torchtune", plan, lr=1.0)["gradient_accumulation_steps"] == 2
    # 202 full batches make 101 full windows, so that dropping the last batch is enough
    assert settings_for("transformers", plan, lr=1.0)["dataloader_drop_last"]
    plan = RunPlan(960, 64, accumulation=2, drop_last_update=True)
    note = "It makes 8 updates an epoch and not 7: it keeps the last one, which is not full."
    built_on_transformers = {name: [note] for name in TOOLS[:3]}
    assert differences(plan) == built_on_transformers | {"torchtune": []}
    with pytest.raises(ValueError, match="one that axolotl counts alike: It makes 8 updates"):
        settings_for("axolotl", plan, lr=1.0)


def test_a_plain_accelerate_loop_takes_the_unfilled_update_for_less():
    """Gradients 1 to 5, accumulation 2, SGD, rate 1, as ``helpers.settings`` tells."""

    def weights(divided_always):
        weight = torch.zeros(1, requires_grad=True)
        optimizer, seen = torch.optim.SGD([weight], lr=1.0), []
        for window in ((1, 2), (3, 4), (5,)):
            for gradient in window:
                (gradient * weight / (2 if divided_always else len(window))).backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append(weight.item())
        return seen

    for found in (weights(True), weights(False)):
        told = [f"{number:g}".replace("-", "−") for number in found]
        assert f"{told[0]}, {told[1]} and {told[2]}" in " ".join(settings.__doc__.split())
    assert RunPlan(5, 1, accumulation=2).update_sizes == (2, 2, 1)


@pytest.mark.parametrize(
    ("tool", "plan", "how", "words"),
    [
        ("trl", PLAN, {"lr": 1.0}, "tool must be one of"),
        ("transformers", PLAN, {"lr": 0}, "lr must be above zero"),
        ("transformers", PLAN, {"lr": 1.0, "decay": "trapezoid"}, "decay must be one of"),
        ("torchtune", PLAN, {"lr": 1.0, "decay": "linear"}, "decay must be 'cosine'"),
        ("torchtune", RunPlan(810, 8), {"lr": 1.0}, "101 updates an epoch and not 102"),
        ("torchtune", RunPlan(800, 8, epochs=0.5), {"lr": 1.0}, "whole epochs"),
        ("axolotl", RunPlan(80, 8, ramp=batch_ramp(8, [2])), {"lr": 1.0}, "without a ramp"),
    ],
)
def test_what_cannot_be_said_is_refused(tool, plan, how, words):
    with pytest.raises(ValueError, match=words):
        settings_for(tool, plan, **how)
