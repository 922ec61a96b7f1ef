"""The sizes of well-known language models, as data. Nothing here imports torch."""

import difflib
from dataclasses import dataclass
from typing import Any

from helpers._checks import one_of, whole

FAMILIES = ("gpt2", "llama")
ATTENTION = ("fused", "matrix")


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder-only transformer, all that its memory depends on.

    Parameters
    ----------
    vocab_size, context, width, layers, heads
        As in ``ModelConfig``; ``context`` is the longest that the model takes, in tokens.
    kv_heads
        Heads of keys and values, fewer than ``heads`` in grouped attention (Ainslie et al. 2023,
        arXiv 2305.13245). As many as ``heads`` if not given.
    feed
        Width inside the feed-forward part. Four times ``width`` if not given.
    family
        "gpt2": LayerNorm, biases, GELU, learned positions (Radford et al. 2019), as in ``SmallLM``.
        "llama": RMS norm, no biases, a gated SiLU, rotary positions (Touvron et al. 2023, arXiv
        2302.13971).
    tied
        Whether the output shares the weights of the token embedding. Yes in "gpt2" and no in
        "llama" if not given.
    source
        Where the numbers come from.

    Raises ``TypeError`` or ``ValueError`` for sizes that are not whole numbers of at least 1, and
    for heads that do not divide what they share.

    >>> Shape(vocab_size=11, context=8, width=16, layers=2, heads=2).parameters
    6896
    """

    vocab_size: int
    context: int
    width: int
    layers: int
    heads: int
    kv_heads: int | None = None
    feed: int | None = None
    family: str = "gpt2"
    tied: bool | None = None
    source: str = ""

    def __post_init__(self) -> None:
        one_of("family", self.family, FAMILIES)
        defaults = {
            "kv_heads": self.heads,
            "feed": 4 * whole("width", self.width),
            "tied": self.family == "gpt2",
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        for name in ("vocab_size", "context", "layers", "heads", "kv_heads", "feed"):
            whole(name, getattr(self, name))
        if self.width % self.heads:
            raise ValueError(f"heads must divide the width of {self.width}; got {self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads must divide the {self.heads} heads; got {self.kv_heads}")
        if self.family == "llama" and self.width // self.heads % 2:
            raise ValueError(
                f"width ÷ heads must be even, as rotary positions turn pairs; got "
                f"{self.width} ÷ {self.heads}"
            )

    @property
    def kv_width(self) -> int:
        """Width of all keys (or values) of a token."""
        return self.width // self.heads * self.kv_heads

    @property
    def block_matrices(self) -> tuple[tuple[int, int], ...]:
        """The (out, in) of each weight matrix of a block."""
        h, f = self.width, self.feed
        if self.family == "gpt2":
            return (h + 2 * self.kv_width, h), (h, h), (f, h), (h, f)
        return (h, h), (self.kv_width, h), (self.kv_width, h), (h, h), (f, h), (f, h), (h, f)

    @property
    def block_vectors(self) -> tuple[int, ...]:
        """The length of each bias and norm weight of a block."""
        norms = (self.width,) * 2
        if self.family == "llama":
            return norms
        return (*norms, *norms, *(out for out, _ in self.block_matrices))

    @property
    def outer_tensors(self) -> tuple[int, ...]:
        """The parameters of each tensor outside the blocks: embeddings, last norm, output."""
        table = self.vocab_size * self.width
        positions = (self.context * self.width,) if self.family == "gpt2" else ()
        norm = (self.width,) * (2 if self.family == "gpt2" else 1)
        return (table, *positions, *norm, *(() if self.tied else (table,)))

    @property
    def block_tensors(self) -> tuple[int, ...]:
        """The parameters of each tensor of one block."""
        return (*(out * inner for out, inner in self.block_matrices), *self.block_vectors)

    @property
    def parameters(self) -> int:
        """All parameters; a shared table counts once."""
        return sum(self.outer_tensors) + self.layers * sum(self.block_tensors)


_RADFORD = "Radford et al. 2019, table 2, and the released weights (vocabulary 50,257)"
_LLAMA = "Touvron et al. 2023, arXiv 2302.13971, table 2, at the context of arXiv 2307.09288"

SHAPES = {
    "gpt2-124m": Shape(50257, 1024, 768, 12, 12, source=_RADFORD),
    "gpt2-1.5b": Shape(50257, 1024, 1600, 48, 25, source=_RADFORD),
    "llama-7b": Shape(32000, 4096, 4096, 32, 32, feed=11008, family="llama", source=_LLAMA),
    "llama-13b": Shape(32000, 4096, 5120, 40, 40, feed=13824, family="llama", source=_LLAMA),
    "llama-70b": Shape(
        *(32000, 4096, 8192, 80, 64),
        kv_heads=8,
        feed=28672,
        family="llama",
        source="Touvron et al. 2023, arXiv 2307.09288, and the released configuration",
    ),
    "llama3-8b": Shape(
        *(128256, 8192, 4096, 32, 32),
        kv_heads=8,
        feed=14336,
        family="llama",
        source="Grattafiori et al. 2024, arXiv 2407.21783, table 3",
    ),
}


def find_shape(shape: Any) -> Shape:  # noqa: ANN401
    """Return a ``Shape`` by its name in ``SHAPES``, or as it is given.

    Raises ``ValueError`` for an unknown name, with those that are near it, and ``TypeError`` for
    anything else.
    """
    if isinstance(shape, Shape):
        return shape
    if not isinstance(shape, str):
        raise TypeError(f"shape must be a Shape or the name of one; got {shape!r}")
    if shape in SHAPES:
        return SHAPES[shape]
    near = difflib.get_close_matches(shape.lower(), SHAPES, n=3, cutoff=0.4) or list(SHAPES)
    raise ValueError(
        f"shape must be a Shape or the name of one, such as {', '.join(map(repr, near))}; "
        f"got {shape!r}"
    )
