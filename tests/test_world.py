import hashlib
import math
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from helpers import world
from helpers.data import load_text
from helpers.world import NUMBERS, OPENINGS, PHRASES, SENTENCES, WORDS, Choice, tell

SHA256 = "5ec824087c6b00fa71b7b965b79c6e32d85899436729abbaba180ac3fff0e1fe"
PRINT_SHA256 = (
    "import hashlib; from helpers.world import tell; "
    "print(hashlib.sha256(tell().text.encode()).hexdigest())"
)


def test_the_default_text_is_one_text():
    assert hashlib.sha256(load_text().encode()).hexdigest() == SHA256
    assert len(load_text()) >= 4_000_000


def other_pythons():
    """The Pythons of this machine, by what they call themselves; a shim may lead nowhere."""
    names = ["/usr/bin/python3", *(f"python3.{minor}" for minor in range(10, 16))]
    found = {}
    for path in filter(None, map(shutil.which, names)):
        asked = subprocess.run([path, "-VV"], capture_output=True, text=True, check=False)
        if asked.returncode == 0 and re.match(r"Python 3\.1\d", asked.stdout):
            found[asked.stdout.split("(")[0].strip()] = path
    # Under pyenv a version is found only where it is chosen.
    root = os.environ.get("PYENV_ROOT")
    if root:
        for path in sorted(os.listdir(f"{root}/versions")):
            if re.match(r"3\.1\d", path):
                found[f"Python {path}"] = f"{root}/versions/{path}/bin/python"
    return found


@pytest.mark.parametrize(("name", "path"), other_pythons().items())
def test_every_python_tells_the_same(name, path):
    # The world needs no torch, so that it can be told by a bare Python.
    told = subprocess.run(
        [path, "-c", PRINT_SHA256], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(world.__file__).rsplit("helpers", 1)[0]},
    )  # fmt: skip
    assert told.stdout.strip() == SHA256, name


def test_it_needs_no_torch():
    code = "import sys, helpers.world; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_shorter_text_is_the_beginning():
    assert tell(500).text == tell().text[:500]
    assert tell(500, seed=2).text != tell(500).text
    assert len(tell(1).text) == 1


@pytest.mark.parametrize(("characters", "error"), [(0, ValueError), (1.5, TypeError)])
def test_bad_numbers_are_refused(characters, error):
    with pytest.raises(error, match="characters must be a whole number"):
        tell(characters)


def test_a_word_twice_is_refused():
    with pytest.raises(ValueError, match="words must differ"):
        Choice(["a", "b", "a"])


def test_a_choice_draws_by_its_weights():
    choice, numbers = Choice(["x", "y", "z"]), random.Random(0)
    # Weights 250,000, 200,000 and 166,666, worked out by hand.
    share = {"x": 250_000 / 616_666, "y": 200_000 / 616_666, "z": 166_666 / 616_666}
    assert choice.nats == pytest.approx({word: -math.log(part) for word, part in share.items()})
    drawn = Counter(choice.draw(numbers) for _ in range(20_000))
    for word, part in share.items():
        assert abs(drawn[word] / 20_000 - part) < 4 * math.sqrt(part * (1 - part) / 20_000)


def test_information_is_what_the_draws_say():
    """Count the information of a text anew, with choices that note themselves."""
    noted = []
    teller = world._Teller(seed=3)
    draw = Choice.draw

    def note(choice, numbers):
        word = draw(choice, numbers)
        weights = [1_000_000 // (place + 4) for place in range(len(choice.words))]
        noted.append(weights[choice.words.index(word)] / sum(weights))
        return word

    Choice.draw = note
    try:
        teller.chapter()
    finally:
        Choice.draw = draw
    assert teller.nats == pytest.approx(-math.log(math.prod(noted)))


def readings(template, said):
    """How a template can be read: a function from a text and a place to the ends, with counts."""

    def read(text, start):
        ends = Counter({start: 1})
        for number, part in enumerate(re.split(r"\{(\w+)\}", template)):
            after = Counter()
            for place, ways in ends.items():
                for end, more in slot(part, text, place) if number % 2 else one(part, text, place):
                    after[end] += ways * more
            ends = after
        return ends

    def one(word, text, place):
        return [(place + len(word), 1)] if text.startswith(word, place) else []

    def slot(name, text, place):
        if name in said:
            return one(said[name], text, place)
        if name in ("count", "part", "rest"):
            return [hit for word in ["one", *NUMBERS] for hit in one(word, text, place)]
        if name in PHRASES:
            found = Counter()
            for phrase in PHRASES[name]:
                found += readings(phrase, said)(text, place)
            return found.items()
        lists = ("woman", "man") if name == "other" else (world._LISTS.get(name, name),)
        return [hit for kind in lists for word in WORDS[kind] for hit in one(word, text, place)]

    return read


def test_a_text_can_be_read_in_one_way_only():
    """Otherwise the information in the choices would be more than that in the text."""
    teller = world._Teller(seed=5)
    for _ in range(12):
        kept = {}
        tell_sentence = teller.sentence
        told = []

        def note(templates, said, *, tell_sentence=tell_sentence, told=told, kept=kept):
            told.append((templates, tell_sentence(templates, said)))
            kept.update(said)
            return told[-1][1]

        teller.sentence = note
        teller.chapter()
        teller.sentence = tell_sentence
        for templates, sentence in told:
            plain = sentence[0].lower() + sentence[1:]
            ways = 0
            for template in OPENINGS if templates is teller.openings else SENTENCES:
                for text in {sentence, plain}:
                    ways += readings(template, kept)(text, 0)[len(text)]
            # A capital that the sentence has by itself is found as written and not in lower case.
            assert ways == 1, sentence


def test_nobody_has_two_names_and_no_name_two_people():
    assert not set(WORDS["woman"]) & set(WORDS["man"])
    assert len(WORDS["woman"]) == 240
    assert len(WORDS["man"]) == 240
    assert len(WORDS["town"]) == 200


def test_the_text_reads_as_text():
    text = tell(200_000).text
    assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]|  |[{}]", text)
    lines = text.split("\n")[:-1]
    assert all(line.endswith((".", '."')) and line[0].isupper() for line in lines)
    # Goods that are counted add up.
    number = {word: value for value, word in enumerate(["one", *NUMBERS], start=1)}
    sold = re.findall(r"had (\w+) [^.]*, sold (\w+) of them and kept (\w+)\.", text)
    assert len(sold) > 100
    assert all(number[had] == number[part] + number[rest] for had, part, rest in sold)


def test_looking_back_pays():
    """The floor is below what a reader of single words could reach, and above zero."""
    told = tell(200_000)
    words = Counter(re.findall(r"\w+|\W", told.text))
    total = sum(words.values())
    alone = -sum(n * math.log(n / total) for n in words.values()) / len(told.text)
    assert 0.2 < told.floor < 0.6 * alone
