import copy
import dataclasses

import pytest
import torch
from torch import nn

from helpers.decoder import Adapted, Attention, Decoder, DecoderBlock, RMSNorm, adapt
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


class Dropout(nn.Module):
    """A dropout that keeps a mask of one byte a number, on a CPU as on a GPU."""

    def forward(self, x):
        return torch.native_dropout(x, 0.1, True)[0]


@pytest.mark.parametrize("family", SHAPES)
def test_checkpointing_draws_the_same_dropout_twice(family):
    def found(checkpointing):
        model = build(SHAPES[family], checkpointing=checkpointing)
        for block in model.blocks:
            block.feed.down = nn.Sequential(block.feed.down, Dropout())
        torch.manual_seed(1)
        return gradients(model)

    assert all(torch.equal(one, other) for one, other in zip(found(False), found(True)))


class DroppingAttention(Attention):
    """Attention whose scores are dropped out, as in Korthikanti et al."""

    def _mix(self, query, key, value):
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        return Dropout()(torch.softmax(scores, -1)) @ value


def test_a_layer_keeps_what_korthikanti_says():
    """s·b·h·(34 + 5·a·s/h) bytes in 16 bits with dropout; arXiv 2205.05198, equation 2."""
    s, b, h, a = 32, 2, 64, 4
    shape = Shape(13, s, h, 1, a)
    block = DecoderBlock(shape, "matrix")
    block.attention = DroppingAttention(shape, "matrix")
    block.attention.out = nn.Sequential(block.attention.out, Dropout())
    block.feed.down = nn.Sequential(block.feed.down, Dropout())
    block.bfloat16()
    x = torch.randn(b, s, h, dtype=torch.bfloat16, requires_grad=True)
    kept = peak_of_saved_tensors(lambda: block(x).sum().backward(), block)
    expected = s * b * (34 * h + 5 * a * s)
    assert expected <= kept <= expected + 2 * 2 * 4 * s * b  # and what each norm keeps of a token
