"""The language model of any shape, to be weighed rather than trained."""

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from helpers._checks import one_of
from helpers.shapes import ATTENTION, Shape


class RMSNorm(nn.Module):
    """Divide by the root of the mean square, in float32 (Zhang and Sennrich 2019, 1910.07467).

    Written out as in Llama's own code and in Transformers: what it keeps counts.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        exact = x.float()
        exact = exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + 1e-6)
        return self.weight * exact.to(x.dtype)


class Attention(nn.Module):
    """Causal attention of a shape; "matrix" holds the scores of all pairs, "fused" does not."""

    def __init__(self, shape: Shape, kind: str) -> None:
        super().__init__()
        self.shape, self.kind = shape, kind
        width, bias = shape.width, shape.family == "gpt2"
        self.widths = (shape.query_width, shape.kv_width, shape.kv_width)
        joined = (sum(self.widths),) if bias else self.widths
        self.query_key_value = nn.ModuleList(nn.Linear(width, size, bias=bias) for size in joined)
        self.out = nn.Linear(shape.query_width, width, bias=bias)

    def forward(self, x: Tensor, *angles: Tensor) -> Tensor:  # noqa: D102
        query, key, value = self._heads(x)
        if angles:
            query, key = _turn(query, *angles), _turn(key, *angles)
        return self.out(self._mix(query, key, value).transpose(1, 2).flatten(-2))

    def _heads(self, x: Tensor) -> list[Tensor]:
        made = [linear(x) for linear in self.query_key_value]
        parts = made[0].split(self.widths, -1) if len(made) == 1 else made
        return [part.unflatten(-1, (-1, self.shape.head_size)).transpose(1, 2) for part in parts]

    def _mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        groups = self.shape.heads // self.shape.kv_heads
        if self.kind == "fused":
            return F.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=groups > 1
            )
        key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        later = torch.full_like(scores[0, 0], -torch.inf).triu(1)  # added, as that keeps nothing
        return torch.softmax(scores + later, -1) @ value


def _angles(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of each position's angles (Su et al. 2021, arXiv 2104.09864)."""
    speeds = 10000.0 ** -(torch.arange(0, size, 2, device=x.device) / size)
    angles = torch.arange(x.shape[1], device=x.device)[:, None] * speeds
    angles = torch.cat((angles, angles), -1)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def _turn(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


class FeedForward(nn.Module):
    """Two layers with a GELU between, or three with a gated SiLU (Shazeer 2020, 2002.05202)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        bias = shape.family == "gpt2"
        self.up = nn.Linear(shape.width, shape.feed, bias=bias)
        self.gate = None if bias else nn.Linear(shape.width, shape.feed, bias=False)
        self.down = nn.Linear(shape.feed, shape.width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if self.gate is None:
            return self.down(F.gelu(self.up(x)))
        return self.down(F.silu(self.gate(x)) * self.up(x))


class DecoderBlock(nn.Module):
    """Attention and feed-forward, each on a normalised copy of the stream."""

    def __init__(self, shape: Shape, attention: str) -> None:
        super().__init__()
        norm = nn.LayerNorm if shape.family == "gpt2" else RMSNorm
        self.attention_norm, self.attention = norm(shape.width), Attention(shape, attention)
        self.feed_norm, self.feed = norm(shape.width), FeedForward(shape)

    def forward(self, x: Tensor, *angles: Tensor) -> Tensor:  # noqa: D102
        x = x + self.attention(self.attention_norm(x), *angles)
        return x + self.feed(self.feed_norm(x))


class Decoder(nn.Module):
    """The language model of a ``Shape``, to weigh rather than to train: its weights are torch's.

    ``forward`` takes token ids and targets of shape (batch, length), int64, and returns the mean
    loss, with the logits in float32 for it, as Transformers does. ``checkpointing`` keeps only the
    input of each block and computes the rest once more (Chen et al. 2016, arXiv 1604.06174).
    ``loss_chunk`` has the logits of so many tokens at a time, and computes them once more.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        attention: str = "fused",
        checkpointing: bool = False,
        loss_chunk: int | None = None,
    ) -> None:
        super().__init__()
        one_of("attention", attention, ATTENTION)
        self.loss_chunk = loss_chunk
        self.checkpointing, self.head_size = checkpointing, shape.head_size
        self.tokens = nn.Embedding(shape.vocab_size, shape.width)
        learned = shape.family == "gpt2"
        self.positions = nn.Embedding(shape.context, shape.width) if learned else None
        self.blocks = nn.ModuleList(DecoderBlock(shape, attention) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width) if learned else RMSNorm(shape.width)
        self.out = nn.Linear(shape.width, shape.vocab_size, bias=False)
        if shape.tied:
            self.out.weight = self.tokens.weight

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the start of the stream, of shape (batch, length, width)."""
        x = self.tokens(tokens)
        if self.positions is None:
            return x
        return x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        x = self.embed(tokens)
        angles = () if self.positions else _angles(x, self.head_size)
        for block in self.blocks:
            if self.checkpointing:
                x = checkpoint(block, x, *angles, use_reentrant=False)
            else:
                x = block(x, *angles)
        targets = targets.flatten()
        if self.loss_chunk is None:
            # The stream under the norm stays until the end, as it does in Transformers.
            return self._sum_of_losses(self.norm(x).flatten(0, 1), targets) / len(targets)
        x = self.norm(x).flatten(0, 1)
        pieces = zip(x.split(self.loss_chunk), targets.split(self.loss_chunk))
        losses = [checkpoint(self._sum_of_losses, *piece, use_reentrant=False) for piece in pieces]
        return sum(losses) / len(targets)

    def _sum_of_losses(self, x: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.out(x).float(), targets, reduction="sum")


class Adapted(nn.Module):
    """A frozen linear layer with a low-rank addition to train (Hu et al. 2021, 2106.09685)."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.base(x) + self.up(self.down(x))


_NAMES = {"query_key_value.0": "q", "query_key_value.1": "k", "query_key_value.2": "v"}


def adapt(model: Decoder, rank: int, matrices: Collection[str] | None = None) -> None:
    """Freeze a model and put an adapter on linear layers of its blocks, by ``Shape.matrix_names``.

    Without names on all of them, as Dettmers et al. 2023 (arXiv 2305.14314) find is needed to match
    full training.
    """
    model.requires_grad_(False)
    for block in model.blocks:
        for part in (block.attention, block.feed):
            for path, linear in list(part.named_modules()):
                if not isinstance(linear, nn.Linear):
                    continue
                parent, _, child = path.rpartition(".")
                name = _NAMES.get(path, child)
                if name == "q" and len(part.query_key_value) == 1:
                    name = "qkv"
                if matrices is None or name in matrices:
                    setattr(part.get_submodule(parent), child, Adapted(linear, rank))
