"""Pictures of machines: memory over a step, devices that share the work, a plan as a chain."""

from helpers.diagrams.kit import Diagram, Drawing, Point
from helpers.plan import RunPlan

PARTS = {  # the colours of the figures of memory
    "parameters": "blue",
    "optimizer states": "green",
    "gradients": "yellow",
    "activations": "orange",
    "temporary": "grey",
}


def memory() -> Diagram:
    """Draw the parts of memory over one training step, stacked."""
    drawing = Drawing(
        "The parts of memory over one training step",
        "Stacked areas over the forward pass, the backward pass and the update. Parameters and "
        "optimizer states are there all the time. Activations grow through the forward pass and "
        "with the batch, and shrink through the backward pass, while gradients grow in their "
        "place. The update makes something temporary. The fullest moment is where the backward "
        "pass begins.",
        height=376,
    )
    moments = (0.0, 0.4, 0.8, 0.8, 1.0)
    layers = {
        "parameters": (1, 1, 1, 1, 1),
        "optimizer states": (2, 2, 2, 2, 2),
        "gradients": (0, 0, 1, 1, 1),
        "activations": (0, 4, 0, 0, 0),
        "temporary": (0, 0, 0, 1, 1),
    }

    def on_card(moment: float, height: float) -> Point:
        return 24 + 592 * moment, 322 - 38 * height

    for moment in (0.4, 0.8):
        drawing.line(on_card(moment, 0), on_card(moment, 7.6), tone="grey", dashed=True)
    below = [0.0] * len(moments)
    for name, heights in layers.items():
        above = [low + height for low, height in zip(below, heights)]
        outline = [*zip(moments, above), *reversed([*zip(moments, below)])]
        drawing.area(*(on_card(*point) for point in outline), tone=PARTS[name])
        below = above
    drawing.line(on_card(0, 0), on_card(1, 0))
    for x, height, words in (
        (0.2, 0.35, "parameters"),
        (0.2, 1.85, "optimizer states"),
        (0.9, 3.35, "gradients"),
        (0.9, 4.35, "temporary"),
    ):
        drawing.words(*on_card(x, height), words)
    drawing.words(*on_card(0.4, 4.35), "activations:\ngrow with the batch")
    for x, moment in ((0.2, "forward"), (0.6, "backward"), (0.9, "update")):
        drawing.words(on_card(x, 0)[0], 352, moment, bold=True)
    drawing.dot(*on_card(0.4, 7), 7, "orange")
    drawing.words(on_card(0.4, 7)[0] + 18, 48, "the fullest moment", anchor="start", bold=True)
    return drawing.done()


DEVICES = 4
BYTES = {"parameters": 2, "gradients": 2, "optimizer states": 12}  # a parameter, mixed precision


def sharding() -> Diagram:
    """Draw devices that add up their gradients, and what is split among them stage by stage."""
    held = [_held(stage) for stage in range(4)]
    drawing = Drawing(
        "Several devices: add the gradients, split what is held",
        f"Above: {DEVICES} devices, each with examples of its own and a gradient from them. An "
        "all-reduce adds the gradients and gives everyone the sum, so that all make the same "
        "update. Below: the bytes a parameter that each device holds in mixed precision with "
        f"Adam. With nothing split {held[0]:g}; with the optimizer states split (stage 1) "
        f"{held[1]:g}; the gradients too (stage 2) {held[2]:g}; the parameters too (stage 3) "
        f"{held[3]:g}.",
        height=580,
    )
    for device in range(DEVICES):
        _device(drawing, 16 + 156 * device, device)
    drawing.box(16, 148, 608, 42, "orange")
    drawing.words(320, 175, "all-reduce: add up, give everyone the sum")
    drawing.line((16, 278), (624, 278), tone="grey", width=1)
    drawing.words(16, 310, "bytes a parameter on each of 4 devices", anchor="start", bold=True)
    names = ("no split", "stage 1", "stage 2", "stage 3")
    for stage, name in enumerate(names):
        _stage(drawing, 16 + 156 * stage, stage, name)
    legend = (("parameters", 36), ("gradients", 206), ("optimizer states", 366))
    for name, x in legend:
        drawing.box(x, 544, 18, 18, PARTS[name], radius=3)
        drawing.words(x + 28, 559, name, anchor="start")
    return drawing.done()


