import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.schedule import lr_factors, scale_lr


@pytest.mark.parametrize(
    ("lr", "from_batch", "to_batch", "rule", "expected"),
    [
        (1e-3, 32, 64, "linear", 2e-3),
        (1e-3, 32, 128, "linear", 4e-3),
        (3e-4, 32, 128, "linear", 1.2e-3),
        (3e-4, 32, 512, "linear", 4.8e-3),
        (2e-5, 16, 8, "linear", 1e-5),
        (2e-5, 4, 8, "linear", 4e-5),
        (2e-4, 4, 6, "linear", 3e-4),  # CenterNet 476
        (2e-4, 4, 6, "sqrt", 2e-4 * 1.224744871391589),
        (1e-3, 16, 1024, "linear", 0.064),
        (1e-3, 16, 1024, "sqrt", 0.008),
        (1e-3, 16, 16, "sqrt", 1e-3),
    ],
)
def test_rules_by_hand(lr, from_batch, to_batch, rule, expected):
    scaled = scale_lr(lr, from_batch=from_batch, to_batch=to_batch, rule=rule)
    assert scaled == pytest.approx(expected, rel=1e-12)


@given(st.integers(1, 4096), st.integers(1, 4096), st.sampled_from(["linear", "sqrt"]))
def test_there_and_back_is_the_same_rate(small, large, rule):
    there = scale_lr(1e-3, from_batch=small, to_batch=large, rule=rule)
    back = scale_lr(there, from_batch=large, to_batch=small, rule=rule)
    assert back == pytest.approx(1e-3, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"lr": 0.0}, "lr"),
        ({"lr": -1e-3}, "lr"),
        ({"lr": math.nan}, "lr"),
        ({"lr": math.inf}, "lr"),
        ({"lr": "1e-3"}, "lr"),
        ({"from_batch": 0}, "from_batch"),
        ({"to_batch": 2.5}, "to_batch"),
        ({"to_batch": True}, "to_batch"),
        ({"rule": "cubic"}, "rule must be one of 'linear', 'sqrt'"),
    ],
)
def test_bad_scaling_is_named(change, name):
    good = {"lr": 1e-3, "from_batch": 8, "to_batch": 16, "rule": "linear"} | change
    with pytest.raises((ValueError, TypeError), match=name):
        scale_lr(good.pop("lr"), **good)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((5, 4), [0.25, 0.5, 0.75, 1, 1]),
        ((4, 0), [1, 1, 1, 1]),
        ((1, 1), [1]),  # a run of one update is not made at a rate of zero
        ((3, 1, "linear"), [1, 2 / 3, 1 / 3]),
        ((4, 0, "linear"), [1, 0.75, 0.5, 0.25]),
        ((5, 2, "linear"), [0.5, 1, 0.75, 0.5, 0.25]),
        ((3, 0, "cosine"), [1, 0.75, 0.25]),  # (1 + cos 60°) ÷ 2 and (1 + cos 120°) ÷ 2
        ((3, 6), [1 / 6, 2 / 6, 3 / 6]),
        ((3, 6, "cosine"), [1 / 6, 2 / 6, 3 / 6]),
    ],
)
def test_factors_by_hand(arguments, expected):
    assert lr_factors(*arguments) == pytest.approx(expected)


def test_first_of_500_is_a_five_hundredth():
    # pytorch-lightning 17972 set the rate after the update: the first ran at the full rate
    assert lr_factors(1000, 500)[0] == 0.002


@given(st.integers(1, 300), st.integers(0, 300), st.sampled_from(["constant", "linear", "cosine"]))
def test_shape_of_a_schedule(total, warmup, decay):
    factors = lr_factors(total, warmup, decay)
    peak = max(warmup, 1)
    assert len(factors) == total
    assert all(0 < factor <= 1 for factor in factors)
    assert list(factors[:peak]) == sorted(factors[:peak])
    assert list(factors[peak - 1 :]) == sorted(factors[peak - 1 :], reverse=True)
    if total >= peak:
        assert factors[peak - 1] == 1
    if decay != "constant" and total > peak:
        # nearly at zero at the end: the next update would be there
        assert factors[-1] <= 1 / (total + 1 - peak) + 1e-12


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0,), "total_steps"),
        ((2.5,), "total_steps"),
        ((10, -1), "warmup_steps"),
        ((10, 0.1), "warmup_steps"),
        ((10, True), "warmup_steps"),
        ((10, 0, "step"), "decay must be one of"),
    ],
)
def test_bad_schedule_is_named(arguments, name):
    with pytest.raises((ValueError, TypeError), match=name):
        lr_factors(*arguments)


def rates_of(scheduler_class, updates, **how):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    scheduler = scheduler_class(optimizer, **how)
    rates = []
    for _ in range(updates):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def test_agrees_with_torch_where_they_coincide():
    lr_scheduler = torch.optim.lr_scheduler
    linear = rates_of(lr_scheduler.LinearLR, 9, start_factor=1, end_factor=1e-9, total_iters=9)
    assert lr_factors(9, 0, "linear") == pytest.approx(linear, abs=1e-8)
    cosine = rates_of(lr_scheduler.CosineAnnealingLR, 9, T_max=9)
    assert lr_factors(9, 0, "cosine") == pytest.approx(cosine)
    warm = rates_of(lr_scheduler.LinearLR, 9, start_factor=1 / 4, end_factor=1, total_iters=3)
    assert lr_factors(9, 4) == pytest.approx(warm)
