"""The memory of a training step, worked out: each term with its source. No torch here."""

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from helpers._checks import one_of, whole
from helpers.shapes import ATTENTION, Shape, find_shape

GIB = 2**30
PARTS = ("parameters", "gradients", "states", "activations", "temporary")
MOMENTS = ("forward", "backward", "update")
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#767676")  # Okabe and Ito 2008, and grey


def gib(count: float) -> str:
    """Write a number of bytes with the unit that suits it."""
    for unit, size in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(count) >= size / 10:
            return f"{count / size:,.2f} {unit}"
    return f"{count:,.0f} B"


@dataclass(frozen=True)
class Breakdown:
    """The bytes on one device in a step of training, by what they are for.

    ``moments`` holds the fullest instant of the "forward" pass, the "backward" pass and the
    "update", each as bytes by part:

    parameters
        The weights, and buffers with them.
    gradients
        Of the parameters alone.
    states
        What the optimizer keeps from step to step; float32 master weights are among it.
    activations
        What the forward pass has made and is still there, the batch itself included.
    temporary
        What the backward pass or the update makes and throws away.

    ``breakdown.activations`` is the most of that part at any moment. ``peak`` is the most of all
    together, so it may be less than the sum of the parts: activations are gone when the last
    gradients come. Two breakdowns add moment by moment, as for two models on one card, and ``<``
    compares their peaks.

    Raises ``ValueError`` for an unknown moment or part, or a negative number of bytes.

    >>> small = Breakdown({"forward": {"parameters": 4, "activations": 9}, "update": {"states": 8}})
    >>> small.peak, small.when, (small + small).states
    (13, 'forward', 16)
    """

    moments: Mapping[str, Mapping[str, int]]

    def __post_init__(self) -> None:
        if not self.moments:
            raise ValueError("moments must hold at least one moment; got none")
        filled = {}
        for moment, parts in self.moments.items():
            one_of("moments", moment, MOMENTS)
            for part in parts:
                one_of("moments", part, PARTS)
            filled[moment] = {part: whole(part, parts.get(part, 0), at_least=0) for part in PARTS}
        object.__setattr__(self, "moments", filled)

    def _most(self, part: str) -> int:
        return max(parts[part] for parts in self.moments.values())

    parameters = property(partial(_most, part="parameters"))
    gradients = property(partial(_most, part="gradients"))
    states = property(partial(_most, part="states"))
    activations = property(partial(_most, part="activations"))
    temporary = property(partial(_most, part="temporary"))

    @property
    def when(self) -> str:
        """The moment of the peak."""
        return max(self.moments, key=lambda moment: sum(self.moments[moment].values()))

    @property
    def peak(self) -> int:
        """The most bytes at one instant."""
        return sum(self.moments[self.when].values())

    def __add__(self, other: object) -> "Breakdown":
        if not isinstance(other, Breakdown):
            return NotImplemented
        both = [*self.moments, *(moment for moment in other.moments if moment not in self.moments)]
        return Breakdown(
            {
                moment: {
                    part: sum(one.moments.get(moment, {}).get(part, 0) for one in (self, other))
                    for part in PARTS
                }
                for moment in both
            }
        )

    def __lt__(self, other: "Breakdown") -> bool:
        return self.peak < other.peak

    def __le__(self, other: "Breakdown") -> bool:
        return self.peak <= other.peak

    def against(self, other: "Breakdown") -> dict[str, float]:
        """Return how far each part and the peak lie from ``other``'s, relative to its peak."""
        names = (*PARTS, "peak")
        return {name: (getattr(self, name) - getattr(other, name)) / other.peak for name in names}

    def __repr__(self) -> str:
        parts = ", ".join(f"{part} {gib(getattr(self, part))}" for part in PARTS)
        return f"Breakdown: peak {gib(self.peak)} in the {self.when} ({parts})"

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col">{part}</th>' for part in (*PARTS, "together", ""))
        rows = "".join(self._row(moment) for moment in self.moments)
        title = html.escape(f"peak {gib(self.peak)} in the {self.when}")
        return (
            f'<table><caption>{title}</caption><tr><th scope="col"></th>{heads}</tr>{rows}</table>'
        )

    def _row(self, moment: str) -> str:
        parts = self.moments[moment]
        cells = "".join(
            f"<td>{gib(count)}</td>" for count in (*parts.values(), sum(parts.values()))
        )
        bars = "".join(
            f'<span title="{part}" style="display:inline-block;height:1em;background:{colour};'
            f'width:{300 * parts[part] / max(self.peak, 1):.1f}px"></span>'
            for part, colour in zip(PARTS, COLOURS)
        )
        bar = f'<td style="text-align:left;white-space:nowrap">{bars}</td>'
        return f'<tr><th scope="row">{moment}</th>{cells}{bar}</tr>'


