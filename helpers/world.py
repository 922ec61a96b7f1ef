"""The default text: a small world by the sea, told by rule.

Every reader trains on the same characters, whatever the Python, the system and the torch: the text
is made from whole numbers and from Python's ``random()``, whose numbers never change for a seed.
Because each choice is made with a known probability, the text also comes with what no other text
has: the loss below which no model can get.
"""

import itertools
import math
import random
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from helpers._checks import whole

SEED = 1
CHARACTERS = 4_200_000


@dataclass(frozen=True)
class Telling:
    """A text, and the information in all choices that were made in writing it, in nats."""

    text: str
    nats: float

    @property
    def floor(self) -> float:
        """The mean loss of a reader who knows the rules and all that came before, in nats.

        It is the information a character (Shannon 1948): over the whole text no model is expected
        to get below it, and one that sees only a short context stays well above.
        """
        return self.nats / len(self.text)


class Choice:
    """A choice among words that are listed from the commonest to the rarest, as in real language.

    The weight of the word at position k, from 0, is 1,000,000 ÷ (k + 4), rounded down: a flattened
    law of Zipf. Raises ``ValueError`` if a word is there twice: nobody could tell which was meant.
    """

    def __init__(self, words: Sequence[str]) -> None:
        if len(set(words)) != len(words):
            raise ValueError(f"words must differ from each other; got {list(words)}")
        self.words = tuple(words)
        weights = [1_000_000 // (position + 4) for position in range(len(words))]
        self._sums = list(itertools.accumulate(weights))
        total = self._sums[-1]
        self.nats = {word: math.log(total / weight) for word, weight in zip(words, weights)}

    def draw(self, numbers: random.Random) -> str:
        """Return a word."""
        return self.words[bisect_right(self._sums, int(numbers.random() * self._sums[-1]))]


def _pairs(firsts: str, seconds: str) -> list[str]:
    """Return all names made of a first and a second part, in an order that mixes them."""
    first, second = firsts.split(), seconds.split()
    count = len(first) * len(second)
    # A step without a common factor with the count reaches every pair once.
    step = next(n for n in range(count * 5 // 8, count) if math.gcd(n, count) == 1)
    places = (number * step % count for number in range(count))
    return [first[place // len(second)] + second[place % len(second)] for place in places]


NUMBERS = "two three four five six seven eight nine ten eleven twelve".split()

WORDS = {
    "numbers": NUMBERS,
    "woman": _pairs(
        "Ade Bri Cor Dori Eli Fenn Gwe Hild Iso Jor Kirs Lor Mar Nel Odi Petr Rosa Sig Tam Ulr "
        "Vero Win Yse Zel",
        "la na lind tta ven gard mie sa rike dis",
    ),
    "man": _pairs(
        "Al Bern Con Dag Ed Ferd Gor Hal Ing Jasp Kon Leo Mort Nath Osw Perc Quin Rod Sten Tob Ul "
        "Vik Wald Yor",
        "mund rad win ric bert o mar dan fast vald",
    ),
    "town": _pairs(
        "Ash Black Cold Deer East Far Gold Harrow Iron Kings Long Mill North Oak Plum Raven Salt "
        "Thorn Under Whit",
        "by wick haven ford ness mouth stead holm dale bury",
    ),
    "trade": (
        "fisher baker sailor smith weaver carpenter miller potter teacher farmer merchant doctor "
        "tailor painter cook gardener shepherd printer mason tanner glazier cooper ferryman "
        "lighthouse-keeper clockmaker bookbinder rope-maker beekeeper candle-maker net-mender "
        "shipwright harbourmaster locksmith fiddler surveyor apothecary"
    ).split(),
    "animals": (
        "goats hens sheep geese cows pigs horses ducks dogs pigeons donkeys rabbits bees oxen "
        "swans mules falcons ferrets"
    ).split(),
    "goods": (
        "baskets barrels lamps ropes loaves blankets knives boots jars candles books cheeses nets "
        "hats apples plates bells kettles ladders hammers cups carpets oars letters violins clocks "
        "mirrors saddles anchors needles ribbons maps shovels lanterns pears chairs shirts sails "
        "melons spoons buckets tables pumpkins drums brooms pens flutes compasses"
    ).split(),
    "building": (
        "house barn mill church school bakery tower harbour market inn bridge workshop lighthouse "
        "stable library warehouse chapel forge garden theatre court hospital brewery boathouse "
        "windmill granary orchard quay cellar observatory"
    ).split(),
    "quality": (
        "old small red heavy good blue strange long broken cheap green round dark fine wooden "
        "bright narrow white soft yellow crooked warm empty famous dusty silver hollow rusty "
        "painted patched borrowed forgotten striped precious slippery magnificent"
    ).split(),
    "thing": (
        "boat door lamp table rope book wheel basket bell key chair clock coat letter map wall "
        "oven ladder bucket window mast kettle cart stone net mirror bench roof hammer anchor "
        "chimney gate saddle lantern barrel compass fiddle umbrella telescope loom weathercock"
    ).split(),
    "weather": ("rain wind snow fog storm frost hail thunder drizzle mist sleet gale").split(),
    "season": "spring summer autumn winter".split(),
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "hour": (
        "noon dawn dusk midnight sunrise sunset breakfast supper teatime nightfall daybreak"
    ).split(),
    "manner": (
        "slowly quietly soon carefully often gladly suddenly twice alone badly early patiently "
        "loudly secretly proudly reluctantly cheerfully thoroughly absent-mindedly"
    ).split(),
    "repair": (
        "mended painted sold cleaned found lost moved carried hid borrowed measured bought "
        "polished dropped covered described weighed admired repaired inherited dismantled"
    ).split(),
    "feeling": (
        "happy tired hungry angry proud cold sure afraid quiet busy sorry curious late lucky "
        "jealous thirsty hopeful bored restless homesick grateful astonished"
    ).split(),
    "opinion": (
        "too dear|too late|quite enough|a good beginning|no great matter|bad luck|a sign of "
        "spring|worth the trouble|hard to believe|nobody's fault|a mistake|the talk of the town|a "
        "matter of taste|the best that could be done|an old custom|an unheard-of thing"
    ).split("|"),
    "relation": (
        "sister brother neighbour friend cousin mother father uncle aunt daughter son partner "
        "grandmother grandfather landlord apprentice rival godmother"
    ).split(),
}

# A chapter is about one person. What it fixed once, it says again: her or his name, trade and
# town, a thing, and goods that are counted. So a reader who looks back can foresee a good deal.
OPENINGS = (
    "{name} was a {trade} in {town}.",
    "In {town} there lived a {trade} called {name}.",
    "The {trade} {name} came to {town} in the {season}.",
    "Everybody in {town} knew {name}, the {trade}.",
    "{when} a {trade} called {name} opened a {building} in {town}.",
    "This is the story of {name}, the {feeling} {trade} of {town}.",
)
SENTENCES = (
    "{He} {repair} {what}{where}.",
    "{when} {he} {repair} {what}{how}.",
    "{who} {repair} {what} for {whom}{how}.",
    "{when} {who} went to {spot} with {what}.",
    "{He} had {count} {goods}{where}, sold {part} of them and kept {rest}.",
    "The {weather} came from {place} {before} and spoiled {lot}.",
    "{name} kept {lot} and {number} {animals}{where}.",
    "{who} said that the {thing} was {opinion}.",
    "{He} was {feeling}, because {who} had {repair} {what}{how}.",
    "{when} {he} walked from {town} to {place} with {whom}.",
    '"That is {opinion}," said {who}{how}.',
    '"Where is {what}?" asked {who}{how}. It was in {spot}.',
    "{when} nobody in {place} was {feeling} but {whom}.",
    "For {lot} {he} gave {what} to {whom}.",
    "Then came {weather}{how}, and {who} was {feeling}.",
    "There were {goods} and {lot} in {spot}, and {what}.",
    "{when} the {animals} of {other} ran through {spot}{how}.",
    "{He} asked {whom} about {what}, but nobody knew {opinion2}.",
    "And so {name} the {trade} stayed in {town}.",
)
LENGTHS = tuple(str(number) for number in (6, 7, 5, 8, 9, 4))  # sentences of a chapter

# Phrases that a slot may stand for, in words and further slots.
PHRASES = {
    "what": (
        "{his} {thing}",
        "the {quality} {object}",
        "a {quality} {object}",
        "the {object} of {other}",
        "a {quality} {object} from {place}",
        "the {quality}, {quality} {object}",
        "{his} {relation}'s {object}",
    ),
    "lot": (
        "{number} {things}",
        "{number} {quality} {things}",
        "all the {things} of {place}",
        "a few {things}",
        "hardly any {things}",
    ),
    "who": (
        "{his} {relation}",
        "{other} the {trade2}",
        "the {trade2} of {place}",
        "{other}",
        "a {feeling} {trade2}",
        "the {relation} of {other}",
    ),
    "whom": (
        "{his} {relation}",
        "{other}",
        "the people of {place}",
        "a {trade2} from {place}",
        "{his} {feeling} {relation}",
        "the {trade2} {other}",
    ),
    "spot": (
        "the {building}",
        "the {quality} {building}",
        "{his} {relation}'s {building}",
        "the {building} of {place}",
        "a {building} near {place}",
    ),
    "where": ("", " in {spot}", " behind {spot}", " near {spot}", " on the way to {place}"),
    "how": ("", " {manner}", " in {place}", " without {whom}", " {before}", " {manner} {before}"),
    "before": ("before {hour}", "after {hour}", "on {day}", "at {hour}", "in the {weather}"),
    "when": (
        "On {day}",
        "At {hour}",
        "One {season}",
        "In {season}, at {hour},",
        "After the {weather}",
        "Before {hour}",
        "{number} days later",
        "On a {feeling} {day}",
    ),
    "opinion2": ("what it was worth", "where it came from", "why it was {opinion}", "about it"),
}

# What a slot draws from, where its name is not the list's.
_LISTS = {
    "place": "town",
    "object": "thing",
    "things": "goods",
    "trade2": "trade",
    "number": "numbers",
}
_KEPT = ("name", "trade", "town", "thing", "goods", "animals")  # drawn once a chapter
_SLOT = re.compile(r"\{(\w+)\}")
_A_BEFORE_VOWEL = re.compile(r"\b([Aa])(?= [aeiou])")


class _Teller:
    """Draws the words of a text and adds up the information in them."""

    def __init__(self, seed: int) -> None:
        self.numbers = random.Random(seed)
        self.nats = 0.0
        self.choices = {name: Choice(words) for name, words in (WORDS | PHRASES).items()}
        self.choices["person"] = Choice(("woman", "man"))
        self.choices["length"] = Choice(LENGTHS)
        self.openings, self.sentences = Choice(OPENINGS), Choice(SENTENCES)
        self.some = [Choice(NUMBERS[: most + 1]) for most in range(len(NUMBERS))]
        # A template as the texts between its slots, and the slots.
        self.parts = {
            text: _SLOT.split(text)
            for text in itertools.chain(OPENINGS, SENTENCES, *PHRASES.values())
        }

    def choose(self, choice: Choice) -> str:
        """Draw a word and count its information."""
        word = choice.draw(self.numbers)
        self.nats += choice.nats[word]
        return word

    def chapter(self) -> str:
        """Return one chapter, as one line."""
        person = self.choose(self.choices["person"])
        he, his = ("she", "her") if person == "woman" else ("he", "his")
        said = {"he": he, "his": his, "He": he.capitalize()}
        said["name"] = self.choose(self.choices[person])
        for slot in _KEPT[1:]:
            said[slot] = self.choose(self.choices[slot])
        count = int(self.choose(self.choices["length"]))
        told = [self.sentence(self.openings, said)]
        told += [self.sentence(self.sentences, said) for _ in range(count)]
        return _A_BEFORE_VOWEL.sub(r"\1n", " ".join(told))

    def sentence(self, templates: Choice, said: dict[str, str]) -> str:
        """Return one sentence of a chapter in which the slots of ``said`` are settled."""
        sentence = self.fill(self.choose(templates), said)
        return sentence[0].upper() + sentence[1:]

    def fill(self, template: str, said: dict[str, str]) -> str:
        """Return a template with words in its slots."""
        parts = self.parts[template].copy()
        if "count" in parts:
            said = said | self._shares()
        for position in range(1, len(parts), 2):
            slot = parts[position]
            parts[position] = said[slot] if slot in said else self._word(slot, said)
        return "".join(parts)

    def _word(self, slot: str, said: dict[str, str]) -> str:
        if slot == "other":
            slot = self.choose(self.choices["person"])
        word = self.choose(self.choices[_LISTS.get(slot, slot)])
        return self.fill(word, said) if slot in PHRASES else word

    def _shares(self) -> dict[str, str]:
        """Decide how many goods there were, how many of them were sold, and what was left."""
        count = NUMBERS.index(self.choose(self.some[-1])) + 2
        sold = NUMBERS.index(self.choose(self.some[count - 2])) + 1
        names = ["none", "one", *NUMBERS]
        return {"count": names[count], "part": names[sold], "rest": names[count - sold]}


@cache
def tell(characters: int = CHARACTERS, seed: int = SEED) -> Telling:
    """Return a text of so many characters; a shorter one of the same seed is its beginning.

    >>> tell(46).text
    'Adeven was a mason in Salthaven. She covered a'

    Raises ``ValueError`` or ``TypeError`` for numbers that are not whole, or of no character.
    """
    whole("characters", characters)
    whole("seed", seed, at_least=0)
    teller, chapters, length = _Teller(seed), [], 0
    while length < characters:
        chapters.append(teller.chapter())
        length += len(chapters[-1]) + 1
    text = "\n".join(chapters)
    return Telling(text[:characters], teller.nats * characters / len(text))
