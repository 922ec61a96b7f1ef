import math
import random
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.replicates import Outcome, Replicates, chance_above, every, exactly

numbers = st.floats(-1e3, 1e3, allow_nan=False)


# Tables of Student's t: degrees of freedom, chance above, t.
@pytest.mark.parametrize(
    ("freedom", "chance", "t"),
    [
        (1, 0.05, 6.3138),
        (2, 0.05, 2.9200),
        (3, 0.05, 2.3534),
        (4, 0.05, 2.1318),
        (9, 0.05, 1.8331),
        (30, 0.05, 1.6973),
        (2, 0.001, 22.327),
        (3, 0.001, 10.215),
        (4, 0.001, 7.1732),
        (9, 0.001, 4.2968),
    ],
)
def test_chances_are_those_of_the_tables(freedom, chance, t):
    assert chance_above(t, freedom) == pytest.approx(chance, rel=2e-4)
    assert chance_above(-t, freedom) == pytest.approx(1 - chance, rel=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.floats(-30, 30), st.integers(1, 40))
def test_chances_are_the_integral_of_the_density(t, freedom):
    steps = 4000
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    scale /= math.sqrt(freedom * math.pi)
    grid = np.linspace(0, abs(t), steps + 1)
    density = scale * (1 + grid**2 / freedom) ** (-(freedom + 1) / 2)
    inside = np.trapezoid(density, grid)
    expected = 0.5 - inside if t > 0 else 0.5 + inside
    assert chance_above(t, freedom) == pytest.approx(expected, abs=2e-5)


def test_mean_and_error_by_hand():
    runs = Replicates([1.0, 2.0, 6.0])
    # Mean 3, squared deviations 4 + 1 + 9 = 14, so the variance is 7 and the error √(7/3).
    assert runs.mean == 3
    assert runs.error == pytest.approx(math.sqrt(7 / 3))
    assert repr(runs) == "3 ± 1.53 (3 runs)"


def test_factors_are_averaged_by_their_logarithms():
    runs = Replicates([1.0, 2.0, 4.0], ratio=True)
    assert runs.mean == pytest.approx(2)
    assert runs.error == pytest.approx(math.log(2) / math.sqrt(3))
    assert repr(runs) == "2 ×÷ 1.49 (3 runs)"
    # A factor and its reciprocal are judged alike.
    other = Replicates([1.0, 0.5, 0.25], ratio=True)
    assert (runs > 1.5).distance == pytest.approx((other < 1 / 1.5).distance)


@pytest.mark.parametrize("given_", [torch.tensor([1.0, 2, 3]), np.array([1.0, 2, 3]), (1, 2, 3)])
def test_lists_and_tensors_are_taken(given_):
    assert Replicates(given_).mean == 2


def test_three_outcomes():
    runs = Replicates([0.9, 1.0, 1.1, 1.0])  # the error is 0.0408
    assert (runs > 0.8).outcome is Outcome.BORNE_OUT
    assert (runs > 0.95).outcome is Outcome.NOT_DECIDED
    assert (runs > 1.05).outcome is Outcome.NOT_DECIDED
    assert (runs > 2.0).outcome is Outcome.CONTRADICTED
    assert (runs < 2.0).outcome is Outcome.BORNE_OUT
    assert (0.8 < runs).outcome is Outcome.BORNE_OUT  # noqa: SIM300 - both ways must work
    assert (runs > 0.8).distance == pytest.approx(0.2 / (math.sqrt(0.02 / 3) / 2))


def test_what_would_decide_is_said():
    runs = Replicates([0.9, 1.0, 1.1, 1.0])
    needed = (runs > 0.95).needed
    t = 0.05 / runs.error
    assert chance_above(t * math.sqrt(needed / 4), needed - 1) < 0.05
    assert chance_above(t * math.sqrt((needed - 1) / 4), needed - 2) >= 0.05
    assert (Replicates([1.0, 2, 3]) > 2.0).needed is None  # exactly on the bound: nothing would


def test_between_is_judged_by_the_nearer_side():
    runs = Replicates([0.9, 1.0, 1.1, 1.0])
    assert runs.between(0.8, 3).distance == (runs > 0.8).distance
    assert runs.between(2, 3).outcome is Outcome.CONTRADICTED
    with pytest.raises(ValueError, match="low must be below high"):
        runs.between(3, 2)


