import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import SGD, Adafactor, AdamW, RAdam

from helpers import sweep as module
from helpers.data import CharTokenizer, collate, make_records
from helpers.model import ModelConfig, SmallLM
from helpers.noise import critical_batch
from helpers.schedule import lr_factors
from helpers.sweep import SweepResult, engine, sweep, sweep_warmups
from helpers.sweep import result as results
from helpers.sweep.side_by_side import logits_of_all
from helpers.train import train
from tests.toys import NoisyQuadratic, as_data, points

CONFIG = ModelConfig(vocab_size=11, context=6, width=8, layers=1, heads=2)
WINDOWS = torch.randint(11, (90, 7), generator=torch.Generator().manual_seed(0))
GRID = {"learning_rates": [1e-3, 1e-2, 3e-2], "batch_sizes": [4, 16], "examples": 200}


def both(data=WINDOWS, config=CONFIG, **how):
    """Return the sweeps one by one and together, in float64."""
    how = GRID | {"seeds": [0, 3], "evaluations": 3, "dtype": torch.float64} | how
    return [sweep(config, data, method=method, **how) for method in ("one-by-one", "together")]


def assert_same(a, b, tolerance=1e-10):
    assert torch.equal(a.diverged_at, b.diverged_at)
    assert torch.equal(a.finished, b.finished)
    torch.testing.assert_close(a.loss, b.loss, rtol=0, atol=tolerance, equal_nan=True)
    for size in a.batch_sizes:
        for name in ("curves", "held_out"):
            one, other = getattr(a, name)[size], getattr(b, name)[size]
            torch.testing.assert_close(one, other, rtol=0, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize(
    "optimizer",
    ["sgd", "momentum", "adamw", partial(AdamW, betas=(0.8, 0.9), weight_decay=0.1), RAdam],
)
def test_methods_agree(optimizer):
    assert_same(*both(optimizer=optimizer))


@pytest.mark.parametrize("length", [1, 5, 6])
@pytest.mark.parametrize("layers", [1, 3])
def test_many_models_at_once_give_the_logits_and_gradients_of_each(layers, length):
    config = ModelConfig(vocab_size=11, context=6, width=8, layers=layers, heads=2)
    models = [SmallLM(config, seed=seed).double() for seed in range(3)]
    generator = torch.Generator().manual_seed(0)
    for model in models:
        for part in model.parameters():  # norms and biases too
            part.data += torch.randn(part.shape, generator=generator, dtype=part.dtype) / 3
    weights = {
        name: torch.stack([dict(model.named_parameters())[name].detach() for model in models])
        for name, _ in models[0].named_parameters()
    }
    tokens = torch.randint(11, (3, 4, length), generator=generator)
    parts = [part.requires_grad_() for part in weights.values()]
    logits = logits_of_all(config, weights, tokens)
    apart = torch.stack([model(own) for model, own in zip(models, tokens)])
    torch.testing.assert_close(logits, apart, rtol=0, atol=1e-12)
    pull = torch.randn(logits.shape, generator=generator, dtype=logits.dtype)
    gradients = torch.autograd.grad((logits * pull).sum(), parts)
    (apart * pull).sum().backward()
    for number, model in enumerate(models):
        for part, gradient in zip(model.parameters(), gradients):
            torch.testing.assert_close(gradient[number], part.grad, rtol=0, atol=1e-11)


def test_models_of_any_making_are_stacked_too():
    made_elsewhere = both(config=lambda seed: SmallLM(CONFIG, seed=seed), optimizer="adamw")
    assert_same(*made_elsewhere)
    assert_same(made_elsewhere[1], both(optimizer="adamw")[1])


def test_methods_agree_on_ragged_records_and_with_warmup():
    records = make_records(50)
    tokenizer = CharTokenizer("".join(record.text for record in records))
    data = collate(records, tokenizer)
    config = ModelConfig(tokenizer.vocab_size, data[0].shape[1], 8, 1, 2)
    assert_same(*both(data, config, optimizer="adamw", warmup=0.2))


def test_runs_are_those_of_train():
    result = sweep(
        CONFIG, WINDOWS[:80], eval_data=WINDOWS[80:], **GRID, seeds=[2], method="together", warmup=5
    )
    history = train(
        SmallLM(CONFIG, seed=2), WINDOWS[:80], eval_data=WINDOWS[80:], batch_size=4, lr=1e-2,
        steps=50, optimizer="sgd", schedule=lr_factors(50, 5), seed=2,
    )  # fmt: skip
    assert result.loss[0, 0, 1].item() == pytest.approx(history.final_loss, abs=1e-5)
    assert result.curves[4][0, 1].tolist() == pytest.approx(history.loss, abs=1e-5)


def test_float32_has_the_same_winner():
    one, together = both(optimizer="adamw", dtype=torch.float32)
    for size in one.batch_sizes:
        assert one.mean_loss(size).argmin() == together.mean_loss(size).argmin()


@pytest.mark.parametrize("method", ["one-by-one", "together"])
def test_diverged_run_leaves_and_disturbs_no_other(method):
    calm = sweep(CONFIG, WINDOWS, **GRID, method=method)
    wild = sweep(
        CONFIG, WINDOWS, **GRID | {"learning_rates": [1e-3, 1e-2, 3e-2, 1e30]}, method=method
    )
    assert wild.loss[..., -1].isnan().all()
    assert (wild.diverged_at[..., -1] > 0).all()
    assert wild.finished.all()
    torch.testing.assert_close(wild.loss[..., :3], calm.loss)
    assert (wild.diverged_at[..., :3] == 0).all()
    assert "lost" in repr(wild)


def test_every_run_diverged_is_a_result():
    result = sweep(CONFIG, WINDOWS, **GRID | {"learning_rates": [1e30, 1e31]}, method="together")
    best = result.best(4)
    assert math.isnan(best.rate)
    assert best.at_edge
    assert all(map(math.isnan, best.rates + best.losses))
    assert "lost" in repr(result)
    assert "lost" in result._repr_html_()
    assert result.updates_to(1.0).isnan().all()


def test_stack_really_shrinks(monkeypatch):
    sizes = []
    original = engine.Stack.losses

    def watched(stack, inputs, targets):
        sizes.append(len(inputs))
        return original(stack, inputs, targets)

    monkeypatch.setattr(engine.Stack, "losses", watched)
    monkeypatch.setattr(engine, "stack_size", lambda _, runs, __: len(runs))
    sweep(CONFIG, WINDOWS, **GRID | {"learning_rates": [1e-3, 1e30]}, method="together")
    assert (sizes[0], sizes[-1]) == (2, 1)


@pytest.mark.parametrize("method", ["one-by-one", "together"])
def test_interrupt_returns_what_is_finished(monkeypatch, method):
    calls = 0
    original = torch.optim.SGD.step

    def interrupted(self, *arguments, **how):
        nonlocal calls
        calls += 1
        if calls == limit:
            raise KeyboardInterrupt
        return original(self, *arguments, **how)

    monkeypatch.setattr(torch.optim.SGD, "step", interrupted)
    monkeypatch.setattr(engine, "stack_size", lambda *_: 3 if method == "together" else 0)
    # batch 4 makes 50 updates in each of its three runs, batch 16 makes 12
    limit = 50 + 5 if method == "together" else 3 * 50 + 12 + 5
    result = sweep(CONFIG, WINDOWS, **GRID, method=method)
    assert result.interrupted
    done = result.finished[0].tolist()
    assert done[0] == [True] * 3
    assert done[1] == ([False] * 3 if method == "together" else [True, False, False])
    assert torch.equal(result.finished, result.loss.isfinite())
    assert "interrupted" in repr(result)
    assert "·" in repr(result)


@pytest.mark.parametrize(
    ("fit", "runs", "auto", "together"),
    [
        (1000, 45, 45, 45),
        (7, 45, 7, 7),
        (3, 45, 3, 3),
        (2, 45, 0, 2),
        (1000, 2, 0, 2),
        (9, 1, 0, 1),
    ],
)
def test_as_many_runs_share_a_stack_as_stay_small(monkeypatch, fit, runs, auto, together):
    monkeypatch.setattr(engine, "_most_that_fit", lambda *_: fit)
    assert engine.stack_size(None, [None] * runs, "auto") == auto
    assert engine.stack_size(None, [None] * runs, "together") == together
    assert engine.stack_size(None, [None] * runs, "one-by-one") == 0


def test_sweep_too_large_for_memory_is_split(monkeypatch):
    monkeypatch.setattr(engine, "CPU_LIMIT", 60_000)
    result = sweep(CONFIG, WINDOWS, **GRID, seeds=[0, 1, 2], method="together")
    small, large = (int(result.ways[size].split()[-1]) for size in (4, 16))
    assert 1 <= large < small < 9
    monkeypatch.undo()
    assert_same(result, sweep(CONFIG, WINDOWS, **GRID, seeds=[0, 1, 2], method="one-by-one"), 1e-4)


def test_held_out_examples_are_not_trained_on():
    kept, held_out = module._hold_out(torch.arange(90)[:, None])
    assert (len(kept), len(held_out)) == (81, 9)
    assert sorted(torch.cat([kept, held_out])[:, 0].tolist()) == list(range(90))
    pair = module._hold_out((WINDOWS, WINDOWS))
    assert torch.equal(pair[0][0], pair[0][1])


def test_budget_may_differ_between_batch_sizes():
    result = sweep(CONFIG, WINDOWS, **GRID | {"examples": [20, 80]}, seeds=[0])
    assert [result.curves[size].shape[-1] for size in (4, 16)] == [5, 5]
    assert [result.held_out_steps[size] for size in (4, 16)] == [[0, 5], [0, 5]]


def made(losses, rates=(1.0, 10.0, 100.0, 1000.0)):
    result = SweepResult(rates, (8,), tuple(range(len(losses))), (64,), "sgd")
    result.loss[:, 0] = torch.tensor(losses, dtype=torch.float64)
    result.finished[:] = True
    return result


@given(st.floats(0.6, 1.4), st.floats(0.01, 0.12))
def test_best_rate_is_the_vertex_of_a_parabola(vertex, bend):
    losses = [2 + bend * (x - vertex) ** 2 for x in range(4)]
    best = made([losses]).best(8)
    assert best.rate == pytest.approx(10**vertex, rel=1e-9)
    assert best.loss == pytest.approx(2)
    assert not best.at_edge


def test_best_rate_comes_with_the_span_over_seeds():
    losses = [[2 + (x - vertex) ** 2 / 10 for x in range(4)] for vertex in (0.8, 1.0, 1.3)]
    best = made(losses).best(8)
    assert best.low == pytest.approx(10**0.8)
    assert best.high == pytest.approx(10**1.3)
    assert best.rate == pytest.approx(10 ** ((0.8 + 1.0 + 1.3) / 3))
    assert best.rates == pytest.approx([10**0.8, 10, 10**1.3])
    assert best.losses == pytest.approx([2, 2, 2])


FINE = tuple(2.0**k for k in range(7))


def test_best_rate_is_a_fit_over_all_rates_near_it():
    # Least squares through (-2, 2), (-1, 1), (0, 0), (1, 1), (2, 1) twentieths. Σx and Σx³ are 0,
    # so the slope is Σxy / Σx² = -2 / 10.
    best = made([[9.0, 2.10, 2.05, 2.0, 2.05, 2.05, 9.0]], FINE).best(8)
    bend = (14 - 5 * 2) / (34 - 20)  # (Σx²y - n·mean(x²)·mean(y)) / (Σx⁴ - n·mean(x²)²)
    assert math.log2(best.rate) == pytest.approx(3 + 0.2 / (2 * bend))


@pytest.mark.parametrize("exploding", [2.25, 4.0, 1e9])
def test_run_on_its_way_to_being_lost_does_not_bend_the_fit(exploding):
    # (-2, 2), (-1, 1), (0, 0) and (1, 5) twentieths; what lies further up counts as 5.
    best = made([[9.0, 2.1, 2.05, 2.0, exploding, 9.0, 9.0]], FINE).best(8)
    by_hand = made([[9.0, 2.1, 2.05, 2.0, 2.25, 9.0, 9.0]], FINE).best(8)
    assert (best.rate, best.loss) == pytest.approx((by_hand.rate, by_hand.loss))
    assert FINE[2] < best.rate < FINE[3]
    assert 1.96 < best.loss < 2.04


LOSSES = st.one_of(st.floats(1, 5), st.floats(1.9, 2.1), st.just(math.nan))
LANDSCAPES = st.integers(1, 7).flatmap(
    lambda seeds: st.lists(st.lists(LOSSES, min_size=7, max_size=7), min_size=1, max_size=seeds)
)


@given(LANDSCAPES, st.randoms(use_true_random=False))
def test_best_rate_lies_where_the_data_is(losses, random):
    best = made(losses, FINE).best(8)
    found = [rate for rate in best.rates if not math.isnan(rate)]
    assert len(best.rates) == len(best.losses) == len(losses)
    assert [math.isnan(rate) for rate in best.rates] == [
        all(map(math.isnan, row)) for row in losses
    ]
    if not found:
        assert math.isnan(best.rate)
        return
    assert FINE[0] * 0.999 <= min(found) <= best.low <= best.high <= max(found) <= FINE[-1] * 1.001
    assert min(found) <= best.rate <= max(found)
    for row, rate, loss in zip(losses, best.rates, best.losses):
        if not math.isnan(rate):
            lowest = min(y for y in row if not math.isnan(y))
            assert lowest - 0.04 < loss < lowest + 0.25
    if len(losses) == 1:
        assert best.low == best.rate == best.high
    random.shuffle(losses)
    shuffled = made(losses, FINE).best(8)
    assert (shuffled.rate, shuffled.loss) == pytest.approx((best.rate, best.loss), rel=1e-12)
    assert (shuffled.low, shuffled.high) == pytest.approx((best.low, best.high), rel=1e-12)


@pytest.mark.parametrize("seeds", [4, 12])
def test_interval_holds_95_percent_of_resamples(seeds):
    logs = torch.randn(seeds, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    losses = [[2 + (x - 1 - log / 4) ** 2 / 10 for x in range(4)] for log in logs.tolist()]
    best = made(losses).best(8)
    rates = torch.tensor(best.rates, dtype=torch.float64).log()
    drawn = torch.randint(seeds, (100_000, seeds), generator=torch.Generator().manual_seed(2))
    means = rates[drawn].mean(1).exp()
    assert (means < best.low - 1e-9).double().mean() < 0.03
    assert (means > best.high + 1e-9).double().mean() < 0.03
    assert ((means > best.low * 1.001) & (means < best.high * 0.999)).double().mean() < 0.955


def test_lost_is_a_run_that_ended_above_its_start_or_nowhere():
    result = made([[2.0, 4.5, math.nan, 3.0], [2.0, 4.5, 3.0, 3.0]])
    assert result.lost.tolist() == [[[False, False, True, False]], [[False] * 4]]
    result.held_out[8] = torch.full((2, 4, 2), 4.6)
    result.held_out[8][1] = 4.4
    result.finished[1, 0, 0] = False
    assert result.lost.tolist() == [[[False, False, True, False]], [[False, True, False, False]]]
    assert result.losses(8).isnan().tolist() == [
        [False] * 2 + [True, False],
        [False, True] + [False] * 2,
    ]
    row = repr(result).splitlines()[2].split()
    assert row[:5] == ["8", "·", "lost", "lost", "3.000"]
    assert "above the loss it began with" in repr(result)
    assert "not finished" in result._repr_html_()
    assert result.best(8).rates[1] == pytest.approx(1.0)  # its neighbour is lost


@pytest.mark.parametrize(
    ("losses", "rate"),
    [([1.0, 2, 3, 4], 1.0), ([4.0, 3, 2, 1], 1000.0), ([3.0, 2, math.nan, math.nan], 10.0)],
)
def test_best_at_the_edge_is_said_to_be(losses, rate):
    result = made([losses])
    best = result.best(8)
    assert best.at_edge
    assert best.rate == pytest.approx(rate)
    assert "(edge)" in repr(result)


def test_updates_to_a_target():
    result = made([[1.0, 1, 1, 1]])
    result.held_out_steps[8] = [0, 4, 8]
    result.held_out[8] = torch.tensor(
        [[[4.0, 3, 1], [4, 1, 5], [4, math.nan, math.nan], [2, 1, 1]]]
    )
    reached = result.updates_to(2.0)[0, 0].tolist()
    assert reached[0] == 6  # half-way from 3 at update 4 to 1 at update 8
    assert reached[1] == pytest.approx(4 * 2 / 3)  # and what comes later does not matter
    assert math.isnan(reached[2])
    assert reached[3] == 0


def test_fewest_updates_are_a_mean_over_seeds_at_the_rate_that_brings_all_of_them():
    result = made([[1.0] * 3] * 2, rates=(1.0, 10.0, 100.0))
    result.held_out_steps[8] = [0, 10]
    # Target 3: the rates need (5, 5), (2, never) and (10, 2) updates.
    result.held_out[8] = torch.tensor([[[4.0, 2], [5, -5], [4, 3]], [[4.0, 2], [4, 4], [5, -5]]])
    assert result.fewest_updates_to(3.0) == [5]
    assert math.isnan(result.fewest_updates_to(0.5)[0])


@pytest.mark.parametrize("method", ["one-by-one", "together"])
def test_warmups_side_by_side_are_sweeps_of_one_warmup_each(monkeypatch, method):
    monkeypatch.setattr(engine, "stack_size", lambda _, runs, m: m == "together" and len(runs))
    how = GRID | {
        "seeds": [0, 3],
        "optimizer": "momentum",
        "dtype": torch.float64,
        "evaluations": 2,
    }
    results = sweep_warmups(CONFIG, WINDOWS, warmups=[0, 7, 0.5], method=method, **how)
    assert list(results) == [0, 7, 0.5]
    for warmup, result in results.items():
        assert_same(result, sweep(CONFIG, WINDOWS, warmup=warmup, method="one-by-one", **how))
    assert not torch.equal(results[0].loss, results[7].loss)


def test_interrupt_marks_the_result_of_every_warmup(monkeypatch):
    monkeypatch.setattr(module, "run_all", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    results = sweep_warmups(CONFIG, WINDOWS, warmups=[0, 5], **GRID)
    assert all(result.interrupted and not result.finished.any() for result in results.values())


@pytest.mark.parametrize("warmups", [[], [3, 3], [1, 1.0], 4, "45", [-1], [1.5]])
def test_warmups_that_cannot_be_meant_are_refused(warmups):
    with pytest.raises(ValueError, match="warmup"):
        sweep_warmups(CONFIG, WINDOWS, warmups=warmups, **GRID)


def test_stored_sweep_is_the_same(tmp_path):
    result = sweep(
        CONFIG, WINDOWS, **GRID | {"learning_rates": [1e-2, 1e30]}, seeds=[0, 1], evaluations=2
    )
    result.save(tmp_path / "sweep.safetensors")
    loaded = SweepResult.load(tmp_path / "sweep.safetensors")
    assert_same(result, loaded, 0)
    for name in (*results.SETTINGS, *results.NOTES):
        assert getattr(loaded, name) == getattr(result, name)
    assert repr(loaded) == repr(result)


def test_damaged_file_is_refused(tmp_path):
    path = tmp_path / "sweep.safetensors"
    sweep(CONFIG, WINDOWS, **GRID).save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        SweepResult.load(path)
    path.write_text("not a sweep")
    with pytest.raises(ValueError, match="written by save"):
        SweepResult.load(path)
    results.save_file({"loss": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="written by save"):
        SweepResult.load(path)
    with pytest.raises(FileNotFoundError):
        SweepResult.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"learning_rates": []}, "learning_rates"),
        ({"learning_rates": [0.1, 0.1]}, "learning_rates"),
        ({"learning_rates": [0.1, 0.01]}, "learning_rates"),
        ({"learning_rates": [-0.1, 0.01]}, "learning_rates"),
        ({"learning_rates": 0.1}, "learning_rates"),
        ({"batch_sizes": []}, "batch_sizes"),
        ({"batch_sizes": [0, 4]}, "batch_sizes"),
        ({"batch_sizes": [16, 4]}, "batch_sizes"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [-1]}, "seeds"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"examples": 15}, "batch of 16"),
        ({"examples": [200]}, "each of the 2 batch sizes"),
        ({"examples": 0}, "examples"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"method": "all"}, "method"),
        ({"warmup": -1}, "warmup"),
        ({"warmup": 1.5}, "warmup"),
        ({"evaluations": 0}, "evaluations"),
        ({"data": WINDOWS[:1]}, "two examples"),
        ({"optimizer": Adafactor, "method": "together"}, "Adafactor"),
    ],
)
def test_bad_sweep_is_named_before_any_work(monkeypatch, change, word):
    monkeypatch.setattr(module, "run_all", lambda *_: pytest.fail("work was done"))
    how = {"data": WINDOWS} | GRID | change
    with pytest.raises((ValueError, TypeError), match=word):
        sweep(CONFIG, how.pop("data"), **how)


