import random
from types import SimpleNamespace

import pytest
import torch

from helpers import device
from helpers.device import PRESETS, ROOM_FOR_GPU, pick, preset, seed_everything
from helpers.footprint import estimate
from helpers.model import SmallLM
from helpers.shapes import Shape


def test_without_cuda_it_is_the_cpu_and_nothing_of_cuda_is_touched(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)

    def touched(*_, **__):
        raise AssertionError("CUDA was touched")

    for name in ("current_device", "device_count", "get_device_properties", "init"):
        monkeypatch.setattr(torch.cuda, name, touched)
    assert pick() == torch.device("cpu")
    assert pick("mps") == torch.device("mps")


def test_with_cuda_it_is_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick() == torch.device("cuda")
    assert pick("cpu") == torch.device("cpu")


def test_what_is_not_here_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="'cuda', which is not here"):
        pick("cuda")
    with pytest.raises(ValueError, match="name must be one of"):
        pick("tpu")


def test_seed_reaches_python_and_torch():
    def draw():
        seed_everything(7)
        return random.random(), torch.rand(3).tolist()

    assert draw() == draw()
    for bad in (-1, 1.5, True):
        with pytest.raises((ValueError, TypeError), match="seed"):
            seed_everything(bad)


@pytest.mark.parametrize(
    ("name", "low", "high"), [("small", 1e4, 3e4), ("medium", 1e5, 1.3e5), ("gpu", 9e6, 11e6)]
)
def test_preset_has_the_size_it_says(name, low, high):
    model = SmallLM(preset(name).model(103))
    assert low < sum(parameter.numel() for parameter in model.parameters()) < high


@pytest.mark.parametrize(("gib", "name"), [(4, "medium"), (11.9, "medium"), (14.6, "gpu")])
def test_preset_fits_the_memory_of_the_card(monkeypatch, gib, name):
    card = SimpleNamespace(total_memory=int(gib * 2**30))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    assert preset(torch.device("cuda")) == PRESETS[name]


def test_gpu_preset_fits_where_it_is_chosen():
    size = PRESETS["gpu"]
    shape = Shape(103, size.context, size.width, size.layers, size.heads)
    needed = estimate(shape, batch_size=256, context=size.context, precision="float32").peak
    assert needed < 0.9 * ROOM_FOR_GPU


def test_preset_of_a_cpu_or_of_a_name():
    assert preset(torch.device("cpu")) == PRESETS["small"]
    assert preset("medium") == PRESETS["medium"]
    with pytest.raises(ValueError, match="must be one of"):
        preset("huge")


def test_the_clock_is_read_when_the_device_is_done(monkeypatch):
    happened = []
    monkeypatch.setattr(device, "wait", lambda _: happened.append("wait"))
    monkeypatch.setattr(
        device.time, "perf_counter", lambda: happened.append("clock") or float(len(happened))
    )
    taken = device.timed(lambda: happened.append("work"), torch.device("cpu"))
    assert happened == ["wait", "clock", "work", "wait", "clock"]
    assert taken == 5 - 2
