"""The notebooks on a card that is not there: a forgotten ``.to(device)`` is found here."""

import copy
import re
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from helpers import claims, data, device
from helpers.device import GIB, Preset, pick
from helpers.footprint import estimate
from helpers.memory import measure
from helpers.model import ModelConfig, SmallLM
from helpers.noise import noise_scale
from helpers.shapes import Shape
from helpers.sweep import sweep
from helpers.train import evaluate, train
from tests.stand_in import card

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("0*.ipynb"))
CHARACTERS = 300_000  # of the text
PRESETS = dict(device.PRESETS)  # as they are
VOCABULARY = 103
SIZES = {"small": (16, 16, 1, 2), "medium": (8, 16, 2, 2), "large": (8, 16, 3, 2)}
BY_LAYERS = {layers: name for name, (_, _, layers, _) in SIZES.items()}
# What makes a notebook short. Its claims need not hold so, but all of its code runs.
SHORT = {
    "01_batches": {
        "EXAMPLES = 1024": "EXAMPLES = 64",
        "steps=200": "steps=4",
        "256 // batch_size": "16 // batch_size",
    },
    "02_steps_and_epochs": {
        "STEPS = 320": "STEPS = 24",
        "steps=400": "steps=50",
        "curve[400]": "curve[50]",
        "[:1024]": "[:64]",
        "steps=120": "steps=4",
    },
    "03_accumulation_equivalence": {
        "STEPS = 300": "STEPS = 12",
        "[:2048]": "[:64]",
        "range(12)": "range(5)",
    },
    "04_linear_scaling_limits": {
        "EXAMPLES = 2048": "EXAMPLES = 512",
        "steps=60": "steps=4",
        "EPOCHS = 6": "EPOCHS = 1",
    },
    "05_critical_batch_size": {
        "(0, 256, 1024)": "(0, 2, 4)",
        "added(1024)": "added(4)",
        "added(256)": "added(2)",
        "SPAN = 1024": "SPAN = 64",
    },
    "06_warmup": {
        "(3, 5, 8)": "(3, 3, 3)",
        "(39, 75, 300)": "(3, 5, 9)",
        "cost[39]": "cost[3]",
        "cost[300]": "cost[9]",
        "10_240": "1_024",
        "8192 // 16": "1024 // 16",
        "= 200, 10, 4": "= 20, 10, 4",
        "[100]": "[10]",
    },
    "07_gpu_memory": {
        "= 100, 64, 128, 2, 4": "= 20, 8, 16, 2, 4",
        "32 * MIB": "MIB",
        "range(5)": "range(3)",
    },
    "08_data_parallel": {":240]": ":24]"},
    "09_plan_a_run": {"64, 64, 2, 4": "64, 16, 1, 2"},
}


@pytest.fixture
def short(monkeypatch):
    """Small presets, a short text, and claims that are only written down."""
    heard = []

    def note(text, ok, **measured):
        claims._judgement(ok)
        heard.append(text + claims._numbers(measured, ""))

    monkeypatch.setattr(claims, "claim", note)
    monkeypatch.setattr(
        claims, "verdict", lambda _, text, __, ok, **measured: note(text, ok, **measured)
    )
    text = data.load_text()[:CHARACTERS]
    monkeypatch.setattr(data, "load_text", lambda: text)
    for name, size in SIZES.items():
        preset = Preset(name, *size, device.PRESETS[name].rates, room=1)
        monkeypatch.setitem(device.PRESETS, name, preset)
    return heard