def test_optimizer_that_cannot_be_stacked_runs_one_by_one():
    how = GRID | {"batch_sizes": [16]}
    result = sweep(CONFIG, WINDOWS, optimizer=Adafactor, **how)
    assert result.ways == {16: "one by one"}
    assert result.loss.isfinite().all()
    assert result.optimizer == "Adafactor"


# A noisy quadratic, h = 1: from w the mean of w² after n updates of SGD at rate e with batch B is
# (1 - e)^2n w² + e² s²/B (1 - (1 - e)^2n) / (1 - (1 - e)²). Start and spread are shared out to many
# dimensions: in one alone a seed's best rate is that of its luck.
START, SPREAD = 4.0, 2.0
DRAWN, DIMENSIONS = 20_000, 64
SHARE = DIMENSIONS**-0.5
# Held out are two more points at ± SPREAD: their mean and variance are exactly the right ones.
ENDS = SHARE * SPREAD * torch.tensor([[1.0], [-1.0]]).expand(2, DIMENSIONS)
POINTS = torch.cat([points(DRAWN, DIMENSIONS, spread=SHARE * SPREAD), ENDS])
HELD_OUT = tuple(part[DRAWN:] for part in as_data(DRAWN + 2))


def quadratic(_):
    start = torch.full((DIMENSIONS,), SHARE * START, dtype=torch.float64)
    return NoisyQuadratic(start, torch.ones_like(start), POINTS)


