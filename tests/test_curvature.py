import pytest
import torch

from helpers.curvature import sharpness
from helpers.model import ModelConfig, SmallLM, token_loss
from tests.toys import NoisyQuadratic, as_data, points


def test_sharpness_of_a_known_problem():
    curvature = torch.tensor([0.5, 3.0, 1.0], dtype=torch.float64)
    model = NoisyQuadratic(torch.ones(3).double(), curvature, points(64, 3))
    assert sharpness(model, *as_data(64)) == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("curvature", [(0.1, -2.0), (-0.3, -2.0)])
def test_a_negative_eigenvalue_of_larger_size_does_not_hide_the_largest(curvature):
    curvature = torch.tensor(curvature, dtype=torch.float64)
    model = NoisyQuadratic(torch.zeros(2).double(), curvature, 0.1 * points(64, 2))
    assert sharpness(model, *as_data(64)) == pytest.approx(curvature.max().item(), rel=1e-6)


def test_a_spectrum_that_is_almost_symmetric_is_no_trap():
    """As before training, where power iteration would go back and forth between both ends."""
    curvature = torch.cat([torch.linspace(-1, 1, 96).double() ** 3 * 16, torch.tensor([-16.01])])
    model = NoisyQuadratic(torch.zeros(97).double(), curvature, 0.01 * points(64, 97))
    assert sharpness(model, *as_data(64)) == pytest.approx(16, rel=1e-2)


def test_largest_eigenvalue_of_the_whole_hessian():
    model = SmallLM(ModelConfig(5, 4, 4, 1, 1)).double()
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randint(0, 5, (2, 8, 4), generator=generator)
    with torch.no_grad():
        for part in model.parameters():  # away from the flat start
            part += 0.3 * torch.randn(part.shape, generator=generator).double()
    names, parts = zip(*model.named_parameters())
    flat = torch.cat([part.detach().flatten() for part in parts])

    def loss(weights):
        pieces = weights.split([part.numel() for part in parts])
        named = {name: p.view_as(part) for name, p, part in zip(names, pieces, parts)}
        return token_loss(torch.func.functional_call(model, named, (inputs,)), targets)

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        eigenvalues = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat))
    assert -eigenvalues.min() > eigenvalues.max()  # the largest in size is a negative one
    assert sharpness(model, inputs, targets, iterations=60) == pytest.approx(
        eigenvalues.max().item(), rel=1e-3
    )
    assert all(part.grad is None for part in parts)


def test_a_loss_without_curvature_has_none():
    model = NoisyQuadratic(torch.ones(2).double(), torch.zeros(2).double(), points(8, 2))
    assert sharpness(model, *as_data(8)) == 0


def test_bad_number_of_iterations_is_named():
    model = NoisyQuadratic(torch.ones(2).double(), torch.ones(2).double(), points(8, 2))
    with pytest.raises(ValueError, match="iterations"):
        sharpness(model, *as_data(8), iterations=0)