def cells_of(path):
    """Yield the identifier and the shortened code of each cell."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    short = SHORT[path.stem] | {"SEED, SEED + 5": "SEED, SEED + 3"}
    for long in SHORT[path.stem]:
        assert any(long in cell.source for cell in cells), f"{long} is no longer in {path.name}"
    for cell in cells:
        pattern = "|".join(map(re.escape, short))
        yield cell.id, re.sub(pattern, lambda found: short[found[0]], cell.source)


def test_what_is_made_of_the_card_says_so_and_comes_back():
    with card():
        there, here = torch.ones(3, device=pick()), torch.ones(3)
        on_card = (
            there + there,
            there * here.sum(),
            there.double(),
            there[here.long()],
            here.cuda(),
        )
        assert {tensor.device.type for tensor in on_card} == {"cuda"}
        assert here.device.type == there.cpu().device.type == here.to("cpu").device.type == "cpu"
        here[0] = 2 * there[0]
        assert here.tolist() == [2, 1, 1]
        model = copy.deepcopy(SmallLM(ModelConfig(20, 8, 16, 1, 2)).to("cuda"))
        assert all(weight.is_cuda for weight in model.parameters())
    assert pick().type == "cpu"


@pytest.mark.parametrize(
    "mixed",
    [
        lambda there, here: there + here,
        lambda there, here: here * there.sum(),
        lambda there, here: there.mul_(here),
        lambda there, here: torch.cat([there, here]),
        lambda there, here: torch.stack([there.sum(), here.sum()]),
        lambda there, here: here[there.long()],
        lambda there, here: torch.equal(there, here),
        lambda there, _: there.numpy(),
        lambda *_: torch.rand(3, device="cuda", generator=torch.Generator()),
    ],
)
def test_what_cuda_refuses_is_refused(mixed):
    with card():
        there, here = torch.ones(3, device="cuda"), torch.ones(3)
        with pytest.raises(
            (RuntimeError, TypeError), match=r"same device|Tensor.cpu|'cuda' device"
        ):
            mixed(there, here)


def test_training_on_the_stand_in_is_that_of_the_cpu():
    config = ModelConfig(20, 8, 16, 1, 2)
    windows = torch.randint(20, (40, 9), generator=torch.Generator().manual_seed(0))
    how = {"batch_size": 4, "lr": 1e-2, "steps": 3, "clip": 0.1}

    def losses(where):
        model = SmallLM(config).to(where)
        return [*train(model, windows, **how).loss, evaluate(model, windows)]

    with card():
        assert losses("cuda") == losses("cpu")
        runs = sweep(config, windows, learning_rates=[0.01], batch_sizes=[4], examples=8)
        assert runs.finished.all()
        there = SmallLM(config).to("cuda")
        assert noise_scale(there, windows.cuda()[:, :-1], windows.cuda()[:, 1:]).examples == 40
        with pytest.raises(RuntimeError, match="same device"):
            there(windows[:, :-1])


def test_memory_on_the_stand_in_is_seen_as_on_the_cpu():
    def seen(where):
        model = SmallLM(ModelConfig(20, 8, 16, 1, 2)).to(where)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        tokens = torch.zeros(4, 8, dtype=torch.int64, device=where)

        def step():
            model(tokens).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return measure(step, device=where).later

    with card():
        # On CUDA the tracker rounds each tensor up to 512 bytes.
        assert seen("cuda").at_peak == pytest.approx(seen("cpu").at_peak, rel=0.3)


@contextmanager
def weighed_passes():
    """Collect what each pass of a preset's model would take at its real size, by preset.

    In bytes, as ``estimate`` has it. Stacks of a sweep are not seen: they are made to fit.
    """
    most = {"medium": 0, "large": 0}

    def weigh(model, given):
        if isinstance(model, SmallLM) and given[0].dim() == 2:
            rows, config = len(given[0]), model.config
            name = BY_LAYERS[config.layers]
            share = config.context / SIZES[name][0]
            wide = model.final_norm.weight.element_size() // 4  # 2 in float64
            for real in most:
                size = PRESETS[name if name == "small" else real]
                context = max(1, round(share * size.context))
                shape = Shape(VOCABULARY, context, size.width, size.layers, size.heads)
                how = {"batch_size": rows * wide, "context": context, "precision": "float32"}
                most[real] = max(most[real], estimate(shape, **how).peak)

    handle = register_module_forward_pre_hook(weigh)
    try:
        yield most
    finally:
        handle.remove()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_on_the_stand_in(path, short):
    space = {}
    with card(), weighed_passes() as most:
        for name, source in cells_of(path):
            exec(compile(source, f"{path.stem}:{name}", "exec"), space)
    assert len(short) >= 10  # the claims and verdicts came
    assert most["large"] < 12 * GIB  # on a T4, which has 15
    assert most["medium"] < 6 * GIB
