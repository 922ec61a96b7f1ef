"""Pictures of steps and batches: a valley, two budgets, a warmup. They are drawn, not measured."""

import math
from collections.abc import Callable

from helpers.diagrams.kit import Diagram, Drawing, Point


def valley() -> Diagram:
    """Draw a step that is short for its valley, one that is too long, and a valley that bends."""
    drawing = Drawing(
        "A step and its valley",
        "Three valleys, with the steps of gradient descent in each. Left, rate × sharpness is 0.4: "
        "short steps go down to the bottom. Middle, it is 2.5, above the limit of 2: each step "
        "lands higher on the other side than the one before. Right, it is 2.5 at the bottom as "
        "well, but this valley gets wider further out than the dashed one: the steps swing from "
        "side to side and do not leave it.",
        height=366,
    )
    panels = (
        ("short steps", "0.4: settles", "green", _bowl, 0.4, -0.92),
        ("too long", "2.5: leaves", "orange", _bowl, 2.5, 0.12),
        ("wider outside", "2.5: stays", "blue", _bending, 2.5, 0.15),
    )
    for place, (name, outcome, tone, shape, rate, start) in enumerate(panels):
        x = 16 + 207 * place
        drawing.words(x + 97, 40, name, bold=True, tone=tone)
        _walk(drawing, x + 97, shape, rate, start, tone)
        drawing.words(x + 97, 312, "rate × sharpness", tone="grey")
        drawing.words(x + 97, 340, outcome)
    for x in (216, 423):
        drawing.line((x, 24), (x, 342), tone="grey", width=1)
    return drawing.done()


def _bowl(place: float) -> tuple[float, float]:
    """Return height and slope of a bowl whose sharpness is 1."""
    return place**2 / 2, place


def _bending(place: float) -> tuple[float, float]:
    """Return height and slope of a valley as sharp at its bottom, and straight further out."""
    far = 0.55
    return far**2 * math.log(math.cosh(place / far)), far * math.tanh(place / far)


def _walk(
    drawing: Drawing,
    centre: float,
    shape: Callable[[float], tuple[float, float]],
    rate: float,
    place: float,
    tone: str,
) -> None:
    """Draw a valley and the steps of gradient descent in it."""

    def on_card(place: float) -> Point:
        return centre + 88 * place, 270 - 410 * shape(place)[0]

    drawing.line(*(on_card(number / 40) for number in range(-40, 41)), tone="grey", width=4)
    if shape is not _bowl:  # what it would be if it did not bend
        bowl = [(at / 40, _bowl(at / 40)[0]) for at in range(-40, 41)]
        outside = [(centre + 88 * at, 270 - 410 * height) for at, height in bowl]
        drawing.line(*outside, tone="grey", width=1.5, dashed=True)
    places = [place]
    while len(places) < 6:
        places.append(places[-1] - rate * shape(places[-1])[1])
    drawing.line(*map(on_card, places[:-1]), tone=tone)
    drawing.arrow(*map(on_card, places[-2:]), tone=tone)
    for number, stop in enumerate(places[:-1]):
        drawing.dot(*on_card(stop), 5, tone, full=number > 0)


def budgets() -> Diagram:
    """Draw what a run to a target spends, updates against examples, and the critical batch."""
    drawing = Drawing(
        "Two budgets: updates and examples",
        "A curve of the updates against the examples that a run needs to reach a target, both as "
        "multiples of the least. A small batch needs few examples and many updates. A large batch "
        "needs few updates and many examples. Neither goes below its least. At the corner is the "
        "critical batch size: twice the least of both.",
        height=452,
    )

    def on_card(examples: float, updates: float) -> Point:
        return 76 + 86 * examples, 388 - 55 * updates

    drawing.line(on_card(0, 1), on_card(6.4, 1), tone="grey", dashed=True)
    drawing.line(on_card(1, 0), on_card(1, 6.2), tone="grey", dashed=True)
    drawing.words(152, 128, "the\nleast", anchor="end", tone="grey")
    drawing.words(616, 356, "the least", anchor="end", tone="grey")
    drawing.line(on_card(2, 0), on_card(2, 2), on_card(0, 2), tone="orange", dashed=True)
    curve = [1 + 5.2 ** (number / 20) for number in range(-20, 21)]
    drawing.line(*(on_card(x, 1 + 1 / (x - 1)) for x in curve), tone="blue", width=4)
    drawing.arrow(on_card(0, 0), on_card(0, 6.35))
    drawing.arrow(on_card(0, 0), on_card(6.4, 0))
    drawing.words(16, 30, "updates (time)", anchor="start", bold=True)
    drawing.words(624, 436, "examples (work)", anchor="end", bold=True)
    for count in (1, 2):
        drawing.words(on_card(count, 0)[0], 412, f"× {count}")
        drawing.words(66, on_card(0, count)[1] + 6, f"× {count}", anchor="end")
    drawing.dot(*on_card(1.25, 5), 9, "blue")
    drawing.words(214, 100, "small batch:\nfew examples, many updates", anchor="start", tone="blue")
    drawing.dot(*on_card(2, 2), 10, "orange")
    drawing.words(272, 230, "critical batch size:", anchor="start", tone="orange", bold=True)
    drawing.words(272, 254, "twice the least of both", anchor="start", tone="orange")
    drawing.dot(*on_card(5, 1.25), 9, "blue")
    drawing.words(620, 268, "large batch:\nmany examples, few updates", anchor="end", tone="blue")
    return drawing.done()


UPDATES, WARMUP = 14, 8


def warmup() -> Diagram:
    """Draw the first updates of a run with and without a warmup, and what they would break."""
    drawing = Drawing(
        "A warmup and what it protects",
        "The learning rate of the first updates as bars, below a dashed line: the largest rate "
        "that the model bears, which rises as training moves to wider ground. Without a warmup "
        "every update has the full rate, and the first ones stick out above the line. With a "
        "warmup the rate rises in even steps and stays below the line all the time.",
        height=352,
    )
    ways = (
        ("no warmup", "the first are too high", "✗", lambda _: 1.0),
        ("warmup", "none is too high", "✓", lambda update: min(1.0, update / WARMUP)),
    )
    for place, (name, outcome, sign, share) in enumerate(ways):
        x = 18 + 312 * place
        drawing.words(x, 40, name, anchor="start", bold=True)
        for update in range(1, UPDATES + 1):
            height = 140 * share(update)
            tone = "orange" if height > _borne(update) else "blue"
            left = x + 4 + 20 * (update - 1)
            drawing.box(left, 270 - height, 15, height, tone, radius=2)
        ends = [(x + 12 + 20 * at, 270 - _borne(at + 1)) for at in range(UPDATES)]
        drawing.line(*ends, tone="ink", width=3, dashed=True)
        drawing.line((x, 270), (x + 288, 270))
        drawing.words(x + 284, 66, "the rate it bears", anchor="end", tone="grey")
        drawing.words(x, 296, "update 1, 2, 3 …", anchor="start", tone="grey")
        drawing.badge(x + 14, 322, sign, "green" if sign == "✓" else "orange")
        drawing.words(x + 36, 328, outcome, anchor="start")
    return drawing.done()


def _borne(update: int) -> float:
    """Return the height of the largest rate that is borne at an update."""
    return 40 + 150 * (1 - math.exp(-(update - 1) / 5))
