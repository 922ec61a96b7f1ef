import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers import noise
from helpers.accumulate import gradients, relative_difference
from helpers.data import CharTokenizer, collate, make_records
from helpers.model import ModelConfig, SmallLM
from helpers.noise import (
    critical_batch,
    noise_scale,
    per_example_gradients,
    two_batch_noise_scale,
    window_norms,
)
from tests.toys import NoisyQuadratic, as_data, points

RECORDS = make_records(40)
TOKENIZER = CharTokenizer("".join(record.text for record in RECORDS))
INPUTS, TARGETS = collate(RECORDS, TOKENIZER)
MODEL = SmallLM(ModelConfig(TOKENIZER.vocab_size, INPUTS.shape[1], 16, 1, 2)).double()

# At w the true gradient is h·w and the noise of one example h·s, worked out by hand:
# tr(Σ) = (1·2)² + (3·2)² = 40 and |G|² = (1·1)² + (3·1)² = 10, so the noise scale is 4.
POINTS = points(4096, 2, spread=2.0)
QUADRATIC = NoisyQuadratic(
    torch.ones(2, dtype=torch.float64), torch.tensor([1.0, 3.0], dtype=torch.float64), POINTS
)
TRACE, SQUARED_NORM = 40, 10


def draw(count, seed):
    chosen = torch.randperm(4096, generator=torch.Generator().manual_seed(seed))[:count]
    return tuple(part[chosen] for part in as_data(4096))


def one_by_one():
    """Each record's gradient by its own backward pass, under the token rule."""
    alone = [gradients(MODEL, [(x[None], y[None])]) for x, y in zip(INPUTS, TARGETS)]
    counts = (TARGETS != -100).sum(1).double()
    weights = len(counts) * counts / counts.sum()
    return [
        {name: part * weight for name, part in gradient.items()}
        for gradient, weight in zip(alone, weights)
    ]


def test_each_examples_gradient_is_that_of_its_own_backward_pass():
    together = per_example_gradients(MODEL, INPUTS, TARGETS)
    for number, alone in enumerate(one_by_one()):
        row = {name: part[number] for name, part in together.items()}
        assert relative_difference(row, alone) < 1e-12


def test_their_mean_is_the_batchs_gradient_also_where_lengths_differ():
    together = per_example_gradients(MODEL, INPUTS, TARGETS)
    mean = {name: part.mean(0) for name, part in together.items()}
    assert relative_difference(mean, gradients(MODEL, [(INPUTS, TARGETS)])) < 1e-12


def test_noise_scale_is_its_definition():
    rows = torch.stack([torch.cat([g.flatten() for g in each.values()]) for each in one_by_one()])
    trace = rows.var(0).sum()
    squared_norm = rows.mean(0).square().sum() - trace / len(rows)
    measured = noise_scale(MODEL, INPUTS, TARGETS)
    assert measured.trace == pytest.approx(trace.item(), rel=1e-10)
    assert measured.squared_norm == pytest.approx(squared_norm.item(), rel=1e-9)
    assert measured.simple == pytest.approx((trace / squared_norm).item(), rel=1e-9)
    assert measured.examples == 40


def test_noise_scale_of_a_known_problem():
    measured = noise_scale(QUADRATIC, *as_data(4096))
    assert measured.trace == pytest.approx(TRACE, rel=1e-3)
    assert measured.squared_norm == pytest.approx(SQUARED_NORM, rel=1e-2)
    assert measured.low < 4 < measured.high


def test_both_estimates_are_unbiased():
    chosen = torch.randint(4096, (400, 16), generator=torch.Generator().manual_seed(0))
    inputs, targets = as_data(4096)
    drawn = [noise_scale(QUADRATIC, inputs[row], targets[row]) for row in chosen]
    for name, right in (("trace", TRACE), ("squared_norm", SQUARED_NORM)):
        values = torch.tensor([getattr(each, name) for each in drawn])
        error = values.std() / len(values) ** 0.5
        assert abs(values.mean() - right) < 3 * error
        assert error < 0.06 * right  # so that a bias of 1/16 would be seen


def test_interval_holds_the_truth_nearly_always():
    drawn = [noise_scale(QUADRATIC, *draw(256, seed)) for seed in range(100)]
    assert sum(each.low < 4 < each.high for each in drawn) >= 88


def test_no_more_than_a_chunk_of_gradients_is_held(monkeypatch):
    held = []
    original = noise._gradients_of_each

    def watched(model):
        each = original(model)

        def call(inputs, targets):
            held.append(len(inputs))
            return each(inputs, targets)

        return call

    monkeypatch.setattr(noise, "_gradients_of_each", watched)
    noise_scale(QUADRATIC, *as_data(4096))
    assert max(held) == 64
    assert sum(held) == 4096


def test_gradient_hidden_by_noise_has_no_finite_scale():
    at_minimum = NoisyQuadratic(torch.zeros(2).double(), QUADRATIC.curvature, POINTS)
    hidden = [noise_scale(at_minimum, *draw(8, seed)) for seed in range(20)]
    infinite = [each for each in hidden if each.squared_norm <= 0]
    assert infinite
    assert all(each.simple == math.inf and math.isnan(each.low) for each in infinite)
    assert "inf" in repr(infinite[0])


