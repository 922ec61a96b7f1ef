"""What a model answers: the likeliest token after the likeliest token, until the line ends."""

from collections.abc import Sequence

import torch
from torch import nn

from helpers._checks import whole
from helpers.data import CharTokenizer


@torch.inference_mode()
def answer(
    model: nn.Module, prompts: Sequence[str], tokenizer: CharTokenizer, *, most: int = 16
) -> list[str]:
    """Return the answer to each prompt, without the line's end, of ``most`` tokens or fewer.

    An answer also ends where the model's context is full. The model is left in the mode it was in.

    Raises ``ValueError`` for an empty prompt, and for one that leaves no room in the context.
    """
    whole("most", most)
    context, device = model.config.context, next(model.parameters()).device
    coded = [tokenizer.encode(prompt) for prompt in prompts]
    lengths = torch.tensor([len(tokens) for tokens in coded])
    if not ((lengths > 0) & (lengths < context)).all():
        wrong = next(prompt for prompt, n in zip(prompts, lengths) if not 0 < n < context)
        raise ValueError(
            f"prompts must have 1 to {context - 1} tokens, below the model's context; got {wrong!r}"
        )
    width = min(int(lengths.max()) + most, context)
    tokens = torch.zeros(len(coded), width, dtype=torch.int64)  # what is not written yet is 0
    for row, prompt in enumerate(coded):
        tokens[row, : len(prompt)] = prompt
    tokens, lengths = tokens.to(device), lengths.to(device)
    was_training = model.training
    model.eval()
    rows = torch.arange(len(coded), device=device)
    for written in range(most):
        ends = (lengths + written).clamp(max=width - 1)
        # Attention looks back only, so what stands after an end changes nothing before it.
        tokens[rows, ends] = model(tokens)[rows, ends - 1].argmax(-1)
    model.train(was_training)
    return [
        tokenizer.decode(row[length : length + most]).partition("\n")[0]
        for row, length in zip(tokens.cpu(), lengths.tolist())
    ]
