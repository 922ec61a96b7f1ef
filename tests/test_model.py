import math
from pathlib import Path

import pytest
import torch

from helpers import model as module
from helpers.model import ModelConfig, SmallLM, token_loss

CONFIG = ModelConfig(vocab_size=11, context=8, width=12, layers=2, heads=3)


def test_parameters_are_counted_by_hand():
    width, block = 12, 12 * 12 * 12 + (3 + 1 + 4 + 1) * 12 + 4 * 12  # weights, biases, two norms
    expected = 11 * width + 8 * width + 2 * block + 2 * width
    assert sum(parameter.numel() for parameter in SmallLM(CONFIG).parameters()) == expected


def test_a_later_token_never_changes_an_earlier_prediction():
    model = SmallLM(CONFIG).double()
    tokens = torch.randint(11, (3, 8))
    before = model(tokens)
    for position in range(1, 8):
        changed = tokens.clone()
        changed[:, position:] = (changed[:, position:] + 1) % 11
        after = model(changed)
        assert torch.allclose(after[:, :position], before[:, :position], atol=1e-14)
        assert not torch.allclose(after[:, position], before[:, position])


def test_attention_does_look_back():
    model = SmallLM(CONFIG).double()
    tokens = torch.zeros(1, 8, dtype=torch.int64)
    other = tokens.clone()
    other[0, 0] = 1
    assert not torch.equal(model(tokens)[0, -1], model(other)[0, -1])


def test_first_loss_is_that_of_guessing():
    model = SmallLM(ModelConfig(103, 32, 32, 1, 2))
    tokens = torch.randint(103, (64, 33))
    loss = token_loss(model(tokens[:, :-1]), tokens[:, 1:])
    assert loss.item() == pytest.approx(math.log(103), abs=0.1)


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = SmallLM(CONFIG)
    torch.manual_seed(2)
    again, other = SmallLM(CONFIG), SmallLM(CONFIG, seed=1)
    assert all(map(torch.equal, first.parameters(), again.parameters()))
    assert not torch.equal(first.token_embedding.weight, other.token_embedding.weight)


def test_embeddings_are_tied():
    model = SmallLM(CONFIG)
    names = [name for name, weight in model.named_parameters() if weight.shape[0] == 11]
    assert names == ["token_embedding.weight"]


@pytest.mark.parametrize(
    ("change", "words"),
    [({"heads": 5}, "heads must divide"), ({"width": 0}, "width"), ({"layers": 1.5}, "layers")],
)
def test_bad_shape_is_named(change, words):
    shape = {"vocab_size": 11, "context": 8, "width": 12, "layers": 2, "heads": 3} | change
    with pytest.raises((ValueError, TypeError), match=words):
        ModelConfig(**shape)


def test_too_long_an_input_is_named():
    with pytest.raises(ValueError, match=r"at most 8 long.*got 9"):
        SmallLM(CONFIG)(torch.zeros(1, 9, dtype=torch.int64))


def test_loss_by_hand():
    logits = torch.randn(2, 3, 5, dtype=torch.float64)
    targets = torch.tensor([[0, 4, -100], [2, -100, -100]])
    each = torch.zeros(2, 3, dtype=torch.float64)
    for row, column in ((0, 0), (0, 1), (1, 0)):
        scores = logits[row, column]
        each[row, column] = scores.exp().sum().log() - scores[targets[row, column]]
    assert torch.allclose(token_loss(logits, targets, "none"), each)
    assert torch.allclose(token_loss(logits, targets, "sum"), each.sum())
    assert torch.allclose(token_loss(logits, targets), each.sum() / 3)


def test_sum_over_no_target_is_zero_and_mean_is_none():
    logits, targets = torch.randn(1, 2, 5), torch.full((1, 2), -100)
    assert token_loss(logits, targets, "sum") == 0
    assert token_loss(logits, targets).isnan()


def test_bad_loss_is_named():
    logits, targets = torch.randn(2, 3, 5), torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"\(2, 3\); got \(3,\)"):
        token_loss(logits, targets[0])
    with pytest.raises(ValueError, match="reduction must be one of"):
        token_loss(logits, targets, "average")


def test_model_can_be_read_on_one_screen():
    lines = Path(module.__file__).read_text("utf-8").splitlines()
    assert len(lines) <= 130
