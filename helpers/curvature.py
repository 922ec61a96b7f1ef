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
    direction that bends most. Lanczos's method (1950) on Hessian-vector products, each of them one
    more backward pass (Pearlmutter 1994), finds it also where the most negative eigenvalue is as
    large, as before training. The value comes from below, so that very few iterations give less.
    ``inputs`` and ``targets`` are int64 of shape (examples, length). Gradients in ``.grad`` stay as
    they are.

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
    return _largest_eigenvalue(times_hessian, start.to(gradient.device), iterations)


def _largest_eigenvalue(
    multiply: Callable[[Tensor], Tensor], start: Tensor, iterations: int
) -> float:
    """Return the largest eigenvalue of a symmetric matrix on the space that a start spans with it.

    Each direction is made orthogonal to all before it, twice, so that rounding finds none again.
    """
    basis = [start / start.norm()]
    diagonal, beside = [], []
    for _ in range(min(iterations, len(start))):
        product = multiply(basis[-1])
        scale = product.norm()
        diagonal.append((product @ basis[-1]).item())
        known = torch.stack(basis)
        for _ in range(2):
            product = product - known.T @ (known @ product)
        size = product.norm()
        if size <= 1e-5 * scale:
            break
        beside.append(size.item())
        basis.append(product / size)
    count = len(diagonal)
    band = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if count > 1:
        sides = torch.diag(torch.tensor(beside[: count - 1], dtype=torch.float64), 1)
        band = band + sides + sides.T
    return torch.linalg.eigvalsh(band)[-1].item()
