import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.schedule import DECAYS, BatchRamp, batch_ramp, jump, lr_curve, lr_factors, scale_lr


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


def factors_of(total, warmup=0, decay="constant", decay_steps=None):
    return lr_factors(total, warmup, decay, decay_steps=decay_steps)


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
        ((6, 2, "trapezoid", 2), [1 / 2, 1, 1, 1, 2 / 3, 1 / 3]),
        ((6, 2, "trapezoid", 0), [1 / 2, 1, 1, 1, 1, 1]),
        ((4, 0, "trapezoid", 4), [1, 3 / 4, 2 / 4, 1 / 4]),  # the first update is always a full one
        ((5, 3, "trapezoid", 4), [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3]),  # falls after the warmup
        ((3, 6, "trapezoid", 2), [1 / 6, 2 / 6, 3 / 6]),
        ((10, 1, "trapezoid", 0.2), [1] * 8 + [2 / 3, 1 / 3]),
        ((10, 1, "trapezoid", 0.11), [1] * 8 + [2 / 3, 1 / 3]),  # rounds up
        ((1, 0, "trapezoid", 1.0), [1]),
    ],
)
def test_factors_by_hand(arguments, expected):
    assert factors_of(*arguments) == pytest.approx(expected)


def test_share_of_a_decay_is_exact():
    # ⌈0.07 × 100⌉ is 8 in binary floats
    factors = lr_factors(100, 0, "trapezoid", decay_steps=0.07)
    assert sum(factor < 1 for factor in factors) == 7
    assert factors == lr_factors(100, 0, "trapezoid", decay_steps=7)


def test_first_of_500_is_a_five_hundredth():
    # pytorch-lightning 17972 set the rate after the update: the first ran at the full rate
    assert lr_factors(1000, 500)[0] == 0.002


@given(
    st.integers(1, 300),
    st.integers(0, 300),
    st.sampled_from(["constant", "linear", "cosine", "trapezoid"]),
)
def test_shape_of_a_schedule(total, warmup, decay):
    factors = factors_of(total, warmup, decay, 1.0 if decay == "trapezoid" else None)
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
        ((10, 0, "trapezoid"), "decay_steps must be given with decay='trapezoid'"),
        ((10, 0, "linear", 3), "decay_steps must be given with decay='trapezoid'"),
        ((10, 0, "trapezoid", -1), "decay_steps"),
        ((10, 0, "trapezoid", 11), "decay_steps must be at most the 10 updates of the run; got 11"),
        ((10, 0, "trapezoid", 1.5), "decay_steps as a share"),
        ((10, 0, "trapezoid", True), "decay_steps"),
        ((10, 0, "trapezoid", "20%"), "decay_steps"),
    ],
)
def test_bad_schedule_is_named(arguments, name):
    with pytest.raises((ValueError, TypeError), match=name):
        factors_of(*arguments)


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


@given(st.integers(2, 20), st.integers(1, 20), st.integers(1, 20))
def test_trapezoid_agrees_with_three_schedulers_of_torch_in_a_row(warmup, stable, falling):
    lr_scheduler = torch.optim.lr_scheduler
    total = warmup + stable + falling

    def three(optimizer):
        parts = [
            # torch counts updates from 0
            lr_scheduler.LinearLR(optimizer, 1 / warmup, 1, total_iters=warmup - 1),
            lr_scheduler.ConstantLR(optimizer, 1),
            lr_scheduler.LinearLR(optimizer, 1, 0, total_iters=falling + 1),
        ]
        return lr_scheduler.SequentialLR(optimizer, parts, [warmup, total - falling - 1])

    ours = lr_factors(total, warmup, "trapezoid", decay_steps=falling)
    assert ours == pytest.approx(rates_of(three, total))


def test_warmup_and_cosine_agree_with_two_schedulers_of_torch_in_a_row():
    lr_scheduler = torch.optim.lr_scheduler

    def two(optimizer):
        warm = lr_scheduler.LinearLR(optimizer, 1 / 4, 1, total_iters=3)
        cosine = lr_scheduler.CosineAnnealingLR(optimizer, T_max=12 + 1 - 4)
        return lr_scheduler.SequentialLR(optimizer, [warm, cosine], [3])

    assert lr_factors(12, 4, "cosine") == pytest.approx(rates_of(two, 12))