def expected_loss(rate, batch_size, updates):
    shrunk, noise = moments(rate, batch_size, updates)
    return 1 + (shrunk**2 + noise + SPREAD**2) / 2


def moments(rate, batch_size, updates):
    """Return the mean and the variance of w, in all dimensions, after so many updates."""
    shrink = (1 - rate) ** updates
    noise = rate**2 * SPREAD**2 / batch_size * (1 - shrink**2) / (1 - (1 - rate) ** 2)
    return shrink * START, noise


@pytest.fixture(scope="module")
def known():
    return sweep(
        quadratic, as_data(DRAWN), eval_data=HELD_OUT, dtype=torch.float64,
        learning_rates=[0.01 * 2**k for k in range(7)], batch_sizes=[1, 4, 16, 64],
        examples=[256, 512, 1024, 2048], seeds=range(12), evaluations=32, method="together",
    )  # fmt: skip


def test_losses_of_a_known_problem(known):
    for column, size in enumerate(known.batch_sizes):
        updates = known.examples[column] // size
        for row, rate in enumerate(known.learning_rates):
            mean, variance = moments(rate, size, updates)
            deviation = math.sqrt(2 * variance**2 + 4 * variance * mean**2) / 2 * SHARE  # of w²/2
            error = deviation / len(known.seeds) ** 0.5
            measured = known.loss[:, column, row].mean().item()
            assert measured == pytest.approx(expected_loss(rate, size, updates), abs=4 * error)


