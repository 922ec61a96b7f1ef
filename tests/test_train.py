import math
from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers.train as module
from helpers.accumulate import backward
from helpers.data import CharTokenizer, collate, make_records, shuffled_batches
from helpers.model import ModelConfig, SmallLM
from helpers.plan import RunPlan
from helpers.schedule import batch_ramp, lr_factors
from helpers.train import evaluate, train

WINDOWS = torch.randint(11, (45, 9), generator=torch.Generator().manual_seed(0))
CONFIG = ModelConfig(11, 8, 8, 1, 2)


def small():
    return SmallLM(CONFIG)


def same(a, b):
    return all(map(torch.equal, a.parameters(), b.parameters()))


def ragged(count=20):
    records = make_records(count)
    tokenizer = CharTokenizer("".join(record.text for record in records))
    data = collate(records, tokenizer)
    return data, ModelConfig(tokenizer.vocab_size, data[0].shape[1], 8, 1, 2)


class Spy(SmallLM):
    """Remembers the first token of every example that it is trained on."""

    def __init__(self, config=CONFIG):
        super().__init__(config)
        self.seen = []

    def forward(self, tokens):
        if self.training:
            self.seen.append(tokens[:, 0].tolist())
        return super().forward(tokens)


def numbered(count):
    """Windows whose first token is their number."""
    windows = torch.zeros(count, 9, dtype=torch.int64)
    windows[:, 0] = torch.arange(count)
    return windows, ModelConfig(count, 8, 8, 1, 2)


def by_hand(model, *, batch_size, accumulation, epochs, lr, factors, clip, optimizer):
    """Train with a plain loop."""
    losses, made = [], 0
    for epoch in range(epochs):
        batches = shuffled_batches(len(WINDOWS), batch_size, seed=4, epoch=epoch)
        while batches:
            window, batches = batches[:accumulation], batches[accumulation:]
            optimizer.param_groups[0]["lr"] = lr * factors[made]
            optimizer.zero_grad()
            count = 8 * sum(len(batch) for batch in window)
            losses.append(0.0)
            for batch in window:
                logits = model(WINDOWS[batch, :-1]).reshape(-1, 11)
                target = WINDOWS[batch, 1:].reshape(-1)
                loss = F.cross_entropy(logits, target, reduction="sum") / count
                loss.backward()
                losses[-1] += loss.detach()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            made += 1
    return [float(loss) for loss in losses]


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("name", ["adamw", "sgd", "momentum"])
def test_bit_for_bit_the_loop_written_by_hand(accumulation, clip, name):
    steps = 2 * math.ceil(12 / accumulation)
    factors = lr_factors(steps, 3, "cosine")
    how = {"batch_size": 4, "accumulation": accumulation, "epochs": 2, "lr": 0.01, "clip": clip}
    ours, theirs = small(), small()
    history = train(ours, WINDOWS, schedule=factors, optimizer=name, seed=4, **how)
    optimizer = {
        "adamw": partial(torch.optim.AdamW, fused=True),
        "sgd": partial(torch.optim.SGD, fused=True),
        "momentum": partial(torch.optim.SGD, momentum=0.9, fused=True),
    }[name](theirs.parameters(), lr=0.01)
    losses = by_hand(theirs, factors=factors, optimizer=optimizer, **how)
    assert same(ours, theirs)
    assert history.loss == losses
    assert history.lr == [0.01 * factor for factor in factors]


