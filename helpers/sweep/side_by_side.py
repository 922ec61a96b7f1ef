"""The forward pass of many small language models at once, each with weights of its own.

``torch.func.vmap`` does this for any model, but it has no rule for the fused attention of the CPU,
and it goes through every operation in Python. Here all models share one batched matrix product for
each linear layer, and attention takes their examples as one large batch.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.model import ModelConfig


def logits_of_all(config: ModelConfig, weights: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
    """Return the logits of many ``SmallLM`` s of one shape, each for its own tokens.

    ``weights`` has the names of a ``SmallLM``'s parameters, each of shape (models, ...), and
    ``tokens`` the shape (models, batch, length); the logits have a last axis of ``vocab_size``
    more. They are those of ``SmallLM.forward``, up to rounding.
    """
    models, batch, length = tokens.shape

    def norm(x: Tensor, name: str) -> Tensor:
        scale, shift = (weights[f"{name}.{part}"].unsqueeze(1) for part in ("weight", "bias"))
        return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:]), scale)

    def linear(x: Tensor, name: str) -> Tensor:
        bias = weights[f"{name}.bias"].unsqueeze(1)
        return torch.baddbmm(bias, x, weights[f"{name}.weight"].mT)

    def attend(x: Tensor, name: str) -> Tensor:
        together = linear(x, f"{name}.query_key_value")
        heads = together.view(models * batch, length, 3, config.heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return linear(mixed.transpose(1, 2).reshape(x.shape), f"{name}.attention_out")

    def feed(x: Tensor, name: str) -> Tensor:
        return linear(F.gelu(linear(x, f"{name}.feed_up")), f"{name}.feed_down")

    embedding = weights["token_embedding.weight"]
    # One table of all models; the tokens of each begin where its own part does.
    first = torch.arange(models, device=tokens.device).view(-1, 1, 1) * config.vocab_size
    x = F.embedding(tokens + first, embedding.flatten(0, 1))
    x = x + weights["position_embedding.weight"][:, None, :length]
    x = x.flatten(1, 2)  # (models, batch * length, width)
    for layer in range(config.layers):
        block = f"blocks.{layer}"
        x = x + attend(norm(x, f"{block}.attention_norm"), block)
        x = x + feed(norm(x, f"{block}.feed_norm"), block)
    logits = torch.bmm(norm(x, "final_norm"), embedding.mT)
    return logits.view(*tokens.shape, -1)