PRECISIONS = {"float32": 4, "bfloat16": 2, "mixed": 2}  # bytes of a weight that computes
OPTIMIZERS = ("sgd", "momentum", "adamw", "adamw-8bit")
BLOCK_OF_8_BIT = 256  # numbers that share a scale in bitsandbytes; smaller tensors than 4,096 stay
LEAST_8_BIT = 4096


@dataclass(frozen=True)
class Setting:
    """The checked arguments of ``estimate`` and ``simulate``."""

    shape: Shape
    batch_size: int
    context: int
    precision: str
    optimizer: str
    trainable: str
    checkpointing: bool
    attention: str
    rank: int | None = None
    base_bits: int = 16

    @property
    def bytes(self) -> int:
        """Bytes of one number that computes."""
        return PRECISIONS[self.precision]

    @property
    def adapters(self) -> list[tuple[int, int]]:
        """The (out, in) of each weight matrix of a block that has an adapter."""
        return list(self.shape.block_matrices) if self.trainable == "lora" else []

    @property
    def trained_in_block(self) -> list[int]:
        """The numbers in each trainable tensor of one block."""
        if self.trainable == "full":
            return list(self.shape.block_tensors)
        return [self.rank * size for matrix in self.adapters for size in matrix]

    @property
    def trained(self) -> list[int]:
        """The numbers in each trainable tensor of the model."""
        outer = list(self.shape.outer_tensors) if self.trainable == "full" else []
        return outer + self.trained_in_block * self.shape.layers


def check(shape: str | Shape, *, batch_size: int, context: int, **given: Any) -> Setting:  # noqa: ANN401
    """Return the arguments of ``estimate`` or ``simulate`` once they are all sound."""
    shape = find_shape(shape)
    for name, allowed in (
        ("precision", PRECISIONS),
        ("optimizer", OPTIMIZERS),
        ("trainable", ("full", "lora")),
        ("attention", ATTENTION),
    ):
        one_of(name, given[name], allowed)
    if not isinstance(given["checkpointing"], bool):
        raise TypeError(f"checkpointing must be True or False; got {given['checkpointing']!r}")
    if whole("context", context) > shape.context:
        raise ValueError(f"context must be at most the model's {shape.context:,}; got {context:,}")
    checked = Setting(shape, whole("batch_size", batch_size), int(context), **given)
    _check_adapters(checked)
    return checked


def _check_adapters(setting: Setting) -> None:
    if setting.trainable == "lora":
        if setting.rank is None:
            raise ValueError("rank must be given for trainable='lora', such as 8 or 16; got None")
        whole("rank", setting.rank)
        if setting.precision == "float32":
            raise ValueError(
                "precision must be 'bfloat16' or 'mixed' for trainable='lora', whose base weights "
                "have 16 bits or fewer; got 'float32'"
            )
    elif setting.rank is not None:
        raise ValueError(f"rank is for trainable='lora'; got rank={setting.rank!r} with 'full'")
    if setting.base_bits not in (16, 8, 4):
        raise ValueError(f"base_bits must be 16, 8 or 4; got {setting.base_bits!r}")
    if setting.trainable == "full" and setting.base_bits != 16:
        raise ValueError(
            f"base_bits is for trainable='lora', whose base weights are frozen; got "
            f"{setting.base_bits!r} with 'full'"
        )