@given(
    examples=st.integers(1, 30),
    batch_size=st.integers(1, 7),
    accumulation=st.integers(1, 4),
    length=st.one_of(
        st.builds(lambda n: {"epochs": n / 2}, st.integers(1, 6)),
        st.builds(lambda n: {"steps": n}, st.integers(1, 12)),
    ),
    drop_last=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_training_agrees_with_the_plan(examples, batch_size, accumulation, length, drop_last):
    windows, config = numbered(examples)
    how = {"batch_size": batch_size, "accumulation": accumulation, "drop_last": drop_last}
    if drop_last and examples < batch_size:
        with pytest.raises(ValueError, match="no update would ever happen"):
            train(SmallLM(config), windows, lr=1e-3, **how, **length)
        return
    renamed = {"max_steps" if name == "steps" else name: n for name, n in length.items()}
    plan = RunPlan(examples, **how, **renamed)
    model = Spy(config)
    history = train(model, windows, lr=1e-3, **how, **length)
    assert history.plan == plan
    assert history.steps == plan.total_steps
    sizes = [b - a for a, b in zip([0, *history.examples], history.examples)]
    assert sizes == [plan.update_sizes[n % plan.steps_per_epoch] for n in range(history.steps)]
    assert history.tokens == [8 * seen for seen in history.examples]
    # each epoch has every example at most once, and no window crosses its end
    for start in range(0, len(model.seen), plan.batches_per_epoch):
        epoch = [n for batch in model.seen[start : start + plan.batches_per_epoch] for n in batch]
        assert len(set(epoch)) == len(epoch)


def test_every_epoch_has_an_order_of_its_own():
    windows, config = numbered(30)
    model = Spy(config)
    train(model, windows, batch_size=5, epochs=3, lr=1e-3)
    seen = [example for batch in model.seen for example in batch]
    orders = [tuple(seen[start : start + 30]) for start in (0, 30, 60)]
    assert len(set(orders)) == 3
    assert all(sorted(order) == list(range(30)) for order in orders)


def test_two_runs_are_the_same_and_another_seed_is_not():
    def run(seed):
        model = small()
        return model, train(model, WINDOWS, batch_size=4, epochs=2, lr=0.01, seed=seed)

    (first, one), (again, two), (other, _) = run(0), run(0), run(1)
    assert same(first, again)
    assert one.loss == two.loss
    assert not same(first, other)


def test_fewer_batches_than_the_accumulation_still_update():
    # pet 25: no update at all, whatever the epochs
    model, before = small(), small()
    history = train(model, WINDOWS[:3], batch_size=1, accumulation=8, epochs=2, lr=0.01)
    assert history.steps == 2
    assert not same(model, before)


def test_accumulated_run_is_the_whole_run():
    data, config = ragged()
    finals = []
    for how in ({"batch_size": 8}, {"batch_size": 2, "accumulation": 4}):
        model = SmallLM(config).double()
        history = train(model, data, lr=3e-3, steps=20, clip=1.0, **how)
        finals.append((model, history))
    (whole, one), (pieces, two) = finals
    assert one.loss == pytest.approx(two.loss, rel=1e-10)
    assert one.tokens == two.tokens
    for a, b in zip(whole.parameters(), pieces.parameters()):
        assert torch.allclose(a, b, rtol=0, atol=1e-10)


def test_rate_is_set_before_the_update():
    # pytorch-lightning 17972: the first update ran at the full rate
    model, before = small(), small()
    train(model, WINDOWS, batch_size=4, steps=1, lr=1.0, optimizer="sgd", schedule=[0.0])
    assert same(model, before)


def test_divergence_ends_the_run_and_is_said():
    history = train(small(), WINDOWS, batch_size=4, epochs=9, lr=1e12, optimizer="sgd")
    assert history.diverged_at == history.steps + 1 < history.plan.total_steps
    assert all(map(math.isfinite, history.loss))
    assert math.isnan(history.final_loss)
    assert f"diverged at update {history.diverged_at}" in repr(history)


def test_divergence_by_the_very_last_update_is_no_number():
    history = train(
        small(), WINDOWS, batch_size=4, steps=1, lr=1e30, optimizer="sgd", eval_data=WINDOWS
    )
    assert not math.isfinite(history.final_loss)


def test_interrupt_returns_what_there_is(monkeypatch):
    made = []

    def interrupted(*arguments, **how):
        if len(made) == 5:
            raise KeyboardInterrupt
        made.append(1)
        return backward(*arguments, **how)

    monkeypatch.setattr(module, "backward", interrupted)
    model = small()
    history = train(model, WINDOWS, batch_size=4, epochs=3, lr=1e-3, eval_data=WINDOWS)
    assert history.interrupted
    assert history.steps == 5
    assert "5 of 36 updates" in repr(history)
    assert "interrupted" in repr(history)
    assert all(weight.grad is None for weight in model.parameters())


def test_held_out_losses_are_where_they_were_asked_for():
    history = train(
        small(), WINDOWS, batch_size=4, steps=10, lr=1e-3, eval_data=WINDOWS, eval_every=4
    )
    assert list(history.held_out) == [0, 4, 8, 10]
    short = train(small(), WINDOWS, batch_size=4, steps=10, lr=1e-3, eval_data=WINDOWS)
    assert list(short.held_out) == [0, 10]
    assert short.final_loss == short.held_out[10]
    assert math.isnan(train(small(), WINDOWS, batch_size=4, steps=1, lr=1e-3).final_loss)


def test_measuring_does_not_change_the_run():
    plain, measured = small(), small()
    train(plain, WINDOWS, batch_size=4, steps=10, lr=1e-3)
    train(measured, WINDOWS, batch_size=4, steps=10, lr=1e-3, eval_data=WINDOWS, eval_every=1)
    assert same(plain, measured)


def test_history_holds_plain_numbers():
    history = train(small(), WINDOWS, batch_size=4, steps=3, lr=1e-3, eval_data=WINDOWS)
    numbers = [*history.loss, *history.lr, *history.seconds, *history.held_out.values()]
    assert all(type(number) is float for number in numbers)
    assert all(type(number) is int for number in (*history.examples, *history.tokens))
    assert history.seconds == sorted(history.seconds)


def test_mode_is_left_as_it_was_and_training_is_in_training_mode():
    model = Spy()
    model.eval()
    train(model, WINDOWS, batch_size=4, steps=1, lr=1e-3, eval_data=WINDOWS)
    assert not model.training
    assert model.seen


def test_old_gradients_do_not_enter():
    model, clean = small(), small()
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    for one in (model, clean):
        train(one, WINDOWS, batch_size=4, steps=1, lr=0.1, optimizer="sgd")
    assert same(model, clean)


@pytest.mark.parametrize("batch_size", [4, 7, 32, 1000])
def test_evaluation_does_not_depend_on_its_batch_size(batch_size):
    # pytorch-lightning 2924: a mean of means
    data, config = ragged()
    model = SmallLM(config)
    logits = model(data[0]).double().log_softmax(-1)
    rows = data[1] != -100
    expected = -logits[rows].gather(1, data[1][rows][:, None]).mean().item()
    assert evaluate(model, data, batch_size=batch_size) == pytest.approx(expected, rel=1e-6)
    assert model.training


class Dropping(SmallLM):
    """Sets random logits to zero, in training only."""

    def forward(self, tokens):
        return F.dropout(super().forward(tokens), 0.5, self.training)


def test_evaluation_is_not_in_training_mode():
    model, plain = Dropping(CONFIG), small()
    assert evaluate(model, WINDOWS) == evaluate(plain, WINDOWS)
    assert model.training
    history = train(model, WINDOWS, batch_size=4, steps=1, lr=1e-3, eval_data=WINDOWS)
    assert history.held_out[0] == evaluate(plain, WINDOWS)


def test_a_custom_optimizer_is_called_with_parameters_and_rate():
    made = []

    def make(parameters, lr):
        made.append(lr)
        return torch.optim.Adagrad(parameters, lr=lr)

    history = train(small(), WINDOWS, batch_size=4, steps=2, lr=0.25, optimizer=make)
    assert made == [0.25]
    assert history.steps == 2


SILENT = WINDOWS[:, :-1], torch.full((45, 8), -100)
ONE_TARGET = SILENT[0], SILENT[1].clone()
ONE_TARGET[1][0] = 1
RAMP = batch_ramp(4, {3: 8, 5: 14})
BAD = [
    ({"data": WINDOWS[:0]}, "data"),
    ({"data": WINDOWS[:, :1]}, "data"),
    ({"data": WINDOWS.float()}, "data"),
    ({"data": WINDOWS[0]}, "data"),
    ({"data": "text"}, "data"),
    ({"data": (WINDOWS, WINDOWS[:, 1:])}, "data"),
    ({"data": WINDOWS.repeat(1, 2)}, "context; got 17"),
    ({"data": WINDOWS + 5}, "vocab_size of 11; got"),
    ({"data": SILENT}, "data must hold a target"),
    ({"data": ONE_TARGET}, "every update a target"),
    ({"eval_data": WINDOWS[:0]}, "eval_data"),
    ({"eval_data": SILENT}, "eval_data must hold a target"),
    ({"eval_every": 0}, "eval_every"),
    ({"batch_size": 0}, "batch_size"),
    ({"batch_size": 2.5}, "batch_size"),
    ({"accumulation": 0}, "accumulation"),
    ({"steps": 0}, "max_steps"),
    ({"epochs": 2, "steps": 2}, "not both"),
    ({"lr": 0.0}, "lr"),
    ({"lr": -1e-3}, "lr"),
    ({"lr": math.nan}, "lr"),
    ({"lr": math.inf}, "lr"),
    ({"lr": "fast"}, "lr"),
    ({"clip": 0.0}, "clip"),
    ({"schedule": [1.0] * 7}, "each of the 12 updates; got 7"),
    ({"schedule": [math.nan] * 12}, "schedule"),
    ({"schedule": [-1.0] * 12}, "schedule"),
    ({"optimizer": "adagrad"}, "optimizer must be one of"),
    ({"normalize": "examples"}, "normalize must be one of"),
    ({"seed": -1}, "seed"),
    ({"seed": 0.5}, "seed"),
    ({"ramp": batch_ramp(8, [3])}, "ramp must begin at the plan's own batch of 4"),
    ({"ramp": batch_ramp(4, {3: 6})}, "ramp must hold multiples"),
    ({"ramp": [8, 16]}, "ramp must be what batch_ramp returns"),
    ({"grow": "devices"}, "grow must be one of"),
    ({"ramp": RAMP, "grow": "batch_size", "batch_size": 2, "accumulation": 2}, "does without"),
]


@pytest.mark.parametrize(("change", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_argument_is_named_before_any_work(change, words):
    model, before = small(), small()
    how = {"data": WINDOWS, "batch_size": 4, "lr": 1e-3} | change
    torch.manual_seed(99)
    random_before = torch.get_rng_state()
    with pytest.raises((ValueError, TypeError), match=words):
        train(model, how.pop("data"), **how)
    assert same(model, before)
    assert torch.equal(torch.get_rng_state(), random_before)


def test_some_examples_without_a_target_are_no_error():
    history = train(small(), ONE_TARGET, batch_size=45, epochs=2, lr=1e-3)
    assert history.tokens == [8, 16]


def ramped(grow, **how):
    """Train with a batch of 2 × 2 that becomes 8, then 16; return the model and what happened."""
    windows, config = numbered(45)
    model = Spy(config).double()
    history = train(
        model, windows, batch_size=2, accumulation=2, steps=12, lr=0.01, grow=grow, clip=1.0,
        ramp=batch_ramp(4, {3: 8, 5: 16}), schedule=lr_factors(12, 4), **how,
    )  # fmt: skip
    return model, history


def test_a_ramp_grows_by_accumulation_or_by_micro_batch_over_the_same_examples():
    (pieces, one), (larger, two) = ramped("accumulation"), ramped("batch_size")
    # 3 × 4 + 2 × 8 is 28 of 45 examples, and 16 + 1 are the others; then 16, 16, 13 an epoch
    sizes = [4, 4, 4, 8, 8, 16, 1, 16, 16, 13, 16, 16]
    for history in (one, two):
        assert [b - a for a, b in pairwise([0, *history.examples])] == sizes
        assert one.lr == [0.01 * factor for factor in (0.25, 0.5, 0.75, *[1.0] * 9)]
    assert [n for batch in pieces.seen for n in batch] == [
        n for batch in larger.seen for n in batch
    ]
    assert max(map(len, pieces.seen)) == 2
    micro_batches = [2, 2] * 3 + [4, 4] * 2 + [8, 8] + [1] + [8, 8] * 2 + [8, 5] + [8, 8] * 2
    assert list(map(len, larger.seen)) == micro_batches
    assert one.loss == pytest.approx(two.loss, rel=1e-10)
    for a, b in zip(pieces.parameters(), larger.parameters()):
        assert torch.allclose(a, b, rtol=0, atol=1e-10)


def test_a_ramp_is_the_runs_of_its_stages_one_after_another():
    # With plain SGD nothing is carried over but the weights; whole epochs, so that orders agree.
    windows = WINDOWS[:16]
    ramp, by_hand = small(), small()
    train(ramp, windows, batch_size=4, steps=6, lr=0.1, optimizer="sgd", ramp=batch_ramp(4, [4]))
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    for epoch, size in ((0, 4), (1, 8)):
        for positions in shuffled_batches(16, size, seed=0, epoch=epoch):
            optimizer.zero_grad()
            backward(by_hand, [(windows[positions, :-1], windows[positions, 1:])])
            optimizer.step()
    for a, b in zip(ramp.parameters(), by_hand.parameters()):
        assert torch.allclose(a, b, rtol=0, atol=1e-6)