def test_trapezoid_that_falls_at_once_is_the_straight_line():
    assert lr_factors(20, 4, "trapezoid", decay_steps=16) == lr_factors(20, 4, "linear")
    assert lr_factors(20, 4, "trapezoid", decay_steps=0) == lr_factors(20, 4)


@pytest.mark.parametrize("decay", ["constant", "linear", "cosine"])
def test_past_the_end_is_the_end_value(decay):
    factors = lr_factors(20, 4, decay)
    assert [factors.at(step) for step in range(20)] == list(factors)
    assert {factors.at(step) for step in (19, 20, 21, 10**9)} == {factors[-1]}
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factors.at)
    for _ in range(30):  # with __getitem__ the 20th step is an IndexError
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == factors[-1]
    for bad in (-1, 2.5, True, None):
        with pytest.raises((ValueError, TypeError), match="step must be a whole number"):
            factors.at(bad)


def test_factors_are_a_tuple():
    assert lr_factors(2) == (1.0, 1.0)
    assert isinstance(lr_factors(2), tuple)
    assert repr(lr_factors(2)) == "(1.0, 1.0)"


def test_the_jump_of_a_run_that_was_made_longer():
    before, after = lr_factors(500, decay="linear"), lr_factors(1000, decay="linear")
    found = jump(before, after, 400)
    assert found == pytest.approx((400, 0.2, 0.6))
    assert "at 20% of the full one, and goes on at 60%: 3 times" in str(found)
    # at the end of the shorter one: its last factor is 1 of 500
    assert jump(before, after, 500)[1:] == pytest.approx((1 / 500, 1 / 2))
    assert jump(before, after, 2000)[1:] == (before[-1], after[-1])
    assert str(jump([1.0], [1.0, 1.0], 1)).endswith("at 100% of the full one, as before.")
    assert str(jump([0.0], [0.5], 1)).endswith("at 0% of the full one, and goes on at 50%.")
    with pytest.raises(ValueError, match="after must hold a factor for each update; got none"):
        jump(before, [], 400)


@pytest.mark.parametrize(
    ("ramp", "stages"),
    [
        (batch_ramp(8, {100: 16, 300: 64}), ((8, 100), (16, 200), (64, None))),
        (batch_ramp(8, [100, 300]), ((8, 100), (16, 200), (32, None))),
        (batch_ramp(8, {1: 9}), ((8, 1), (9, None))),
        (batch_ramp(8, {}), ((8, None),)),
        # 4 updates make 1,024 tokens; 8 of 512 more make 5,120
        (
            batch_ramp(8, [1000, 5000], by="tokens", tokens_per_example=32),
            ((8, 4), (16, 8), (32, None)),
        ),
        # Sequences of 4,096 tokens, doubled at 168 and 503 thousand million tokens:
        # 168e9 ÷ (1024 × 4096) = 40,054.3 and (503e9 − 168.003e9) ÷ (2048 × 4096) = 39,934.8
        (
            batch_ramp(1024, [168 * 10**9, 503 * 10**9], by="tokens", tokens_per_example=4096),
            ((1024, 40_055), (2048, 39_935), (4096, None)),
        ),
        # just one update each: 80 tokens, then 160
        (
            batch_ramp(8, [80, 240], by="tokens", tokens_per_example=10),
            ((8, 1), (16, 1), (32, None)),
        ),
    ],
)
def test_stages_by_hand(ramp, stages):
    assert ramp.stages == stages
    assert ramp == BatchRamp(stages)
    assert hash(ramp) == hash(BatchRamp(stages))


def test_sizes_of_the_updates_are_those_of_the_stages():
    ramp = batch_ramp(4, {2: 8, 5: 12})
    assert ramp.batch_sizes(7) == (4, 4, 8, 8, 8, 12, 12)
    assert ramp.batch_sizes(3) == (4, 4, 8)
    assert ramp.ends == (2, 5)
    assert batch_ramp(4, {}).ends == ()