def _bytes_of_base(setting: Setting) -> int:
    """Return the bytes of the frozen or trained base weights.

    In 8 bits one byte a weight and a float32 scale a row (Dettmers et al. 2022, arXiv 2208.07339);
    in 4 bits half a byte, an 8-bit scale for 64 weights and a float32 one for 256 of those
    (Dettmers et al. 2023, arXiv 2305.14314, section 3). Only the matrices of the blocks shrink.
    """
    shape, quantized = setting.shape, 0
    if setting.base_bits == 16:
        return setting.bytes * shape.parameters
    for out, inner in shape.block_matrices:
        count = out * inner
        if setting.base_bits == 8:
            quantized += count + 4 * out
        else:
            scales = -(-count // 64)
            quantized += -(-count // 2) + scales + 4 * -(-scales // 256)
    kept = sum(shape.outer_tensors) + shape.layers * sum(shape.block_vectors)
    return shape.layers * quantized + setting.bytes * kept


def _bytes_of_states(setting: Setting) -> int:
    """Return the bytes that the optimizer keeps from step to step.

    AdamW keeps two numbers a parameter (Kingma and Ba 2014, arXiv 1412.6980), and torch a float32
    count of the steps for each tensor, which stays on the CPU; SGD keeps none, and one with
    momentum. In 8 bits each is one byte and a float32 scale for a block of them (Dettmers et al.
    2021, arXiv 2110.02861). Mixed precision keeps all of it in float32, and a float32 copy of the
    weights (Rajbhandari et al. 2019, arXiv 1910.02054, section 3.1).
    """
    sizes = setting.trained
    width = 4 if setting.precision == "mixed" else setting.bytes
    master = 4 * sum(sizes) if setting.precision == "mixed" else 0
    if setting.optimizer == "adamw-8bit":
        return master + sum(
            8 * size if size < LEAST_8_BIT else 2 * (size + 4 * -(-size // BLOCK_OF_8_BIT))
            for size in sizes
        )
    moments = {"sgd": 0, "momentum": 1, "adamw": 2}[setting.optimizer]
    counts = 4 * len(sizes) if setting.optimizer == "adamw" else 0
    return master + moments * width * sum(sizes) + counts


@dataclass(frozen=True)
class _Widths:
    """Bytes a token that one block keeps for the backward pass, by what keeps them.

    The list is Korthikanti et al.'s (2022, arXiv 2205.05198, section 4.1), without dropout and for
    either family: the input and the normalised copy of a norm; queries, keys, values and the
    mixture; what stands between the matrices of the feed-forward part. A fused attention keeps one
    float32 number a head in place of the matrix of scores (Dao et al. 2022, arXiv 2205.14135).
    """

    norm: int
    attention: int
    feed: int
    adapters: int = 0

    @property
    def all(self) -> int:
        return 2 * self.norm + self.attention + self.feed + self.adapters


def _widths(setting: Setting) -> _Widths:
    shape, e = setting.shape, setting.bytes
    if setting.attention == "fused":
        attention = e * (2 * shape.width + 2 * shape.kv_width) + 4 * shape.heads
    else:
        attention = e * (4 * shape.width + shape.heads * setting.context)
    between = 2 if shape.family == "gpt2" else 4  # up, gelu; or gate, up, silu and their product
    adapters = e * len(setting.adapters) * (setting.rank or 0)
    return _Widths(_norm_keeps(setting), attention, between * e * shape.feed, adapters)


def _norm_keeps(setting: Setting) -> int:
    """Return the bytes a token that a norm keeps, its output included."""
    h, e = setting.shape.width, setting.bytes
    if setting.shape.family == "gpt2":
        return 2 * e * h + 2 * e  # with mean and deviation
    # In float32: the input and one ÷ root mean square; then the normalised copy, if the weight that
    # multiplies it is trained.
    return 4 * h + 4 + e * h * (2 if setting.trainable == "full" else 1)


def _norm_still_keeps(setting: Setting) -> int:
    """Return the bytes a token that are left when the backward pass of a norm is fullest."""
    h, e = setting.shape.width, setting.bytes
    return e * h + 2 * e if setting.shape.family == "gpt2" else 4 * h + 4


def _norm_works(setting: Setting) -> int:
    """Return the bytes a token that the backward pass of a norm takes meanwhile."""
    h, e = setting.shape.width, setting.bytes
    return 2 * e * h if setting.shape.family == "gpt2" else 5 * 4 * h


@dataclass(frozen=True)
class _Stage:
    """An instant of the backward pass of a block, in bytes a token and bytes of gradients so far.

    ``kept`` of the block's own activations are left and ``temporary`` is at work.
    """

    kept: int
    temporary: int
    gradients: int


def _stages(setting: Setting) -> list[_Stage]:
    """Return the instants at which the backward pass through one block can be fullest."""
    shape, e, width = setting.shape, setting.bytes, _widths(setting)
    stream, feed, norm = e * shape.width, e * shape.feed, _norm_works(setting)
    rest = _norm_still_keeps(setting)
    sizes = [e * size for size in _trained_by_matrix(setting)]
    before = width.all - width.feed  # the feed-forward part is done
    below = width.norm + width.attention  # and its norm too
    if shape.family == "gpt2":
        attention, out, into_feed = sum(sizes[:2]), sizes[1], sum(sizes[2:])
        first = _Stage(width.all, stream + feed, sizes[3])
        second = _Stage(before, 2 * stream + feed, into_feed)
    else:
        attention, out, into_feed = sum(sizes[:4]), sizes[3], sum(sizes[4:])
        first = _Stage(width.all - feed, stream + 3 * feed, sizes[6])
        second = _Stage(before, 2 * stream + 2 * feed, sizes[6] + sizes[4])
    heads = e * (shape.width + 2 * shape.kv_width)
    if setting.attention == "matrix":
        heads = stream + 2 * e * shape.heads * setting.context
    return [
        first,
        second,
        _Stage(below + rest, stream + norm, into_feed),
        _Stage(below, 2 * stream + heads, into_feed + out),
        _Stage(rest, stream + norm, into_feed + attention),
    ]


def _trained_by_matrix(setting: Setting) -> list[int]:
    """Return the trainable numbers that go with each weight matrix of a block."""
    if setting.trainable == "lora":
        return [setting.rank * (out + inner) for out, inner in setting.adapters]
    biased = setting.shape.family == "gpt2"
    return [out * inner + biased * out for out, inner in setting.shape.block_matrices]


def _backward(setting: Setting) -> Iterator[tuple[int, int, int]]:
    """Yield (gradients, activations, temporary) at each instant that can be the fullest.

    From the loss down to the embedding. Memory is linear in the number of blocks above and below,
    so that between the last block and the first none is fuller than both.
    """
    shape, e, tokens = setting.shape, setting.bytes, setting.batch_size * setting.context
    stream, logits = tokens * e * shape.width, tokens * shape.vocab_size
    blocks = shape.layers * _kept_of_block(setting)
    norm = tokens * _norm_keeps(setting) - (stream if setting.trainable == "lora" else 0)
    table = e * shape.vocab_size * shape.width if setting.trainable == "full" else 0
    # The loss works in float32 whatever the precision; log softmax keeps its result.
    yield 0, blocks + norm + 4 * logits, 8 * logits
    yield table, blocks + norm, e * logits + stream
    yield table, blocks + tokens * _norm_still_keeps(setting), tokens * _norm_works(setting)
    others = shape.layers - 1
    # Where a norm keeps a float32 copy, the stream that a checkpoint keeps comes on top.
    extra = stream if setting.checkpointing and _copies_stream(setting) else 0
    for stage in _stages(setting):
        activations, temporary = tokens * stage.kept + extra, tokens * stage.temporary
        gradients = table + stage.gradients
        yield gradients, others * _kept_of_block(setting) + activations, temporary
        done = e * sum(setting.trained_in_block) * others
        yield gradients + done, activations, temporary
    # A table that is shared has two gradients, and their sum.
    yield e * sum(setting.trained), 0, stream + (2 * table if shape.tied else 0)


def _copies_stream(setting: Setting) -> bool:
    return setting.shape.family == "llama" and setting.bytes != 4


def _kept_of_block(setting: Setting) -> int:
    """Return the bytes that a block keeps until its backward pass comes."""
    tokens = setting.batch_size * setting.context
    if setting.checkpointing:
        return tokens * setting.bytes * setting.shape.width
    return tokens * _widths(setting).all


def _forward(setting: Setting) -> int:
    """Return the bytes of activations at the end of the forward pass."""
    shape, tokens = setting.shape, setting.batch_size * setting.context
    _, kept, _ = next(_backward(setting))
    stream = setting.bytes * shape.width if _copies_stream(setting) else 0
    return kept + tokens * (4 * shape.vocab_size + stream)  # the logits, beside their log softmax


def _temporary_of_update(setting: Setting, share: int) -> int:
    """Return the bytes that an update of ``share`` numbers makes and throws away.

    torch's AdamW updates all tensors together where it can, with the roots of all second moments
    at once. With master weights, and in 8 bits, tensor by tensor.
    """
    largest = min(max(setting.trained), share)
    if setting.precision == "mixed":  # a float32 gradient; the root, and that corrected
        return (12 if setting.optimizer == "adamw" else 4) * largest
    return setting.bytes * share if setting.optimizer == "adamw" else 0


def estimate(
    shape: str | Shape,
    *,
    batch_size: int,
    context: int,
    precision: str = "bfloat16",
    optimizer: str = "adamw",
    trainable: str = "full",
    rank: int | None = None,
    base_bits: int = 16,
    checkpointing: bool = False,
    attention: str = "fused",
    devices: int = 1,
    shard: int = 0,
) -> Breakdown:
    """Work out the memory of one device in a step of training, from the second step on.

    The first step has no optimizer states until its update. The forward pass counts at its end; the
    backward pass is at least as full wherever a block is fuller inside. What the allocator rounds
    up, its fragments, the libraries' own memory and buffers for communication come on top.

    Parameters
    ----------
    shape
        The name of one of ``helpers.shapes.SHAPES``, or a ``Shape`` of your own.
    batch_size, context
        Examples in a micro-batch, and tokens in each, padding included. Accumulating more of them
        keeps the gradients through the forward pass as well, and nothing else.
    precision
        "float32"; "bfloat16", weights, gradients and states alike; or "mixed": 16-bit weights and
        gradients, float32 states and a float32 copy of the weights, 16 bytes a parameter with AdamW
        (Rajbhandari et al. 2019, arXiv 1910.02054, section 3.1). torch's autocast comes to 16 as
        well, as 4 + 4 + 8, and has a 16-bit copy of the weights besides.
    optimizer
        "sgd", "momentum", "adamw" or "adamw-8bit".
    trainable
        "full"; or "lora": frozen base weights in ``base_bits`` 16, 8 or 4, and an adapter of
        ``rank`` on every linear layer of a block.
    checkpointing
        Keep the input of each block alone and compute the rest again (Chen et al. 2016, arXiv
        1604.06174).
    attention
        "fused", or "matrix" with the scores of all pairs of tokens.
    devices, shard
        Data-parallel devices, and what they divide among them: 0 nothing, 1 states, 2 gradients as
        well, 3 parameters as well (the stages of ZeRO, arXiv 1910.02054, section 5).

    Raises ``ValueError`` or ``TypeError`` for an unknown name, a context beyond the model's, a
    shard without devices, and sizes that are not whole numbers of at least 1.
    """
    setting = check(
        shape,
        batch_size=batch_size,
        context=context,
        precision=precision,
        optimizer=optimizer,
        trainable=trainable,
        rank=rank,
        base_bits=base_bits,
        checkpointing=checkpointing,
        attention=attention,
    )
    _check_devices(devices, shard)
    return Breakdown(_moments(setting, devices, shard))


def activations_by_kind(
    shape: str | Shape,
    *,
    batch_size: int,
    context: int,
    precision: str = "bfloat16",
    attention: str = "fused",
) -> dict[str, int]:
    """Return the bytes of activations at the end of the forward pass, by what keeps them.

    "norms", "attention" and "feed-forward" of all blocks; and "logits": in float32 a score for each
    token and each entry of the vocabulary, and the log of its probability, which the loss keeps.
    Arguments and errors are those of ``estimate``.

    >>> kept = activations_by_kind("gpt2-124m", batch_size=8, context=1024)
    >>> kept["logits"] == 2 * 4 * 8 * 1024 * 50_257
    True
    """
    setting = check(
        shape,
        batch_size=batch_size,
        context=context,
        precision=precision,
        attention=attention,
        optimizer="sgd",
        trainable="full",
        checkpointing=False,
    )
    tokens = setting.batch_size * setting.context
    layers, width = setting.shape.layers, _widths(setting)
    stream = setting.bytes * setting.shape.width if _copies_stream(setting) else 0
    return {
        "norms": tokens * ((2 * layers + 1) * width.norm + stream),
        "attention": tokens * layers * width.attention,
        "feed-forward": tokens * layers * width.feed,
        "logits": tokens * setting.shape.vocab_size * 2 * 4,
    }


def _check_devices(devices: int, shard: int) -> None:
    whole("devices", devices)
    if whole("shard", shard, at_least=0) > 3:
        raise ValueError(f"shard must be 0, 1, 2 or 3; got {shard}")
    if shard and devices == 1:
        raise ValueError(f"devices must be at least 2 for shard={shard}; got devices=1")


def _moments(setting: Setting, devices: int, shard: int) -> dict[str, dict[str, int]]:
    trained = sum(setting.trained)
    parameters = _bytes_of_base(setting)
    if setting.trainable == "lora":
        parameters += setting.bytes * trained

    def part_of(whole_of_it: int, stage: int) -> int:
        return -(-whole_of_it // devices) if shard >= stage else whole_of_it

    always = {
        "parameters": part_of(parameters, 3),
        "states": part_of(_bytes_of_states(setting), 1),
    }
    gathered, reduced = _gathered(setting, shard)
    gradients, activations, temporary = max(_backward(setting), key=sum)
    return {
        "forward": always | {"activations": _forward(setting), "temporary": gathered},
        "backward": always
        | {
            "gradients": part_of(gradients, 2),
            "activations": activations,
            "temporary": temporary + gathered + reduced,
        },
        "update": always
        | {
            "gradients": part_of(setting.bytes * trained, 2),
            "temporary": _temporary_of_update(setting, part_of(trained, 1)),
        },
    }


def _gathered(setting: Setting, shard: int) -> tuple[int, int]:
    """Return the bytes of weights made whole at one time, and of gradients not yet divided.

    A block at a time, or the table of the vocabulary if that is larger; with quantized weights a
    matrix at a time.
    """
    shape, full = setting.shape, setting.trainable == "full"
    table = shape.vocab_size * shape.width
    largest = max(table, sum(shape.block_tensors))
    gathered = setting.bytes * largest if shard == 3 else 0
    if setting.base_bits < 16:
        gathered += setting.bytes * max(out * inner for out, inner in shape.block_matrices)
    undivided = max(table if full else 0, sum(setting.trained_in_block))
    return gathered, setting.bytes * undivided if shard >= 2 else 0
