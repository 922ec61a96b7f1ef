import random
from types import SimpleNamespace

import pytest
import torch

from helpers import device
from helpers.device import GIB, PRESETS, pick, preset, seed_everything
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


@pytest.fixture
def card(monkeypatch):
    """Return what puts a card of so many GiB into this machine."""

    def of(gib):
        properties = SimpleNamespace(total_memory=int(gib * GIB))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        return torch.device("cuda")

    return of


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("small", 1e4, 3e4), ("medium", 1e5, 1.3e5), ("large", 9e5, 1.1e6), ("xl", 9e6, 11e6)],
)
def test_preset_has_the_size_it_says(name, low, high):
    model = SmallLM(preset(name).model(103))
    assert low < sum(parameter.numel() for parameter in model.parameters()) < high


@pytest.mark.parametrize(("gib", "name"), [(1.9, "medium"), (2, "large"), (14.6, "large")])
def test_preset_fits_the_memory_of_the_card(card, gib, name):
    assert preset(card(gib)) == PRESETS[name]


@pytest.mark.parametrize("size", PRESETS.values(), ids=PRESETS)
def test_a_card_with_room_for_a_preset_holds_its_largest_pass(size):
    shape = Shape(103, size.context, size.width, size.layers, size.heads)
    needed = estimate(shape, batch_size=256, context=size.context, precision="float32").peak
    assert 1.1 * needed < size.room <= 12 * GIB


def test_the_largest_preset_is_there_where_it_is_asked_for_and_fits(card):
    assert preset(card(14.6), "xl") == PRESETS["xl"]
    assert preset(torch.device("cpu"), "large") == PRESETS["large"]
    with pytest.raises(
        ValueError, match=r"'xl' needs 12.0 GiB and the card has 8.0 GiB, .* or 'large'"
    ):
        preset(card(8), "xl")
    with pytest.raises(
        ValueError, match=r"needs 1.0 GiB and the card has 0.5 GiB, enough for none"
    ):
        preset(card(0.5), "small")


def test_preset_of_a_cpu_is_the_same_to_the_digit():
    size = preset(torch.device("cpu"))
    assert (size.name, size.context, size.width, size.layers, size.heads) == ("small", 32, 32, 1, 2)
    assert size.rates == (0.0003, 0.001, 0.003, 0.01, 0.03)


def test_preset_of_a_name():
    assert preset("medium") == PRESETS["medium"]
    with pytest.raises(ValueError, match="device must be one of 'small', 'medium', 'large', 'xl'"):
        preset("huge")
    with pytest.raises(ValueError, match=r"name must be one of 'small', .*; got 'gpu'"):
        preset(torch.device("cpu"), "gpu")


def test_the_clock_is_read_when_the_device_is_done(monkeypatch):
    happened = []
    monkeypatch.setattr(device, "wait", lambda _: happened.append("wait"))
    monkeypatch.setattr(
        device.time, "perf_counter", lambda: happened.append("clock") or float(len(happened))
    )
    taken = device.timed(lambda: happened.append("work"), torch.device("cpu"))
    assert happened == ["wait", "clock", "work", "wait", "clock"]
    assert taken == 5 - 2