def _device(drawing: Drawing, x: float, device: int) -> None:
    """Draw a device with its own examples, on its way to the same update as all."""
    drawing.box(x, 16, 140, 98, "grey")
    drawing.words(x + 70, 42, f"device {device + 1}", bold=True)
    for place in range(4):
        drawing.box(x + 18 + 28 * place, 54, 20, 16, "blue", radius=3)
    drawing.words(x + 70, 98, "own gradient", tone="orange")
    drawing.arrow((x + 70, 116), (x + 70, 146), tone="orange")
    drawing.arrow((x + 70, 192), (x + 70, 220), tone="orange")
    drawing.box(x, 222, 140, 40, "green")
    drawing.words(x + 70, 248, "same update")


def _shares(stage: int) -> dict[str, float]:
    """Return the bytes of each part on one device; the stages split one part more each."""
    split = ("optimizer states", "gradients", "parameters")[:stage]
    return {part: size / DEVICES if part in split else size for part, size in BYTES.items()}


def _held(stage: int) -> float:
    return sum(_shares(stage).values())


def _stage(drawing: Drawing, x: float, stage: int, name: str) -> None:
    """Draw what each of the devices holds, side by side."""
    for device in range(DEVICES):
        foot = 498.0
        for part, size in _shares(stage).items():
            left, top = x + 14 + 29 * device, foot - 8 * size
            corners = (left, foot), (left, top), (left + 24, top), (left + 24, foot)
            drawing.area(*corners, tone=PARTS[part])
            foot = top
    drawing.words(x + 70, 486 - 8 * _held(stage), f"{_held(stage):g}")
    drawing.words(x + 70, 524, name)


def plan() -> Diagram:
    """Draw the plan of a run as a chain, from its examples to its updates, tokens and time."""
    run = RunPlan(1000, 4, accumulation=8, epochs=2, warmup=0.05, tokens=500_000)
    seconds = 3
    minutes = run.total_steps * seconds / 60
    drawing = Drawing(
        "A plan is a chain",
        f"{run.examples:,} examples, {run.batch_size} at once, are {run.batches_per_epoch} "
        f"micro-batches. {run.accumulation} of them make an update, rounded up: "
        f"{run.steps_per_epoch} updates an epoch. {run.epochs} epochs are {run.total_steps} "
        f"updates, {run.warmup_steps} of them warmup. At {seconds} seconds an update that is "
        f"{minutes:.1f} minutes. {run.tokens:,} tokens, {run.epochs} times, are "
        f"{run.tokens_processed:,} tokens processed.",
        height=396,
    )
    links = (
        (16, 16, f"{run.examples:,}", "examples", "green"),
        (232, 16, f"{run.batches_per_epoch:,}", "micro-batches", "blue"),
        (448, 16, f"{run.steps_per_epoch:,}", "updates an epoch", "blue"),
        (448, 206, f"{run.total_steps:,}", f"updates\n{run.warmup_steps} of them warmup", "orange"),
        (232, 206, f"{minutes:.1f}", f"minutes\nat {seconds} s an update", "grey"),
        (16, 206, f"{run.tokens_processed:,}", "tokens\nprocessed", "green"),
    )
    for x, y, number, words, tone in links:
        drawing.box(x, y, 176, 112, tone)
        drawing.words(x + 88, y + 42, number, bold=True, size=28, tone=tone)
        drawing.words(x + 88, y + 72, words)
    for x, operation in ((192, f"÷ {run.batch_size}"), (408, f"÷ {run.accumulation}")):
        drawing.arrow((x + 4, 78), (x + 36, 78))
        drawing.words(x + 20, 62, operation, bold=True)
    drawing.arrow((536, 130), (536, 203))
    drawing.words(524, 172, f"× {run.epochs} epochs", anchor="end", bold=True)
    drawing.arrow((444, 268), (412, 268))
    drawing.words(428, 252, f"× {seconds}", bold=True)
    drawing.arrow((104, 130), (104, 203))
    drawing.words(118, 172, f"{run.tokens:,} × {run.epochs}", anchor="start", bold=True)
    exactly = run.batches_per_epoch / run.accumulation
    last = run.batches_per_epoch - (run.steps_per_epoch - 1) * run.accumulation
    drawing.words(
        320,
        350,
        f"{run.batches_per_epoch} ÷ {run.accumulation} = {exactly:g}, rounded up: the last update "
        f"of an\nepoch has {last} micro-batches, and is an update all the same",
        tone="grey",
    )
    return drawing.done()
