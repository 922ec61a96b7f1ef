"""How sharply the loss bends: what limits the learning rate."""

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from helpers._checks import whole
from helpers.model import token_loss


def sharpness(
    model: nn.Module, inputs: Tensor, targets: Tensor, *, iterations: int = 30, seed: int = 0
) -> float:
    """Return the largest eigenvalue of the Hessian of the mean token loss of one batch.

    Gradient descent at a rate above 2 ÷ sharpness overshoots further with every update along the
    direction that bends most. The eigenvalue is the one of largest size, found by power iteration
    on Hessian-vector products, each of them one more backward pass (Pearlmutter 1994); its sign is
    kept, and it comes from below, so that a few iterations give a little less. ``inputs`` and
    ``targets`` are int64 of shape (examples, length). Gradients in ``.grad`` are left alone.

    Raises ``ValueError`` for less than one iteration.
    """
    whole("iterations", iterations)
    parameters = [part for part in model.parameters() if part.requires_grad]
    # Only the plain attention can be differentiated twice.
    with sdpa_kernel(SDPBackend.MATH):
        loss = token_loss(model(inputs), targets)
        gradient = torch.autograd.grad(loss, parameters, create_graph=True)
    generator = torch.Generator().manual_seed(whole("seed", seed, at_least=0))
    direction = [
        torch.randn(part.shape, generator=generator, dtype=part.dtype).to(part.device)
        for part in parameters
    ]
    value = 0.0
    for _ in range(iterations):
        norm = torch.stack([part.square().sum() for part in direction]).sum().sqrt()
        if norm == 0:
            return 0.0
        direction = [part / norm for part in direction]
        along = sum((a * b).sum() for a, b in zip(gradient, direction))
        product = torch.autograd.grad(along, parameters, retain_graph=True, materialize_grads=True)
        value = sum((a * b).sum() for a, b in zip(product, direction)).item()
        direction = list(product)
    return value
