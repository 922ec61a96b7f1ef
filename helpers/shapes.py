"""The sizes of well-known language models, as data. Nothing here imports torch."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helpers._checks import one_of, whole

FAMILIES = ("gpt2", "llama")
ATTENTION = ("fused", "matrix")
MATRICES = {
    "gpt2": ("qkv", "out", "up", "down"),
    "llama": ("q", "k", "v", "out", "up", "gate", "down"),
}


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
    head_size
        Width of one head. ``width`` ÷ ``heads`` if not given, and some models have it otherwise.
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
    head_size: int | None = None

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
        if self.head_size is None:
            if self.width % self.heads:
                raise ValueError(f"heads must divide the width of {self.width}; got {self.heads}")
            object.__setattr__(self, "head_size", self.width // self.heads)
        whole("head_size", self.head_size)
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads must divide the {self.heads} heads; got {self.kv_heads}")
        if self.family == "llama" and self.head_size % 2:
            raise ValueError(
                f"width ÷ heads must be even, as rotary positions turn pairs; got "
                f"{self.width} ÷ {self.heads}, and a head of {self.head_size}"
            )

    @property
    def kv_width(self) -> int:
        """Width of all keys (or values) of a token."""
        return self.head_size * self.kv_heads

    @property
    def query_width(self) -> int:
        """Width of all queries of a token, and of what attention mixes for it."""
        return self.head_size * self.heads

    @property
    def matrix_names(self) -> tuple[str, ...]:
        """The name of each weight matrix of a block."""
        return MATRICES[self.family]

    @property
    def block_matrices(self) -> tuple[tuple[int, int], ...]:
        """The (out, in) of each weight matrix of a block."""
        h, f, q, kv = self.width, self.feed, self.query_width, self.kv_width
        if self.family == "gpt2":
            return (q + 2 * kv, h), (h, q), (f, h), (h, f)
        return (q, h), (kv, h), (kv, h), (h, q), (f, h), (f, h), (h, f)

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


# The names that the sizes have in configurations of Transformers.
_KEYS = {
    "vocab_size": ("vocab_size",),
    "context": ("max_position_embeddings", "n_positions", "n_ctx"),
    "width": ("hidden_size", "n_embd"),
    "layers": ("num_hidden_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "feed": ("intermediate_size", "n_inner"),
    "head_size": ("head_dim",),
}
_NEEDED = ("vocab_size", "context", "width", "layers", "heads")
# What some kinds tie where their configuration is silent.
_TIED = ("gpt2", "gpt_bigcode", "gemma", "gemma2", "gemma3_text", "cohere", "cohere2")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_OTHERWISE = ("kv_lora_rank", "ssm_cfg", "state_size", "encoder_layers", "d_model", "new_decoder")


def shape_from_config(config: Mapping[str, Any]) -> Shape:
    """Return the shape of a dense decoder from what its ``config.json`` holds, as a dict.

    The family "gpt2" is for learned positions and LayerNorm (``n_positions``), "llama" for RMS norm
    and a gated feed-forward part (``rms_norm_eps``), as in Llama, Mistral, Qwen, Gemma, Phi-3 and
    many others. Biases of single layers and further norms, a few numbers in a hundred thousand, are
    left out. Of a model with pictures or sound as well it is the text part.

    Raises ``ValueError`` for another architecture, such as a mixture of experts, an encoder or a
    state-space model, and for sizes that are missing or cannot be; ``TypeError`` for no dict.

    >>> sizes = {"vocab_size": 11, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}
    >>> shape_from_config({"model_type": "gpt2", **sizes}).parameters
    6896
    """
    if not isinstance(config, Mapping):
        raise TypeError(f"config must be the dict of a config.json; got {config!r}")
    if isinstance(config.get("text_config"), Mapping):
        config = {**config["text_config"]}
    kind = config.get("model_type", "its kind is not said")
    odd = [name for name in (*_EXPERTS, *_OTHERWISE) if config.get(name)]
    learned = "n_positions" in config or "n_ctx" in config
    gated = any(name in config for name in ("rms_norm_eps", "rms_norm_epsilon"))
    if odd or config.get("is_encoder_decoder") or learned == gated:
        why = f"{odd[0]} is set" if odd else "neither learned positions nor an RMS norm is"
        raise ValueError(
            f"config must be of a dense decoder like GPT-2 or Llama; got {kind!r}, where {why}"
        )
    sizes = {
        name: next((config[key] for key in keys if config.get(key) is not None), None)
        for name, keys in _KEYS.items()
    }
    missing = [_KEYS[name][0] for name in _NEEDED if sizes[name] is None]
    if missing:
        raise ValueError(f"config must hold {', '.join(missing)}; got {sorted(config)}")
    if config.get("multi_query"):
        sizes["kv_heads"] = 1
    return Shape(
        **sizes,
        family="llama" if gated else "gpt2",
        tied=config.get("tie_word_embeddings", kind in _TIED),
        source=f"a configuration of the kind {kind!r}",
    )


def find_shape(shape: Any) -> Shape:  # noqa: ANN401
    """Return a ``Shape`` by its name in ``SHAPES``, from a model's configuration, or as it is.

    Raises ``ValueError`` for an unknown name, with those that are near it, and ``TypeError`` for
    anything else.
    """
    if isinstance(shape, Shape):
        return shape
    if isinstance(shape, Mapping):
        return shape_from_config(shape)
    if not isinstance(shape, str):
        raise TypeError(f"shape must be a Shape or the name of one; got {shape!r}")
    if shape in SHAPES:
        return SHAPES[shape]
    near = difflib.get_close_matches(shape.lower(), SHAPES, n=3, cutoff=0.4) or list(SHAPES)
    raise ValueError(
        f"shape must be a Shape or the name of one, such as {', '.join(map(repr, near))}; "
        f"got {shape!r}"
    )