def test_runs_that_are_all_alike_have_no_noise():
    same = Replicates([1.0] * 3)
    assert (same > 0.9).outcome is Outcome.BORNE_OUT
    assert (same > 1.1).outcome is Outcome.CONTRADICTED
    assert (same > 1.0).outcome is Outcome.NOT_DECIDED or (same > 1.0).distance == -math.inf
    assert (same > 1.0).outcome is not Outcome.BORNE_OUT


def test_lost_runs_decide_nothing_unless_all_are_lost():
    some = Replicates([1.0, math.nan, 1.0, math.inf])
    assert (some < 2).outcome is Outcome.NOT_DECIDED
    assert "2 of 4 runs are lost" in (some < 2).words
    assert (Replicates([math.nan] * 3) < 2).outcome is Outcome.CONTRADICTED


def test_judgements_join_to_the_worst():
    runs = Replicates([0.9, 1.0, 1.1, 1.0])
    both = (runs > 0.8) & (runs < 1.05)
    assert both.outcome is Outcome.NOT_DECIDED
    assert both.distance == (runs < 1.05).distance
    assert ((runs > 0.8) & True).outcome is Outcome.BORNE_OUT
    assert (False & (runs > 0.8)).outcome is Outcome.CONTRADICTED
    assert exactly(True).distance == math.inf


def test_python_and_chains_are_refused():
    runs = Replicates([0.9, 1.0, 1.1, 1.0])
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(runs > 0.8)
    with pytest.raises(TypeError, match="between"):
        0.8 < runs < 2  # noqa: B015


@pytest.mark.parametrize(
    ("values", "ratio", "error", "words"),
    [
        ([1.0, 2.0], False, ValueError, "at least 3"),
        ([1.0, -2.0, 1.0], True, ValueError, "above zero"),
        ([1.0, "2", 3.0], False, TypeError, "list of numbers"),
        ([True, False, True], False, TypeError, "list of numbers"),
        ("123", False, TypeError, "list of numbers"),
        (1.0, False, TypeError, "list of numbers"),
        (torch.ones(3, 2), False, TypeError, "list of numbers"),
    ],
)
def test_bad_values_are_refused(values, ratio, error, words):
    with pytest.raises(error, match=words):
        Replicates(values, ratio=ratio)


@pytest.mark.parametrize("bound", [math.nan, math.inf, "1", None])
def test_bad_bounds_are_refused(bound):
    with pytest.raises(ValueError, match="bound must be a finite number"):
        Replicates([1.0, 2.0, 3.0]) > bound  # noqa: B015


def test_every_run():
    assert every([True] * 5).outcome is Outcome.BORNE_OUT
    assert every([True] * 4).outcome is Outcome.NOT_DECIDED  # 1 of 16 by chance
    assert every([True] * 4).needed == 5
    assert every([True] * 9 + [False]).outcome is Outcome.NOT_DECIDED
    assert every([False] * 5).outcome is Outcome.CONTRADICTED
    with pytest.raises(ValueError, match="at least 3"):
        every([True])
    with pytest.raises(TypeError, match="one comparison"):
        every([1, 0, 1])


@given(st.lists(numbers, min_size=3, max_size=8), numbers)
def test_a_statement_and_its_opposite_are_never_both_borne_out(values, bound):
    runs = Replicates(values)
    outcomes = {(runs > bound).outcome, (runs < bound).outcome}
    assert outcomes != {Outcome.BORNE_OUT}
    assert outcomes != {Outcome.CONTRADICTED}


@given(st.lists(numbers, min_size=3, max_size=8))
def test_the_mean_lies_within_its_runs(values):
    runs = Replicates(values)
    assert min(values) - 1e-9 <= runs.mean <= max(values) + 1e-9
    assert runs.error == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)))


@pytest.mark.parametrize("runs", [3, 5])
def test_another_computer_seldom_overturns_a_true_claim_nor_bears_out_a_false_one(runs):
    """Ten thousand computers, each with its own noise of a toy experiment.

    A true claim has its mean three standard errors beyond its bound, and a false one has none of
    the effect: its mean is on the bound.
    """
    draw = random.Random(runs)
    red = passed = 0
    for _ in range(10_000):
        noise = [draw.gauss(0, 1) for _ in range(runs)]
        true = Replicates([3 / math.sqrt(runs) + n for n in noise]) > 0
        false = Replicates(noise) > 0
        red += true.outcome is Outcome.CONTRADICTED
        passed += false.outcome is Outcome.BORNE_OUT
    assert red < 10  # less than once in 1,000
    assert 300 < passed < 500 + 4 * math.sqrt(10_000 * 0.05 * 0.95)
