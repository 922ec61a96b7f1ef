import gc

import pytest
import torch
from torch import nn

from helpers.accumulate import gradients
from helpers.memory import peak_of_saved_tensors
from helpers.model import ModelConfig, SmallLM, token_loss

TOKENS = torch.randint(11, (16, 9), generator=torch.Generator().manual_seed(0))


def test_bytes_by_hand():
    first, second = nn.Linear(4, 8, bias=False), nn.Linear(8, 2, bias=False)
    model, x = nn.Sequential(first, nn.ReLU(), second), torch.randn(3, 4)
    peak = peak_of_saved_tensors(lambda: model(x).sum().backward(), model)
    # the input of each layer; ReLU keeps its output, which is the input of the second
    assert peak == 4 * (3 * 4 + 3 * 8)


def test_what_a_backward_pass_has_used_is_let_go():
    model, x = nn.Linear(4, 8, bias=False), torch.randn(3, 4)

    def twice():
        for _ in range(2):
            model(x.clone()).square().sum().backward()

    def both_first():
        sum(model(x.clone()).square().sum() for _ in range(2)).backward()

    once = peak_of_saved_tensors(lambda: model(x.clone()).square().sum().backward(), model)
    assert peak_of_saved_tensors(twice, model) == once
    assert peak_of_saved_tensors(both_first, model) == 2 * once


@pytest.mark.parametrize("pieces", [2, 4, 8])
def test_accumulation_keeps_one_micro_batch_and_summing_losses_keeps_all(pieces):
    model = SmallLM(ModelConfig(11, 8, 16, 2, 2))
    cut = [(part[:, :-1], part[:, 1:]) for part in TOKENS.chunk(pieces)]
    whole = peak_of_saved_tensors(
        lambda: gradients(model, [(TOKENS[:, :-1], TOKENS[:, 1:])]), model
    )
    part = peak_of_saved_tensors(lambda: gradients(model, cut), model)

    def sum_first():
        sum(token_loss(model(x), y, "sum") for x, y in cut).backward()

    assert part == pytest.approx(whole / pieces, rel=0.02)
    assert peak_of_saved_tensors(sum_first, model) == pytest.approx(whole, rel=0.02)


def test_nothing_stays_alive():
    model, x = nn.Linear(4, 8), torch.randn(3, 4)
    peak_of_saved_tensors(lambda: model(x).sum().backward(), model)
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one).__name__ == "_Kept"]
