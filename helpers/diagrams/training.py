"""Pictures of training: the six moves of a step, an epoch, an update from micro-batches."""

from collections.abc import Callable

from helpers.diagrams.kit import Diagram, Drawing


def step() -> Diagram:
    """Draw the six moves of a training step, in a circle."""
    drawing = Drawing(
        "The six moves of a training step",
        "One: draw a few examples. Two: pad them to one length and stack them. Three: forward, "
        "through the layers. Four: the loss, summed over the targets and divided by their number. "
        "Five: backward, through the layers again, to the gradient. Six: update the weights. Then "
        "the next step begins, with other examples.",
        height=400,
    )
    moves: tuple[tuple[str, str, str, Callable[[Drawing, float, float], None]], ...] = (
        ("Draw", "a few examples", "green", _drawn),
        ("Pad, stack", "one rectangle", "green", _stacked),
        ("Forward", "a score a token", "blue", _forward),
        ("Loss", "sum ÷ targets", "blue", _losses),
        ("Backward", "the gradient", "orange", _backward),
        ("Update", "new weights", "orange", _downhill),
    )
    columns, rows = (16, 230, 444), (16, 230)
    places = [*((x, rows[0]) for x in columns), *((x, rows[1]) for x in reversed(columns))]
    for number, ((x, y), (name, result, tone, icon)) in enumerate(zip(places, moves), start=1):
        drawing.box(x, y, 180, 154, tone)
        drawing.badge(x + 26, y + 26, str(number), tone)
        drawing.words(x + 50, y + 32, name, bold=True, anchor="start")
        icon(drawing, x + 90, y + 84)
        drawing.words(x + 90, y + 140, result)
    for x in (198, 412):
        drawing.arrow((x, 93), (x + 30, 93))
        drawing.arrow((x + 30, 307), (x, 307))
    drawing.arrow((534, 173), (534, 227))
    drawing.arrow((106, 227), (106, 173))
    drawing.words(320, 206, "one step = one update, then again", tone="grey")
    return drawing.done()


def _drawn(drawing: Drawing, x: float, y: float) -> None:
    for place in range(24):
        row, column = divmod(place, 8)
        chosen = place in (3, 8, 14, 21)
        centre = x - 63 + 18 * column, y - 18 + 18 * row
        drawing.dot(*centre, 6, "green" if chosen else "grey", full=chosen)


def _stacked(drawing: Drawing, x: float, y: float) -> None:
    for row, length in enumerate((8, 4, 6, 5)):
        for column in range(8):
            tone, real = ("green", True) if column < length else ("grey", False)
            drawing.box(x - 64 + 16 * column, y - 28 + 14 * row, 13, 11, tone, radius=2)
            if real:
                drawing.line(
                    (x - 60 + 16 * column, y - 22.5 + 14 * row),
                    (x - 55 + 16 * column, y - 22.5 + 14 * row),
                    tone="green",
                )


def _layers(drawing: Drawing, x: float, y: float, tone: str) -> None:
    for offset in (-34, 0, 34):
        drawing.box(x + offset - 9, y - 27, 18, 54, tone, radius=5)


def _forward(drawing: Drawing, x: float, y: float) -> None:
    _layers(drawing, x, y, "blue")
    drawing.arrow((x - 72, y), (x + 72, y), tone="blue", width=3)


def _backward(drawing: Drawing, x: float, y: float) -> None:
    _layers(drawing, x, y, "orange")
    drawing.arrow((x + 72, y), (x - 72, y), tone="orange", width=3)


def _losses(drawing: Drawing, x: float, y: float) -> None:
    heights = (44, 20, 34, 12, 40, 24)
    for number, height in enumerate(heights):
        drawing.box(x - 62 + 21 * number, y + 26 - height, 15, height, "blue", radius=2)
    mean = y + 26 - sum(heights) / len(heights)
    drawing.line((x - 72, mean), (x + 72, mean), dashed=True)


def _downhill(drawing: Drawing, x: float, y: float) -> None:
    bowl = [(x + at, y + 26 - 52 * (at / 70) ** 2) for at in range(-70, 71, 5)]
    drawing.line(*bowl, tone="orange", width=3)
    drawing.dot(*bowl[2], 7, "grey", full=False)
    drawing.arrow((bowl[2][0] + 9, bowl[2][1] + 4), (bowl[9][0] + 2, bowl[9][1] - 12))
    drawing.dot(bowl[9][0], bowl[9][1] - 1, 7, "orange")


DATA = tuple(range(1, 11))
EPOCHS = ((4, 9, 1, 7, 10, 2, 5, 8, 3, 6), (8, 3, 10, 1, 7, 5, 2, 6, 9, 4))
FOLLOWED = 7


