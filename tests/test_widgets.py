import base64
import itertools
import re
import subprocess
import sys

import ipywidgets
import matplotlib.pyplot as plt
import pytest

from helpers import plots, widgets
from helpers.plan import RunPlan
from tests.test_plots import FIT, LANDSCAPE, UPDATES, WARMED, swept

SIZES, NOISE, SPEED = (1, 4, 16, 64), (8.0, 4.0, 2.0, 1.0), (800.0, 2000.0, 5000.0, 8000.0)


def parts(box):
    *sliders, words, image = box.children
    return {slider.description: slider for slider in sliders}, words, image


def png(image):
    return base64.b64decode(re.search('base64,([^"]+)"', image.value)[1])


def pictures(box):
    return re.findall("<img", "".join(getattr(child, "value", "") for child in box.children[-2:]))


def test_picture_has_an_alternative_text(planner):
    _, _, image = parts(planner)
    assert re.search('alt="([^"]+)"', image.value)[1].startswith("the factor on the learning rate")


def test_the_same_place_shows_the_same_picture_again(planner):
    sliders, words, image = parts(planner)
    before = image.value, words.value
    for _ in range(2):
        sliders["epochs"].value = 1
        assert (image.value, words.value) != before
        sliders["epochs"].value = 3
        assert (image.value, words.value) == before


@pytest.fixture
def batch():
    return widgets.batch_explorer(SIZES, NOISE, SPEED)


@pytest.fixture
def planner():
    return widgets.plan_explorer()


def test_each_move_leaves_exactly_one_picture(batch):
    sliders, _, image = parts(batch)
    seen = {image.value}
    for size in (4, 16, 64):
        sliders["batch size"].value = size
        assert len(pictures(batch)) == 1
        assert png(image).startswith(b"\x89PNG")
        seen.add(image.value)
    assert len(seen) == 4
    assert plt.get_fignums() == []


def test_words_give_the_measured_numbers(batch):
    sliders, words, _ = parts(batch)
    sliders["batch size"].value = 16
    assert "<b>16</b>" in words.value
    assert "2.00 times" in words.value
    assert "5,000 examples per second" in words.value
    assert "2.0 s for 10,000" in words.value  # 10,000 ÷ 5,000


def test_planner_counts_as_a_run_plan_does(planner):
    sliders, words, _ = parts(planner)
    assert "300" in words.value  # 800 ÷ 8 × 3
    sliders["examples"].value = 810
    sliders["epochs"].value = 1
    assert ">102<" in words.value
    sliders["drop last"].value = True
    assert ">101<" in words.value


def test_planner_with_no_update_says_so_and_recovers(planner):
    sliders, words, image = parts(planner)
    sliders["drop last"].value = True
    before = image.value
    sliders["examples"].value = 10
    sliders["batch size"].value = 16
    assert "No such run" in words.value
    assert png(image).startswith(b"\x89PNG")
    sliders["batch size"].value = 8
    assert "No such run" not in words.value
    assert image.value != before


def test_every_choice_of_the_planner_is_a_plan_or_an_error_in_words(planner):
    sliders, words, _ = parts(planner)
    for examples, batch_size, devices in itertools.product((10, 91), (1, 64), (1, 8)):
        sliders["examples"].value = examples
        sliders["batch size"].value = batch_size
        sliders["devices"].value = devices
        expected = RunPlan(examples, batch_size, devices=devices, epochs=3).total_steps
        assert f">{expected}<" in words.value


def test_every_slider_has_a_label_and_keys(planner):
    sliders, _, _ = parts(planner)
    assert len(sliders) == 7
    for label, slider in sliders.items():
        assert label
        assert isinstance(slider, ipywidgets.SelectionSlider)


def test_without_ipywidgets_there_is_the_still_figure(monkeypatch):
    monkeypatch.setattr(widgets, "ipywidgets", None)
    assert isinstance(widgets.batch_explorer(SIZES, NOISE, SPEED), plots.Picture)
    assert isinstance(widgets.plan_explorer(), plots.Picture)


def test_import_works_without_ipywidgets():
    code = (
        "import sys; sys.modules['ipywidgets'] = None\n"
        "import helpers.widgets; print(helpers.widgets.ipywidgets)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"


def test_rate_explorer_gives_both_predictions_and_what_was_measured():
    result = swept(LANDSCAPE)
    explorer = widgets.rate_explorer(result, reference=16)
    sliders, words, image = parts(explorer)
    before = image.value
    sliders["batch size"].value = 4
    first, measured = result.best(16).rate, result.best(4).rate
    for rate in (first / 4, first / 2, measured):
        assert f"{rate:.2g}" in words.value
    assert image.value != before
    assert len(pictures(explorer)) == 1


def test_critical_explorer_says_what_a_batch_size_costs():
    explorer = widgets.critical_explorer(SIZES, UPDATES, FIT)
    sliders, words, _ = parts(explorer)
    sliders["batch size"].value = 4
    # 50 × (1 + 8 ÷ 4) = 150 updates of 4; the least are 50 updates and 400 examples.
    for number in ("150 updates", "<b>3.0 times</b>", "600 examples", "<b>1.5 times</b>"):
        assert number in words.value
    assert len(pictures(explorer)) == 1


def test_memory_explorer_says_what_fits():
    explorer = widgets.memory_explorer()
    sliders, words, image = parts(explorer)
    assert "74.5 GiB" in words.value  # 80 · 10⁹ bytes
    before = image.value
    sliders["card (GB)"].value = 24
    assert (
        "<b>none</b> fits" in words.value
    )  # the weights of 7 B alone are 12.5 GiB, and 8 a number
    sliders["method"].value = "4-bit base"
    sliders["checkpoints"].value = True
    assert "largest that fits" in words.value
    assert image.value != before
    sliders["model"].value = "gpt2-124m"
    sliders["context"].value = 4096
    assert "at most the model's 1,024" in words.value
    assert len(pictures(explorer)) == 1


def test_warmup_explorer_gives_the_measured_loss_or_says_lost():
    explorer = widgets.warmup_explorer(WARMED, 4)
    sliders, words, _ = parts(explorer)
    sliders["learning rate"].value = "1"
    assert "<b>lost</b>" in words.value
    sliders["warmup"].value = 8
    assert "<b>2.500</b>" in words.value
    assert "a rate of 0.12" in words.value  # 1 ÷ 8
    assert len(pictures(explorer)) == 1
