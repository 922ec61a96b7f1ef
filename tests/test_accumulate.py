from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.accumulate import backward, gradients, relative_difference
from helpers.data import CharTokenizer, collate, make_records
from helpers.model import ModelConfig, SmallLM

RECORDS = make_records(24)
TOKENIZER = CharTokenizer("".join(record.text for record in RECORDS))
INPUTS, TARGETS = collate(RECORDS, TOKENIZER)
CONFIG = ModelConfig(TOKENIZER.vocab_size, INPUTS.shape[1], 8, 1, 2)


class Table(nn.Module):
    """The logits of every input token, straight from a table: losses can be set by hand."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits, dtype=torch.float64))

    def forward(self, tokens):
        return self.logits[tokens]


def plain_gradient(model, inputs, targets):
    """Take the gradient of the mean over all targets by hand, with nothing of ours."""
    log_probabilities = model(inputs).log_softmax(-1)
    rows = targets != -100
    loss = -log_probabilities[rows].gather(1, targets[rows][:, None]).mean()
    names = [name for name, _ in model.named_parameters()]
    parts = torch.autograd.grad(loss, list(model.parameters()))
    return loss.item(), dict(zip(names, parts))


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_split_gives_the_whole_gradient(draw):
    model = SmallLM(CONFIG, seed=draw.draw(st.integers(0, 3))).double()
    rows = draw.draw(st.lists(st.integers(0, 23), min_size=1, max_size=12))
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    inputs, targets = INPUTS[rows], TARGETS[rows].clone()
    silent = draw.draw(st.lists(st.integers(0, len(rows) - 1), max_size=len(rows) - 1))
    targets[silent] = -100
    if (targets == -100).all():
        return
    bounds = [0, *cuts, len(rows)]
    pieces = [(inputs[a:b], targets[a:b]) for a, b in pairwise(bounds) if b > a]
    loss, expected = plain_gradient(model, inputs, targets)
    assert relative_difference(gradients(model, pieces), expected) < 1e-12
    total, count = backward(model, pieces)
    assert total.item() == pytest.approx(loss, rel=1e-12)
    assert count == int((targets != -100).sum())


def two_and_eight():
    """Two micro-batches: 2 targets with a loss of 4 each, and 8 with a loss of 1 each."""
    # With the logits 0 and x, the loss of target 0 is ln(1 + eˣ).
    first, second = (torch.tensor(loss).exp().sub(1).log().item() for loss in (4.0, 1.0))
    model = Table([[0.0, first], [0.0, second]])
    return model, [
        (torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.int64)),
        (torch.ones(1, 8, dtype=torch.int64), torch.zeros(1, 8, dtype=torch.int64)),
    ]


def test_mean_of_means_is_another_number():
    # transformers 34191: (4 + 1) ÷ 2 in place of (2 · 4 + 8 · 1) ÷ 10
    model, pieces = two_and_eight()
    assert backward(model, pieces)[0].item() == pytest.approx(1.6, rel=1e-6)
    assert backward(model, pieces, normalize="batches")[0].item() == pytest.approx(2.5, rel=1e-6)


def test_say_of_a_target_under_both_rules():
    model, pieces = two_and_eight()
    by_tokens = gradients(model, pieces)["logits"]
    by_batches = gradients(model, pieces, normalize="batches")["logits"]
    # 2 of 10 targets against 1 of 2 means, 8 of 10 against 1 of 2
    assert (by_batches[0] / by_tokens[0]).tolist() == pytest.approx([2.5, 2.5])
    assert (by_batches[1] / by_tokens[1]).tolist() == pytest.approx([0.625, 0.625])


def test_equal_counts_hide_the_difference():
    model = SmallLM(CONFIG).double()
    targets = INPUTS.roll(-1, 1)
    pieces = list(zip(INPUTS.split(4), targets.split(4)))
    tokens, batches = gradients(model, pieces), gradients(model, pieces, normalize="batches")
    assert relative_difference(batches, tokens) < 1e-13


def test_masked_answer_does_not_enlarge_the_divisor():
    # miles 2796: 4 targets and a fully masked answer, divided by 5
    model = SmallLM(CONFIG).double()
    targets = torch.full((2, INPUTS.shape[1]), -100)
    targets[0, :4] = 1
    both = [(INPUTS[:1], targets[:1]), (INPUTS[1:2], targets[1:])]
    _, expected = plain_gradient(model, INPUTS[:1], targets[:1])
    for pieces in (both, both[::-1], [(INPUTS[:2], targets)]):
        assert relative_difference(gradients(model, pieces), expected) < 1e-13
    assert backward(model, both)[1] == 4


def test_a_dropped_micro_batch_leaves_the_divisor_too():
    # prime-rl 1961
    model = SmallLM(CONFIG).double()
    pieces = list(zip(INPUTS.split(6), TARGETS.split(6)))
    _, expected = plain_gradient(model, INPUTS[6:], TARGETS[6:])
    assert relative_difference(gradients(model, pieces[1:]), expected) < 1e-13


@pytest.mark.parametrize("pieces", [2, 4, 32])
def test_first_loss_does_not_depend_on_the_split(pieces):
    # LlamaFactory 7443: 6.4, 13.7 and 138 for the same data
    inputs, targets = INPUTS.repeat(6, 1)[:128], TARGETS.repeat(6, 1)[:128]
    model = SmallLM(CONFIG)
    cut = list(zip(inputs.split(128 // pieces), targets.split(128 // pieces)))
    loss = backward(model, cut)[0].item()
    assert loss == pytest.approx(torch.tensor(CONFIG.vocab_size).log().item(), abs=0.1)
    assert loss == pytest.approx(backward(model, [(inputs, targets)])[0].item(), rel=1e-5)


@pytest.mark.parametrize(
    "pieces", [[], [(INPUTS[:2], torch.full_like(INPUTS[:2], -100))]], ids=["none", "silent"]
)
def test_no_target_is_refused_before_anything_changes(pieces):
    model = SmallLM(CONFIG)
    with pytest.raises(ValueError, match="micro_batches must hold a target"):
        backward(model, pieces)
    assert all(weight.grad is None for weight in model.parameters())


def test_unknown_rule_and_different_shapes_are_named():
    model = SmallLM(CONFIG)
    with pytest.raises(ValueError, match="normalize must be one of 'tokens', 'batches'"):
        gradients(model, [(INPUTS, TARGETS)], normalize="examples")
    with pytest.raises(ValueError, match="targets must have the shape"):
        gradients(model, [(INPUTS, TARGETS[:, 1:])])


def test_gradients_neither_see_nor_leave_a_grad():
    model = SmallLM(CONFIG).double()
    clean = gradients(model, [(INPUTS, TARGETS)])
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    assert relative_difference(gradients(model, [(INPUTS, TARGETS)]), clean) == 0
    assert all(weight.grad is None for weight in model.parameters())


def test_clipping_is_once_and_after_the_last():
    model = SmallLM(CONFIG).double()
    pieces = list(zip(INPUTS.split(6), TARGETS.split(6)))
    whole = gradients(model, pieces)
    length = torch.stack([part.norm() for part in whole.values()]).norm()
    clipped = gradients(model, pieces, clip=length.item() / 3)
    third = {name: part / 3 for name, part in whole.items()}
    assert relative_difference(clipped, third) < 1e-5  # torch adds 1e-6 to the norm
    assert relative_difference(gradients(model, pieces, clip=2 * length.item()), whole) == 0
    for bad in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="clip"):
            gradients(model, pieces, clip=bad)


def test_relative_difference_by_hand():
    a, b = {"x": torch.tensor([3.0, 0.0])}, {"x": torch.tensor([3.0, 4.0])}
    assert relative_difference(a, b) == pytest.approx(4 / 5)
    assert relative_difference(b, b) == 0
    with pytest.raises(ValueError, match="same parameters"):
        relative_difference(a, {"y": torch.ones(2)})
    with pytest.raises(ValueError, match="b must not be zero"):
        relative_difference(a, {"x": torch.zeros(2)})