def test_model_keeps_its_gradients():
    QUADRATIC.weights.grad = torch.ones(2).double()
    noise_scale(QUADRATIC, *draw(8, 0))
    assert QUADRATIC.weights.grad.tolist() == [1, 1]
    QUADRATIC.weights.grad = None


def test_window_gives_the_squared_lengths():
    micro_batches = [draw(4, 1), draw(4, 2), draw(4, 3)]
    small, big = window_norms(QUADRATIC, micro_batches)
    alone = [QUADRATIC.curvature * (1 - POINTS[x].mean(0)) for x, _ in micro_batches]
    assert small == pytest.approx(sum(g.square().sum().item() for g in alone) / 3)
    assert big == pytest.approx((sum(alone) / 3).square().sum().item())


def test_two_batches_find_the_same_scale():
    windows = []
    for seed in range(400):
        inputs, targets = draw(64, seed)
        windows.append(window_norms(QUADRATIC, list(zip(inputs.split(8), targets.split(8)))))
    small, big = zip(*windows)
    measured = two_batch_noise_scale(small, big, small_batch=8, big_batch=64)
    assert measured.trace == pytest.approx(TRACE, rel=0.05)
    assert measured.squared_norm == pytest.approx(SQUARED_NORM, rel=0.05)
    assert measured.low < 4 < measured.high < 6


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"big_batch": 8}, "big_batch"),
        ({"small_batch": 0}, "small_batch"),
        ({"small_norms": [], "big_norms": []}, "small_norms"),
        ({"small_norms": [1.0]}, "small_norms"),
    ],
)
def test_bad_pairs_of_batches_are_named(change, word):
    good = {"small_norms": [1.0, 2.0], "big_norms": [1.0, 1.0], "small_batch": 8, "big_batch": 64}
    with pytest.raises(ValueError, match=word):
        two_batch_noise_scale(**good | change)


def test_bad_batches_are_named():
    normed = nn.Sequential(nn.Embedding(9, 4), nn.BatchNorm1d(4))
    with pytest.raises(ValueError, match="batch norm"):
        per_example_gradients(normed, INPUTS[:2, :4], TARGETS[:2, :4])
    with pytest.raises(ValueError, match="two examples or more; got 1"):
        noise_scale(MODEL, INPUTS[:1], TARGETS[:1])
    with pytest.raises(ValueError, match="targets must hold a target"):
        noise_scale(MODEL, INPUTS, torch.full_like(TARGETS, -100))
    with pytest.raises(ValueError, match="one shape"):
        per_example_gradients(MODEL, INPUTS, TARGETS[:, 1:])
    with pytest.raises(ValueError, match="two or more; got 1"):
        window_norms(MODEL, [(INPUTS, TARGETS)])


SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]


@given(st.floats(0.5, 2000), st.floats(1, 1e5))
@settings(max_examples=50, deadline=None)
def test_critical_batch_is_found_and_its_hyperbola_holds(critical, least):
    fit = critical_batch(SIZES, [least * (1 + critical / size) for size in SIZES])
    assert fit.size == pytest.approx(critical, rel=1e-3)
    assert fit.min_steps == pytest.approx(least, rel=1e-3)
    for size in SIZES:
        steps = fit.steps(size)
        assert (steps / fit.min_steps - 1) * (size * steps / fit.min_examples - 1) == pytest.approx(
            1
        )


def test_interval_of_the_critical_batch_holds_the_truth_nearly_always():
    hits = 0
    for seed in range(100):
        factors = torch.randn(10, generator=torch.Generator().manual_seed(seed)) * 0.1
        steps = [100 * (1 + 30 / size) * math.exp(f) for size, f in zip(SIZES, factors)]
        fit = critical_batch(SIZES, steps)
        hits += fit.low < 30 < fit.high
    assert hits >= 88


def test_size_that_never_got_there_is_left_out():
    steps = [100 * (1 + 30 / size) for size in SIZES]
    assert critical_batch([*SIZES, 1024], [*steps, math.nan]).size == pytest.approx(30, rel=1e-3)


@pytest.mark.parametrize(
    ("sizes", "steps", "word"),
    [
        ([1, 2], [3.0, 2.0], "three batch sizes"),
        ([1, 2, 4], [3.0, math.nan, 2.0], "three batch sizes"),
        ([4, 4, 4], [3.0, 2.0, 2.0], "three batch sizes"),
        ([1, 2, 4], [3.0, 2.0], "steps_to_target"),
        ([1, 2, 0], [3.0, 2.0, 2.0], "batch_sizes"),
        ([1, 2, 4], [3.0, -2.0, 2.0], "steps_to_target"),
    ],
)
def test_bad_points_are_named(sizes, steps, word):
    with pytest.raises(ValueError, match=word):
        critical_batch(sizes, steps)