@given(
    st.integers(1, 6),
    st.lists(st.integers(1, 400), min_size=1, max_size=4),
    st.integers(1, 5),
)
def test_a_stage_by_tokens_ends_with_the_update_that_reaches_the_number(size, gaps, each):
    ends = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    needed = [size * 2**n * each for n in range(len(gaps))]
    if any(gap < tokens for gap, tokens in zip(gaps, needed)):
        with pytest.raises(ValueError, match="leave each stage an update"):
            batch_ramp(size, ends, by="tokens", tokens_per_example=each)
        return
    sizes = batch_ramp(size, ends, by="tokens", tokens_per_example=each).batch_sizes(2000)
    tokens = 0
    for batch_size in sizes:
        assert batch_size == size * 2 ** sum(tokens >= end for end in ends)
        tokens += batch_size * each


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((8, {100: 4}), "must grow from stage to stage; got 4 after 8"),
        ((8, {100: 8}), "must grow"),
        ((8, {100: 16, 50: 32}), "then must name rising numbers of updates; got 50 after 100"),
        ((8, [100, 100]), "rising numbers of updates"),
        ((8, {0: 16}), "then must be a whole number of at least 1; got 0"),
        ((8, {-5: 16}), "then"),
        ((8, 5), "then must be a mapping or a sequence; got 5"),
        ((8, "55"), "then must be a mapping or a sequence"),
        ((8, {2.5: 16}), "then"),
        ((8, {True: 16}), "then"),
        ((8, {5: 16.0}), "then"),
        ((0, {5: 16}), "batch_size"),
        ((8.0, {5: 16}), "batch_size"),
        ((8, {5: 16}, "examples"), "by must be one of"),
        ((8, {5: 16}, "tokens"), "tokens_per_example must be given"),
        ((8, {5: 16}, "updates", 32), "tokens_per_example must be given"),
        ((8, {5: 16}, "tokens", 0), "tokens_per_example"),
        ((8, {255: 16}, "tokens", 32), "255 tokens at batch size 8, .* one update takes 256"),
    ],
)
def test_bad_ramp_is_named(arguments, words):
    named = dict(zip(("batch_size", "then", "by", "tokens_per_example"), arguments))
    with pytest.raises((ValueError, TypeError), match=words):
        batch_ramp(**named)


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ((), "stages must be pairs"),
        ((8, 16), "stages must be pairs"),
        (((8, 4), (16, 4)), "end with one of None updates"),
        (((8, 0), (16, None)), "updates must be a whole number of at least 1; got 0"),
        (((8, None), (16, None)), "updates"),
        (((8, 4), (4, None)), "must grow"),
    ],
)
def test_bad_stages_are_named(stages, words):
    with pytest.raises((ValueError, TypeError), match=words):
        BatchRamp(stages)


@pytest.mark.filterwarnings("ignore:Detected call of")  # the wrong way steps it first
@pytest.mark.parametrize(
    ("skips_count", "position", "rates"), [(False, 4, (0.1, 0.4)), (True, 10, (0.7, 1))]
)
def test_schedule_counts_updates_made_and_not_those_a_scaler_skips(skips_count, position, rates):
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    factors = lr_factors(100, warmup_steps=10)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factors.__getitem__)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)  # halves itself at each overflow
    made = []
    for _ in range(10):
        optimizer.zero_grad()
        # float32 ends below 2¹²⁸: the gradient 2¹¹⁷ overflows under 2¹⁶ … 2¹¹, and not under 2¹⁰.
        scaler.scale((weight * 2.0**117).sum()).backward()
        scale, rate = scaler.get_scale(), optimizer.param_groups[0]["lr"]
        scaler.step(optimizer)
        scaler.update()
        skipped = scaler.get_scale() < scale
        if not skipped:
            made.append(rate)
        if skips_count or not skipped:
            schedule.step()
    assert schedule.last_epoch == position
    assert len(made) == 4
    assert (made[0], made[-1]) == rates


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize(("total", "warmup"), [(1, 0), (2, 5), (7, 2), (1000, 0), (1000, 77)])
def test_a_curve_is_some_of_the_factors_with_its_ends_and_bends(decay, total, warmup):
    steps = {"decay_steps": 0.3} if decay == "trapezoid" else {}
    factors = lr_factors(total, warmup, decay, **steps)
    curve = lr_curve(total, warmup, decay, **steps, points=50)
    assert all(factor == factors[update - 1] for update, factor in curve)
    updates = [update for update, _ in curve]
    assert updates == sorted(set(updates))
    assert {1, total} <= {*updates}
    assert min(total, max(warmup, 1)) in updates
    assert len(curve) <= 52
    if decay == "trapezoid" and total == 1000:
        assert 700 in updates


def test_a_curve_does_not_grow_with_the_run():
    assert len(lr_curve(10**15, 10**12, "cosine")) <= 202
    with pytest.raises(ValueError, match="points must be a whole number of at least 2; got 1"):
        lr_curve(10, points=1)