def test_best_rate_of_a_known_problem(known):
    for column, size in enumerate(known.batch_sizes):
        updates = known.examples[column] // size
        grid = [0.005 * 1.01**k for k in range(530)]
        right = min(grid, key=lambda rate: expected_loss(rate, size, updates))
        rate = known.best(size).rate
        assert right / 2 < rate < right * 2
        excess = expected_loss(rate, size, updates) - expected_loss(right, size, updates)
        assert excess < 0.02


def test_critical_batch_of_a_known_problem(known):
    target = 1 + (SPREAD**2 + 0.6) / 2
    right, measured = [], []
    for size in known.batch_sizes:
        steps = known.held_out_steps[size]
        on_paper = [[expected_loss(rate, size, n) for n in steps] for rate in known.learning_rates]
        right.append(first_to_reach(target, steps, on_paper))
        measured.append(first_to_reach(target, steps, known.held_out[size].mean(0).tolist()))
    expected, fitted = (critical_batch(known.batch_sizes, found) for found in (right, measured))
    assert fitted.size == pytest.approx(expected.size, rel=0.25)
    assert fitted.min_steps == pytest.approx(expected.min_steps, rel=0.25)


def first_to_reach(target, steps, curves):
    crossings = [results._crossing(steps, curve, target) for curve in curves]
    return min(filter(math.isfinite, crossings))


def test_sgd_is_stable_up_to_two_over_sharpness():
    result = sweep(
        quadratic, as_data(DRAWN), learning_rates=[1.9, 2.1], batch_sizes=[64],
        examples=64 * 400, eval_data=HELD_OUT, dtype=torch.float64,
    )  # fmt: skip
    stable, unstable = result.held_out[64][0, :, -1].tolist()
    assert stable < 100
    assert not unstable < 1e6


def test_plain_sgd_may_be_given_as_a_callable():
    named, given_ = (sweep(CONFIG, WINDOWS, **GRID, optimizer=o).loss for o in ("sgd", SGD))
    torch.testing.assert_close(named, given_, rtol=0, atol=1e-5)
