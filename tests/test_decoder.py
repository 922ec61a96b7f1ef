import copy
import dataclasses

import pytest
import torch
from torch import nn

from helpers.decoder import Adapted, Decoder, RMSNorm, adapt
from helpers.memory import peak_of_saved_tensors
from helpers.shapes import Shape

SHAPES = {
    "gpt2": Shape(13, 8, 16, 2, 2),
    "llama": Shape(13, 8, 16, 2, 4, kv_heads=2, feed=24, family="llama"),
}
TOKENS = torch.randint(13, (3, 8), generator=torch.Generator().manual_seed(0))


def build(shape, **how):
    torch.manual_seed(0)
    return Decoder(shape, **how)


def gradients(model):
    model.zero_grad()
    model(TOKENS, TOKENS).backward()
    return [part.grad for part in model.parameters() if part.requires_grad]


@pytest.mark.parametrize("family", SHAPES)
def test_it_has_the_tensors_of_its_shape(family):
    shape = SHAPES[family]
    tensors = sorted([*shape.outer_tensors, *shape.block_tensors * shape.layers])
    assert sorted(part.numel() for part in build(shape).parameters()) == tensors


@pytest.mark.parametrize("family", SHAPES)
def test_both_kinds_of_attention_compute_the_same(family):
    fused, matrix = (build(SHAPES[family], attention=kind) for kind in ("fused", "matrix"))
    for one, other in zip(gradients(fused), gradients(matrix)):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("family", SHAPES)
def test_checkpointing_changes_no_gradient_and_keeps_less(family):
    shape = dataclasses.replace(SHAPES[family], layers=4)
    plain, frugal = build(shape), build(shape, checkpointing=True)
    for one, other in zip(gradients(plain), gradients(frugal)):
        assert torch.equal(one, other)

    def kept(model):
        return peak_of_saved_tensors(lambda: model(TOKENS, TOKENS), model)

    assert kept(frugal) < 0.5 * kept(plain)


@pytest.mark.parametrize("family", SHAPES)
def test_no_position_sees_a_later_one(family):
    model, changed = build(SHAPES[family]), TOKENS.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 13
    seen = []
    model.norm.register_forward_hook(lambda _, __, output: seen.append(output))
    model(TOKENS, TOKENS), model(changed, TOKENS)
    assert torch.equal(seen[0][:, :-1], seen[1][:, :-1])
    assert not torch.equal(seen[0][:, -1], seen[1][:, -1])


def test_rms_norm_is_its_formula():
    x = torch.tensor([[3.0, 4.0]])  # mean square 12.5
    assert torch.allclose(RMSNorm(2)(x), x / 12.5**0.5)
    assert RMSNorm(2).bfloat16()(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("family", SHAPES)
def test_adapters_train_alone_and_start_on_every_matrix(family):
    model = build(SHAPES[family])
    adapt(model, 2)
    trained = [part for part in model.parameters() if part.requires_grad]
    matrices = SHAPES[family].block_matrices * SHAPES[family].layers
    assert sum(part.numel() for part in trained) == sum(
        2 * (out + inner) for out, inner in matrices
    )
    assert all(gradient is not None for gradient in gradients(model))
    assert sum(isinstance(part, Adapted) for part in model.modules()) == len(matrices)


def test_an_adapter_adds_a_product_of_low_rank():
    base = nn.Linear(5, 4)
    adapted, x = Adapted(copy.deepcopy(base), 2), torch.randn(3, 5)
    added = x @ (adapted.up.weight @ adapted.down.weight).T
    assert torch.allclose(adapted(x), base(x) + added, atol=1e-6)


def test_unknown_attention_is_refused():
    with pytest.raises(ValueError, match="attention must be one of 'fused', 'matrix'; got 'flash'"):
        Decoder(SHAPES["gpt2"], attention="flash")
