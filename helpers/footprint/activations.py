"""The bytes that grow with the batch: what the passes through the blocks keep and throw away."""

from collections.abc import Iterator
from dataclasses import dataclass

from helpers.footprint.fixed import temporary_of_tensor
from helpers.footprint.setting import Setting, check
from helpers.shapes import Shape


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


@dataclass(frozen=True)
class _Widths:
    """Bytes a token that one block keeps for the backward pass, by what keeps them.

    The list is Korthikanti et al.'s (2022, arXiv 2205.05198, section 4.1), without dropout and for
    either family: the input and the normalised copy of a norm; queries, keys, values and the
    mixture; what stands between the matrices of the feed-forward part. A fused attention keeps one
    float32 number a head in place of the matrix of scores (Dao et al. 2022, arXiv 2205.14135).
    """

    norm: int
    feed_norm: int
    attention: int
    feed: int
    adapters: int = 0

    @property
    def all(self) -> int:
        return self.norm + self.feed_norm + self.attention + self.feed + self.adapters


def _widths(setting: Setting) -> _Widths:
    shape, e = setting.shape, setting.bytes
    if setting.attention == "fused":
        attention = e * (2 * shape.query_width + 2 * shape.kv_width) + 4 * shape.heads
    else:
        attention = e * (4 * shape.query_width + shape.heads * setting.context)
    # up, gelu; or gate, up, silu and their product: the last is there for the matrix that follows
    between = (1 if shape.family == "gpt2" else 3) + setting.needs_input_of("down")
    adapters = e * sum(matrix is not None for matrix in setting.adapted) * (setting.rank or 0)
    return _Widths(
        _norm_keeps(setting, "q", "k", "v", "qkv"),
        _norm_keeps(setting, "up", "gate"),
        attention,
        between * e * shape.feed,
        adapters,
    )


