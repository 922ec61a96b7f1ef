"""How sharply the loss bends: what limits the learning rate."""

from collections.abc import Callable

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
    direction that bends most. Power iteration on Hessian-vector products, each of them one more
    backward pass (Pearlmutter 1994), finds the eigenvalue of largest size. If that is a negative
    one, as is common before training, a second round on the Hessian shifted by it finds the
    largest. The value comes from below, so that a few iterations give a little less. ``inputs`` and
    ``targets`` are int64 of shape (examples, length). Gradients in ``.grad`` are left alone.

    Raises ``ValueError`` for less than one iteration.
    """
    whole("iterations", iterations)
    generator = torch.Generator().manual_seed(whole("seed", seed, at_least=0))
    parameters = [part for part in model.parameters() if part.requires_grad]
    # Only the plain attention can be differentiated twice.
    with sdpa_kernel(SDPBackend.MATH):
        loss = token_loss(model(inputs), targets)
        gradients = torch.autograd.grad(loss, parameters, create_graph=True)
    gradient = torch.cat([part.flatten() for part in gradients])

    def times_hessian(direction: Tensor) -> Tensor:
        products = torch.autograd.grad(
            gradient @ direction, parameters, retain_graph=True, materialize_grads=True
        )
        return torch.cat([part.flatten() for part in products])

    start = torch.randn(len(gradient), generator=generator, dtype=gradient.dtype)
    start = start.to(gradient.device)
    value = _dominant_eigenvalue(times_hessian, start, iterations)
    if value >= 0:
        return value
    return value + _dominant_eigenvalue(lambda v: times_hessian(v) - value * v, start, iterations)


def _dominant_eigenvalue(
    multiply: Callable[[Tensor], Tensor], direction: Tensor, iterations: int
) -> float:
    """Return the eigenvalue of largest size of a symmetric matrix, by power iteration."""
    value = 0.0
    for _ in range(iterations):
        norm = torch.linalg.vector_norm(direction)
        if norm == 0:
            return 0.0
        direction = direction / norm
        product = multiply(direction)
        value = (direction @ product).item()
        direction = product
    return value
