"""Problems whose answer is known on paper, in the shape of a language model."""

import torch
from torch import nn


class NoisyQuadratic(nn.Module):
    """A model whose token loss is ½ Σ h (w - x)² + 1, where an example is the number of one x.

    It returns the logits of two classes, so that the cross-entropy of class 0 is that loss. With
    x of mean 0 and variance s², the expected gradient at w is h·w and one example's noise h·s.
    """

    def __init__(self, start, curvature, points):
        super().__init__()
        self.weights = nn.Parameter(start.clone())
        self.register_buffer("curvature", curvature)
        self.register_buffer("points", points)

    def forward(self, tokens):
        away = self.weights - self.points[tokens]
        loss = (0.5 * self.curvature * away.square()).sum(-1) + 1
        return torch.stack([-loss, torch.log1p(-torch.exp(-loss))], -1)


def points(count, dimensions, *, spread=1.0, seed=0):
    """Return numbers with a mean of exactly 0 and a standard deviation of exactly ``spread``."""
    drawn = torch.randn(
        count, dimensions, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    drawn -= drawn.mean(0)
    return drawn / drawn.std(0, correction=0) * spread


def as_data(count):
    """Return (inputs, targets) in which each example is the number of one point."""
    return torch.arange(count)[:, None], torch.zeros(count, 1, dtype=torch.int64)
