"""The small language model: a plain decoder-only transformer."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers._checks import one_of, whole

IGNORED = -100  # the target where nothing is to be predicted, as in torch's cross_entropy


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a ``SmallLM``; raises ``ValueError`` if the heads do not divide the width."""

    vocab_size: int
    context: int
    width: int
    layers: int
    heads: int

    def __post_init__(self) -> None:
        for name in ("vocab_size", "context", "width", "layers", "heads"):
            whole(name, getattr(self, name))
        if self.width % self.heads:
            raise ValueError(f"heads must divide the width of {self.width}; got {self.heads!r}")


class Block(nn.Module):
    """Attention, then a feed-forward of four times the width, each on a normalised copy."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(config.width)
        self.query_key_value = nn.Linear(config.width, 3 * config.width)
        self.attention_out = nn.Linear(config.width, config.width)
        self.feed_norm = nn.LayerNorm(config.width)
        self.feed_up = nn.Linear(config.width, 4 * config.width)
        self.feed_down = nn.Linear(4 * config.width, config.width)

    def attend(self, x: Tensor) -> Tensor:
        """Let each position look at itself and those before it; (B, T, width) to the same."""
        heads = self.query_key_value(x).unflatten(-1, (3, self.heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.attention_out(mixed.transpose(1, 2).flatten(-2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.attention_norm(x))
        return x + self.feed_down(F.gelu(self.feed_up(self.feed_norm(x))))


class SmallLM(nn.Module):
    """A decoder-only transformer with pre-norm blocks and tied embeddings (Radford et al. 2019).

    ``forward`` takes token ids of shape (batch, length), int64, with a length of at most
    ``config.context``, and returns logits of shape (batch, length, vocab_size).

    The first weights depend on ``config`` and ``seed`` alone, so that two runs can be compared from
    the same start.
    """

    def __init__(self, config: ModelConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.width)
        self.position_embedding = nn.Embedding(config.context, config.width)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.final_norm = nn.LayerNorm(config.width)
        self._initialise(torch.Generator().manual_seed(seed))

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # What is added to the stream starts smaller in a deeper model, as in GPT-2.
                into_stream = name.endswith(("attention_out.weight", "feed_down.weight"))
                spread = 0.02 / (2 * self.config.layers) ** 0.5 if into_stream else 0.02
                parameter.normal_(0, spread, generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[-1]
        if length > self.config.context:
            raise ValueError(
                f"tokens must be at most {self.config.context} long (the context); got {length}"
            )
        x = self.token_embedding(tokens) + self.position_embedding.weight[:length]
        return F.linear(self.final_norm(self.blocks(x)), self.token_embedding.weight)


def token_loss(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Return the cross-entropy of the targets that are not −100, in nats.

    ``logits`` has shape (..., vocab_size), ``targets`` (...) with int64 token ids. ``reduction``
    "mean" divides by the number of targets (not of positions), "sum" adds, and "none" returns the
    shape of ``targets`` with 0 where nothing is to be predicted. The mean over no target at all is
    NaN; ``train`` and ``gradients`` refuse such an update.

    Raises ``ValueError`` if the shapes differ or the reduction is unknown.
    """
    one_of("reduction", reduction, ("mean", "sum", "none"))
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"targets must have the shape of logits without its last axis, "
            f"{tuple(logits.shape[:-1])}; got {tuple(targets.shape)}"
        )
    flat = F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction=reduction
    )
    return flat.view(targets.shape) if reduction == "none" else flat