def _norm_keeps(setting: Setting, *followed_by: str) -> int:
    """Return the bytes a token that a norm keeps, its output for matrices after it included."""
    h, e = setting.shape.width, setting.bytes
    output = e * h * setting.needs_input_of(*followed_by)
    if setting.shape.family == "gpt2":
        return e * h + output + 2 * e  # with mean and deviation
    # In float32: the input and one ÷ root mean square; then the normalised copy, if the weight that
    # multiplies it is trained.
    return 4 * h + 4 + output + e * h * (setting.trainable == "full")


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

    ``kept`` of the block's own activations are left and ``temporary`` is at work. ``now`` is the
    position of the matrix whose gradient comes, if one does.
    """

    kept: int
    temporary: int
    gradients: int
    now: int | None = None


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
        first = _Stage(width.all, stream + feed, sizes[3], 3)
        second = _Stage(before, 2 * stream + feed, into_feed, 2)
    else:
        attention, out, into_feed = sum(sizes[:4]), sizes[3], sum(sizes[4:])
        first = _Stage(width.all - feed, stream + 3 * feed, sizes[6], 6)
        second = _Stage(before, 2 * stream + 2 * feed, sizes[6] + sizes[4], 4)
    heads = e * (shape.query_width + 2 * shape.kv_width)
    if setting.attention == "matrix":
        heads = e * shape.query_width + 2 * e * shape.heads * setting.context
    return [
        first,
        second,
        _Stage(below + rest, stream + norm, into_feed),
        _Stage(below, 2 * stream + heads, into_feed + out, 1 if shape.family == "gpt2" else 3),
        _Stage(rest, stream + norm, into_feed + attention, 0),
    ]


def _trained_by_matrix(setting: Setting) -> list[int]:
    """Return the trainable numbers that go with each weight matrix of a block."""
    if setting.trainable == "lora":
        return [setting.rank * sum(matrix) if matrix else 0 for matrix in setting.adapted]
    biased = setting.shape.family == "gpt2"
    return [out * inner + biased * out for out, inner in setting.shape.block_matrices]


def backward(setting: Setting) -> Iterator[tuple[int, int, int]]:
    """Yield (gradients, activations, temporary) at each instant that can be the fullest.

    From the loss down to the embedding. Memory is linear in the number of blocks above and below,
    so that between the last block and the first none is fuller than both.
    """
    shape, e, tokens = setting.shape, setting.bytes, setting.batch_size * setting.context
    stream = tokens * e * shape.width
    blocks = shape.layers * _kept_of_block(setting) - tokens * _untracked(setting)
    norm = tokens * _norm_keeps(setting)
    table = e * shape.vocab_size * shape.width if setting.trainable == "full" else 0
    yield from _loss(setting, table, blocks + norm)
    yield table, blocks + tokens * _norm_still_keeps(setting), tokens * _norm_works(setting)
    others = shape.layers - 1
    # Where a norm keeps a float32 copy, the stream that a checkpoint keeps comes on top.
    extra = stream if setting.checkpointing and _copies_stream(setting) else 0
    for stage in _stages(setting):
        activations, temporary = tokens * stage.kept + extra, tokens * stage.temporary
        gradients = table + stage.gradients
        first = others * _kept_of_block(setting) - (tokens * _untracked(setting) if others else 0)
        yield gradients, first + activations, temporary
        done = e * sum(setting.trained_in_block) * others
        yield gradients + done, activations, temporary
    # A table that is shared has two gradients, and their sum.
    yield e * sum(setting.trained), 0, stream + (2 * table if shape.tied else 0)


def _loss(setting: Setting, table: int, kept: int) -> Iterator[tuple[int, int, int]]:
    """Yield the instants of the loss, with what is kept below it."""
    shape, e, tokens = setting.shape, setting.bytes, setting.batch_size * setting.context
    stream = tokens * e * shape.width
    # The loss works in float32 whatever the precision; log softmax keeps its result.
    if setting.loss_chunk is None:
        logits = tokens * shape.vocab_size
        yield 0, kept + 4 * logits, 8 * logits
        yield table, kept, e * logits + stream
        return
    logits = min(setting.loss_chunk, tokens) * shape.vocab_size
    if setting.trainable == "lora":
        kept += stream  # which a frozen table does not need, and a checkpoint does
    # The gradient of the table is the sum of those of the pieces, and of the stream all of them.
    yield table, kept + 4 * logits, 8 * logits + stream
    yield table, kept, e * logits + stream + table
    yield table, kept, 2 * stream


def updating_backward(setting: Setting) -> Iterator[tuple[int, int, int]]:
    """Yield the instants of ``backward`` where each gradient is used up as it comes."""
    shape, e, tokens = setting.shape, setting.bytes, setting.batch_size * setting.context
    stream = tokens * e * shape.width
    numbers = shape.vocab_size * shape.width if setting.trainable == "full" else 0
    table, update = e * numbers, temporary_of_tensor(setting, numbers)
    blocks = shape.layers * _kept_of_block(setting) - tokens * _untracked(setting)
    norm = tokens * _norm_keeps(setting)
    yield from _loss(setting, table, blocks + norm)
    waits = table if shape.tied else 0  # for its other half
    if not shape.tied:
        yield table, blocks + norm, stream + update
    yield waits, blocks + tokens * _norm_still_keeps(setting), tokens * _norm_works(setting)
    others = (shape.layers - 1) * _kept_of_block(setting) - tokens * _untracked(setting)
    extra = stream if setting.checkpointing and _copies_stream(setting) else 0
    sizes = _trained_by_matrix(setting)
    for stage in _stages(setting):
        size = 0 if stage.now is None else sizes[stage.now]
        working = tokens * stage.temporary + temporary_of_tensor(setting, size)
        yield waits + e * size, others + tokens * stage.kept + extra, working
    yield table, 0, stream + 2 * waits  # the two halves, and their sum
    yield table, 0, stream + update


def _copies_stream(setting: Setting) -> bool:
    return setting.shape.family == "llama" and setting.bytes != 4


def _kept_of_block(setting: Setting) -> int:
    """Return the bytes that a block keeps until its backward pass comes."""
    tokens = setting.batch_size * setting.context
    if setting.checkpointing:
        return tokens * setting.bytes * setting.shape.width
    return tokens * _widths(setting).all


def _untracked(setting: Setting) -> int:
    """Return the bytes a token that the first block keeps less: all that no adapter comes before.

    The embedding is frozen under adapters, and what depends on nothing that is trained needs no
    gradient.
    """
    if setting.trainable == "full" or setting.checkpointing:
        return 0
    shape, e = setting.shape, setting.bytes
    trained = setting.needs_input_of
    into_attention, out = trained("q", "k", "v", "qkv"), trained("out")
    less = _norm_keeps(setting)
    if not into_attention:
        mixture = e * shape.query_width
        less += _widths(setting).attention - (mixture if out else 0)
    if not (into_attention or out):
        less += _norm_keeps(setting)
        if not trained("up", "gate"):
            less += _widths(setting).feed - e * shape.feed * trained("down")
    return less


def forward(setting: Setting) -> int:
    """Return the bytes of activations at the end of the forward pass."""
    shape, tokens = setting.shape, setting.batch_size * setting.context
    _, kept, _ = next(backward(setting))
    stream = setting.bytes * shape.width if _copies_stream(setting) else 0
    if setting.loss_chunk is not None:
        return kept + 4 * min(setting.loss_chunk, tokens) * shape.vocab_size + tokens * stream
    return kept + tokens * (4 * shape.vocab_size + stream)  # the logits, beside their log softmax
