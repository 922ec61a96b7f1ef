import base64
import inspect
import re
from itertools import chain, pairwise
from xml.etree import ElementTree

import pytest
from IPython.core.interactiveshell import InteractiveShell

from helpers import diagrams
from helpers.diagrams import machines, rates, training
from helpers.diagrams.kit import PAPER, TONES, WIDTH, Drawing

NAMES = [name for name in diagrams.__all__ if name != "Diagram"]
SVG = "{http://www.w3.org/2000/svg}"
LETTER = 0.55  # a letter is about as wide as this share of its size


def drawn(name):
    return getattr(diagrams, name)()


def tree(name):
    return ElementTree.fromstring(drawn(name).svg)


def words(name):
    return " ".join(element.text for element in tree(name).iter(f"{SVG}text"))


def test_there_is_one_for_each_notebook_and_it_asks_for_nothing():
    assert len(NAMES) == 9
    for name in NAMES:
        assert not inspect.signature(getattr(diagrams, name)).parameters


@pytest.mark.parametrize("name", NAMES)
def test_picture_is_well_formed_and_says_what_it_shows(name):
    picture, root = drawn(name), tree(name)
    assert root.get("role") == "img"
    assert [root.find(f"{SVG}{part}").text for part in ("title", "desc")] == [
        picture.title,
        picture.alt,
    ]
    assert len(picture.alt) > 150
    assert not re.search(r"<script|href|url\(|\bid=", picture.svg)  # alone, twice on a page too
    assert len(picture.svg) < 25_000


@pytest.mark.parametrize("name", NAMES)
def test_picture_is_the_same_each_time_and_reads_as_text(name):
    assert drawn(name) == drawn(name)
    text = repr(drawn(name))
    assert text.startswith(f"Diagram: {drawn(name).title}. ")
    assert max(map(len, text.splitlines())) <= 80


def test_notebook_gets_an_image_with_its_alternative_text():
    picture = drawn("step")
    data, _ = InteractiveShell.instance().display_formatter.format(picture)
    assert data["text/plain"] == repr(picture)
    image = ElementTree.fromstring(data["text/html"].replace('auto">', 'auto"/>'))
    assert image.get("alt") == f"{picture.title}. {picture.alt}"
    stored = base64.b64decode(image.get("src").partition("base64,")[2])
    assert stored.decode() == data["image/svg+xml"] == picture.svg


@pytest.mark.parametrize("name", NAMES)
def test_words_are_large_enough_in_a_narrow_column_and_stay_on_the_card(name):
    root = tree(name)
    _, _, width, height = map(float, root.get("viewBox").split())
    assert width == WIDTH
    for element in root.iter(f"{SVG}text"):
        size, x, y = (float(element.get(key)) for key in ("font-size", "x", "y"))
        assert size * 400 / WIDTH >= 11
        long = LETTER * size * len(element.text)
        start = x - {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor")] * long
        assert start >= 4, element.text
        assert start + long <= width - 4, element.text
        assert size <= y <= height - 8, element.text


def luminance(colour):
    """Return the relative luminance of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_black_on_white_at_most():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("tone", TONES)
def test_every_tone_can_be_read(tone):
    line, area, letters = TONES[tone]
    assert contrast(letters, PAPER) >= 4.5  # also white on a badge
    assert contrast(letters, area) >= 4.5
    assert contrast(TONES["ink"].words, area) >= 7
    assert contrast(line, PAPER) >= 3


def test_words_are_escaped():
    drawing = Drawing("a < b", "c & d", height=50)
    drawing.words(9, 20, "e < f")
    root = ElementTree.fromstring(drawing.done().svg)
    assert [root.find(f"{SVG}{part}").text for part in ("title", "desc", "text")] == [
        "a < b",
        "c & d",
        "e < f",
    ]


def test_step_has_six_moves_in_order():
    names = ("Draw", "Pad, stack", "Forward", "Loss", "Backward", "Update")
    places = [words("step").index(name) for name in names]
    assert places == sorted(places)


def test_an_epoch_has_every_example_and_the_one_followed_has_other_company():
    company = []
    for order in training.EPOCHS:
        assert sorted(order) == list(training.DATA)
        place = order.index(training.FOLLOWED) // 4
        company.append({*order[4 * place : 4 * place + 4]})
    assert company[0] & company[1] == {training.FOLLOWED}


def test_all_that_targets_count_adds_up_to_one():
    shares = re.findall(r"1/(\d+) each", words("accumulation"))
    counts = training.COUNTS * 2
    assert sum(count / int(share) for count, share in zip(counts[:2], shares[:2])) == 1
    assert sum(count / int(share) for count, share in zip(counts[2:], shares[2:])) == 1


def walk(shape, rate, place, steps=40):
    places = [place]
    for _ in range(steps):
        places.append(places[-1] - rate * shape(places[-1])[1])
    return [abs(place) for place in places]


def test_valleys_settle_leave_and_stay_as_written():
    assert walk(rates._bowl, 0.4, 0.9)[-1] < 1e-6
    assert all(after > before for before, after in pairwise(walk(rates._bowl, 2.5, 0.1)))
    assert 0.1 < walk(rates._bending, 2.5, 0.12)[-1] < 1
    near = 1e-4  # both are as sharp at the bottom: 1
    for shape in (rates._bowl, rates._bending):
        assert shape(near)[1] / near == pytest.approx(1, rel=1e-3)


def test_warmup_stays_below_what_is_borne_and_none_does_not():
    full = 140
    too_high = [full > rates._borne(update) for update in range(1, rates.UPDATES + 1)]
    assert too_high == sorted(too_high, reverse=True)
    assert any(too_high)
    for update in range(1, rates.UPDATES + 1):
        assert full * min(1, update / rates.WARMUP) <= rates._borne(update)


def test_bytes_of_the_stages_are_those_worked_out_by_hand():
    assert [machines._held(stage) for stage in range(4)] == [16, 7, 5.5, 4]
    assert set(chain(machines.BYTES)) < set(machines.PARTS)


def test_chain_holds_the_numbers_of_its_plan():
    # 1,000 ÷ 4 = 250; 250 ÷ 8 = 31.25, so 32; twice that; 64 × 3 s = 192 s; 5 % of 64 is 3.2, so 4
    shown = words("plan")
    for number in ("1,000", "250", "32", "64", "3.2", "1,000,000", "31.25", "4 of them warmup"):
        assert number in shown