def epoch() -> Diagram:
    """Draw two epochs of ten examples: shuffled, dealt into batches of four, and again."""
    drawing = Drawing(
        "An epoch is one pass over the data, dealt into batches",
        "Ten examples are shuffled and dealt into batches of four: two full batches, and a last "
        "one with the two that are left. Each batch makes one update, three an epoch. The next "
        "epoch has every example once again, in a new order: an example that is followed from "
        "epoch to epoch has other company each time.",
        height=368,
    )
    drawing.words(20, 50, "data", anchor="start", bold=True)
    drawing.words(20, 98, "shuffle", anchor="start", tone="grey")
    drawing.words(20, 222, "shuffle anew", anchor="start", tone="grey")
    at = {example: 138 + 40 * place for place, example in enumerate(DATA)}
    for example, x in at.items():
        _chip(drawing, example, x, 44)
    top = 112
    for number, order in enumerate(EPOCHS, start=1):
        drawing.words(20, top + 34, f"epoch {number}", anchor="start", bold=True)
        before = at[FOLLOWED]
        at = _batches(drawing, order, top)
        start = 63 if number == 1 else top - 66
        drawing.line((before, start), (before, top - 34), (at[FOLLOWED], top - 12), tone="orange")
        drawing.arrow((at[FOLLOWED], top - 13), (at[FOLLOWED], top + 8), tone="orange")
        for place, x in enumerate((205, 399, 553)):
            drawing.words(x, top + 80, f"update {number * 3 - 2 + place}", tone="grey")
        top += 124
    drawing.words(320, 346, "every example once an epoch, each time in other company")
    return drawing.done()


def _batches(drawing: Drawing, order: tuple[int, ...], top: float) -> dict[int, float]:
    """Draw an epoch in batches of four, and return where each example is."""
    at = {example: 145 + 40 * place + 34 * (place // 4) for place, example in enumerate(order)}
    for first in (0, 4, 8):
        batch = order[first : first + 4]
        drawing.frame(at[batch[0]] - 27, top, 40 * len(batch) + 14, 54)
    for example, x in at.items():
        _chip(drawing, example, x, top + 27)
    return at


def _chip(drawing: Drawing, example: int, x: float, y: float) -> None:
    tone = "orange" if example == FOLLOWED else "blue"
    drawing.box(x - 17, y - 17, 34, 34, tone, radius=8)
    drawing.words(x, y + 6.5, str(example), tone=tone, bold=example == FOLLOWED)


COUNTS = (3, 6)  # targets of the two micro-batches


def accumulation() -> Diagram:
    """Draw two micro-batches that make one update, and the two ways to divide."""
    first, second = COUNTS
    drawing = Drawing(
        "One update from two micro-batches",
        f"A micro-batch with {first} targets and one with {second} each go forward and backward. "
        "Their gradients are added up, and then the weights are updated once. Below, how much each "
        f"target counts. Divided once by all {first + second} targets, each counts "
        f"1/{first + second}: it is the gradient of the large batch. Under a mean of the two means "
        f"a target of the short micro-batch counts 1/{2 * first}, and one of the other "
        f"1/{2 * second}: it is another gradient.",
        height=470,
    )
    for number, (count, tone, y) in enumerate(zip(COUNTS, ("blue", "yellow"), (18, 114)), start=1):
        drawing.box(16, y, 258, 82, tone)
        drawing.words(30, y + 30, f"micro-batch {number}:", anchor="start", bold=True)
        drawing.words(262, y + 30, f"{count} targets", anchor="end", tone=tone)
        for place in range(count):
            drawing.box(30 + 38 * place, y + 46, 30, 22, tone, radius=4)
        drawing.arrow((278, y + 41), (346, y + 41 + (34 if number == 1 else -34)))
    drawing.box(350, 56, 126, 102, "grey")
    drawing.words(413, 92, "gradient", bold=True)
    drawing.words(413, 118, "add both,\ndivide once")
    drawing.arrow((480, 107), (510, 107))
    drawing.box(514, 72, 110, 70, "orange")
    drawing.words(569, 101, "one\nupdate", bold=True)
    drawing.words(16, 234, "How much does each target count?", anchor="start", bold=True)
    _shares(
        drawing, 16, f"÷ all {first + second} targets", "as the large batch", "✓", (1 / 9, 1 / 9)
    )
    _shares(drawing, 330, "mean of two means", "another gradient", "✗", (1 / 6, 1 / 12))
    return drawing.done()


def _shares(
    drawing: Drawing, x: float, name: str, result: str, sign: str, shares: tuple[float, float]
) -> None:
    """Draw how much each of the targets counts, as bars."""
    tone = "green" if sign == "✓" else "orange"
    drawing.line((x, 252), (x + 294, 252), tone=tone, width=3)
    drawing.words(x, 282, name, anchor="start", tone=tone)
    foot, place = 420, x + 18
    for count, share, bars in zip(COUNTS, shares, ("blue", "yellow")):
        height = 600 * share
        for bar in range(count):
            drawing.box(place + 29 * bar, foot - height, 22, height, bars, radius=3)
        drawing.words(place + 14.5 * count - 3, foot - height - 10, f"1/{1 / share:.0f} each")
        place += 29 * count
    drawing.line((x, foot), (x + 294, foot), tone="ink")
    drawing.badge(x + 14, 444, sign, tone)
    drawing.words(x + 36, 450, result, anchor="start")
