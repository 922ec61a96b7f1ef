import gc
import math
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from helpers.accumulate import gradients
from helpers.decoder import Decoder
from helpers.footprint import check
from helpers.memory import (
    explain_oom,
    fixed_and_slope,
    largest_batch,
    measure,
    peak_of_saved_tensors,
    search,
    simulate,
    simulation,
)
from helpers.model import ModelConfig, SmallLM, token_loss
from helpers.shapes import Shape
from tests.test_oom import KNOWN

GIB = 2**30

TOKENS = torch.randint(11, (16, 9), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module", autouse=True)
def _quick_collections():
    """Leave what the imports made out of every collection."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


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


# --- simulate -------------------------------------------------------------------------------------

FEW = {
    "gpt2": Shape(97, 32, 32, 4, 4),
    "llama": Shape(97, 32, 32, 4, 4, kv_heads=2, feed=48, family="llama"),
}


def setting(shape, **changes):
    how = {"precision": "bfloat16", "optimizer": "adamw", "trainable": "full"}
    how |= {"attention": "fused", "checkpointing": False}
    return check(shape, **how | changes)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("gpt2", {"precision": "mixed"}),
        ("gpt2", {"attention": "matrix"}),
        ("llama", {"checkpointing": True}),
        ("llama", {"trainable": "lora", "rank": 4}),
    ],
)
def test_two_and_three_layers_tell_all_four(family, kind):
    one = setting(FEW[family], batch_size=3, context=32, **kind)
    assert simulation._extrapolated(one) == simulation._simulate(one)


def test_the_fullest_place_may_be_another_one_in_a_deeper_model():
    deep = setting(Shape(2000, 64, 96, 8, 4, tied=False), batch_size=1, context=48)
    shallow = simulation._simulate(replace(deep, shape=replace(deep.shape, layers=3)))
    all_layers = simulation._simulate(deep)
    assert sum(shallow["loss"].values()) > sum(shallow["embedding"].values())
    assert sum(all_layers["loss"].values()) < sum(all_layers["embedding"].values())
    assert simulation._extrapolated(deep) == all_layers


def test_the_peak_moves_from_the_update_to_the_backward_pass():
    small, large = (simulate("llama-7b", batch_size=size, context=2048) for size in (1, 4))
    assert (small.when, large.when) == ("update", "backward")
    # the update holds parameters, gradients, two moments and their roots: 5 × 12.55 GiB
    assert small.peak == pytest.approx(5 * 2 * 6_738_415_616, rel=1e-3)
    assert large.activations > large.peak / 2


@pytest.mark.skipif(sys.platform == "win32", reason="asks the system for its peak of memory")
def test_a_simulation_takes_hardly_any_memory():
    # VmHWM, since ru_maxrss of a new process begins with that of the process that made it.
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("this system does not tell the peak of one process alone")
    code = (
        "from helpers.memory import simulate;"
        "simulate('llama-7b', batch_size=4, context=2048);"
        f"lines = dict(line.split(':', 1) for line in open({str(status)!r}) if ':' in line);"
        "print(1024 * int(lines['VmHWM'].split()[0]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1.5 * GIB


def test_what_torch_does_not_have_is_not_simulated():
    with pytest.raises(ValueError, match=r"optimizer must be .* simulated; got 'adamw-8bit'"):
        simulate("gpt2-124m", batch_size=1, context=8, optimizer="adamw-8bit")
    with pytest.raises(ValueError, match="context must be at most the model's 1,024; got 2,048"):
        simulate("gpt2-124m", batch_size=1, context=2048)


def test_the_precision_of_new_tensors_is_left_alone():
    simulate(FEW["gpt2"], batch_size=1, context=8)
    assert torch.get_default_dtype() == torch.float32


# --- measure --------------------------------------------------------------------------------------


def training_step(model, batch_size, *, pieces=1, optimizer=torch.optim.AdamW, **how):
    """Return a function that makes one update of a model on random tokens."""
    optimizer = optimizer(model.parameters(), **how)
    tokens = torch.randint(97, (batch_size, 32), generator=torch.Generator().manual_seed(0))

    def step():
        for part in tokens.chunk(pieces):
            (model(part, part) / pieces).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", FEW)
def test_a_real_step_takes_what_was_simulated(family, checkpointing):
    how = {"checkpointing": checkpointing}
    step = training_step(Decoder(FEW[family], **how), 3, foreach=True)
    seen = measure(step, steps=2, device="cpu").later
    told = simulate(FEW[family], batch_size=3, context=32, precision="float32", **how)
    assert seen == told


def test_a_step_by_hand():
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Linear(8, 2, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)

    def step():
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    found = measure(step, device="cpu")
    weights = 4 * (4 * 8 + 8 * 2)
    assert (found.later.parameters, found.later.states) == (weights, weights)
    # the input, both results and their sum
    assert found.later.activations == 4 * (3 * 4 + 3 * 8 + 3 * 2 + 1)
    assert found.first.moments["backward"]["states"] == 0
    assert found.later.moments["backward"]["states"] == weights
    assert found.later.gradients == weights
    assert found.allocator == ()


def test_states_come_with_the_first_update():
    found = measure(training_step(Decoder(FEW["gpt2"]), 1), device="cpu")
    weights = 4 * FEW["gpt2"].parameters
    assert [one.moments["forward"]["states"] > 0 for one in found.steps] == [False, True, True]
    assert found.later.states == pytest.approx(2 * weights, rel=0.01)
    assert found.later.moments["backward"]["states"] == found.later.states
    assert found.later.peak - found.first.moments["backward"]["parameters"] > 3 * weights


def test_the_timeline_rises_falls_and_has_the_peak():
    found = measure(training_step(Decoder(FEW["gpt2"]), 8, foreach=True), device="cpu")
    totals = [sum(parts.values()) for _, parts in found.timeline]
    moments = [moment for moment, _ in found.timeline]
    assert moments.index("forward") < moments.index("backward") < moments.index("update")
    assert max(totals) == found.steps[-1].peak
    activations = [parts["activations"] for moment, parts in found.timeline if moment == "backward"]
    assert activations[-1] < activations[0] / 10


def test_accumulation_holds_one_micro_batch_and_the_gradients():
    def peak(batch_size, pieces):
        step = training_step(Decoder(FEW["llama"]), batch_size, pieces=pieces)
        return measure(step, steps=2, device="cpu").later.moments["backward"]

    alone = sum(peak(8, 1).values())
    gradients, tokens = 4 * FEW["llama"].parameters, 8 * 8 * 32
    two, four = (sum(peak(8 * pieces, pieces).values()) for pieces in (2, 4))
    assert alone < two <= alone + gradients + tokens
    assert four == two + 2 * tokens
    assert sum(peak(32, 1).values()) > 2 * four


def test_frozen_parameters_have_no_gradients():
    model = Decoder(FEW["gpt2"])
    model.tokens.requires_grad_(False)
    found = measure(training_step(model, 2), device="cpu").later
    assert found.parameters - found.gradients == 4 * 97 * 32


def test_an_evaluation_that_keeps_all_logits_grows_with_its_batches():
    model = SmallLM(ModelConfig(97, 8, 16, 2, 2))

    def peak(batches, careful):
        def evaluate():
            with torch.no_grad():
                many = (model(TOKENS[:, :-1]) for _ in range(batches))
                return [logits.argmax(-1) if careful else logits for logits in many]

        return measure(evaluate, steps=2, device="cpu").later.activations

    logits = 4 * 16 * 8 * 97
    assert peak(20, False) - peak(2, False) == 18 * logits
    assert peak(20, True) - peak(2, True) == 18 * 8 * 16 * 8


def test_a_running_total_that_keeps_every_graph():
    x, weight = torch.ones(32, 16), torch.ones(16, 16, requires_grad=True)

    def peak(batches, careful):
        def add_up():
            total = 0.0
            for _ in range(batches):
                loss = (x @ weight).tanh().square().mean()
                total = total + (loss.item() if careful else loss)

        return measure(add_up, steps=2, device="cpu").later.peak

    kept = 4 * 32 * 16  # tanh keeps its result
    assert peak(12, False) - peak(2, False) >= 10 * kept
    assert peak(12, True) == peak(2, True)


def test_fixed_and_slope_of_a_line():
    assert fixed_and_slope([1, 2, 4], [130, 160, 220]) == pytest.approx((100, 30))
    assert fixed_and_slope([1, 8], [130, 340]) == pytest.approx((100, 30))


def test_a_line_through_measurements_finds_what_is_fixed():
    sizes = [8, 16, 32]
    peaks = [peak_of_training(size).later.moments["backward"] for size in sizes]
    fixed, slope = fixed_and_slope(sizes, [sum(peak.values()) for peak in peaks])
    weights_and_states = 3 * 4 * ONE.parameters
    assert fixed == pytest.approx(weights_and_states, rel=0.05)
    one_more = sum(peak_of_training(33).later.moments["backward"].values())
    assert fixed + 33 * slope == pytest.approx(one_more, rel=0.01)


def test_a_line_leads_to_a_batch():
    line = fixed_and_slope([1, 2, 4], [130, 160, 220])
    assert [line.largest_on(card) for card in (130, 159, 160, 400)] == [1, 1, 2, 10]
    with pytest.raises(ValueError, match=r"card must hold one example; that needs 130 B, .* 129 B"):
        line.largest_on(129)
    for bad in (0, -1, "24 GB", math.nan, True):
        with pytest.raises((ValueError, TypeError), match="card must be"):
            line.largest_on(bad)


def test_the_batch_of_a_line_is_what_the_search_finds():
    limit = 1_000_000
    sizes = [16, 32]
    # A trial holds the tokens besides, eight bytes each, and 32 an example.
    peaks = [peak_of_training(size).later.peak + size * 8 * 32 for size in sizes]
    found = largest_batch(training_trial, limit=limit, report=quiet)
    assert abs(fixed_and_slope(sizes, peaks).largest_on(limit) - found) <= 1


@pytest.mark.parametrize(
    ("sizes", "peaks", "words"),
    [
        ([4], [100], "batch_sizes must hold two different sizes or more"),
        ([4, 4], [100, 101], "batch_sizes must hold two different sizes or more"),
        ([1, 2], [100], "peaks must hold one number for each of the 2 batch sizes; got 1"),
        ([1, 2], [100, 100], "peaks must rise with the batch size"),
        ([1, 2], [100, 250], "peaks must leave something fixed"),
        # flat while the update is the fullest, and then a line
        ([1, 2, 4, 8, 16], [100, 100, 100, 180, 340], "peaks must lie on one line"),
        ([0, 2], [100, 110], "batch_sizes must be a whole number of at least 1; got 0"),
    ],
)
def test_what_is_no_line_is_refused(sizes, peaks, words):
    with pytest.raises(ValueError, match=words):
        fixed_and_slope(sizes, peaks)


def test_bad_measurements_are_refused():
    with pytest.raises(ValueError, match="step must make tensors on 'cpu'; it made none"):
        measure(lambda: None, device="cpu")
    with pytest.raises(ValueError, match="steps must be a whole number of at least 2; got 1"):
        measure(lambda: None, steps=1)
    with pytest.raises(ValueError, match="snapshot is for the CUDA allocator; got 'here'"):
        measure(lambda: None, device="cpu", snapshot="here")


# --- largest_batch --------------------------------------------------------------------------------


def refuse(*_):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def quiet(_):
    """Report to nobody."""


@pytest.mark.parametrize("answer", [1, 2, 3, 128, 247])
def test_it_finds_the_very_size_in_few_trials(answer):
    tried, told = [], []

    def trial(batch_size):
        tried.append(batch_size)
        if batch_size > answer:
            refuse()

    assert largest_batch(trial, report=told.append) == answer
    assert len(tried) <= 2 * math.log2(answer) + 2
    assert len(tried) == len(set(tried)) == len(told)
    for size, line in zip(tried, told):
        assert line.startswith(f"batch size {size:,} {'fits' if size <= answer else 'runs out'}")


ONE = Shape(97, 32, 32, 1, 4)


def training_trial(batch_size, *, updates=True, length=32):
    """Build a small model and make two updates, or only pass back."""
    model = Decoder(ONE)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    tokens = torch.zeros(batch_size, length, dtype=torch.int64)
    for _ in range(2):
        model(tokens, tokens).backward()
        if updates:
            optimizer.step()
        optimizer.zero_grad()


def peak_of_training(batch_size):
    return measure(training_step(Decoder(ONE), batch_size, foreach=True), device="cpu")


@pytest.mark.parametrize("at_most", [1, 2, 3, 512, 700, 1000, 1001, 4096])
def test_no_batch_above_the_bound_is_tried(at_most):
    tried = []

    def trial(batch_size):
        tried.append(batch_size)
        if batch_size > 1000:
            refuse()

    assert largest_batch(trial, at_most=at_most, report=quiet) == min(at_most, 1000)
    assert max(tried) <= at_most
    assert len(tried) == len(set(tried))


def test_memory_need_not_run_out_where_a_bound_is_given():
    assert largest_batch(quiet, at_most=12, report=quiet) == 12
    with pytest.raises(ValueError, match="at_most must be a whole number of at least 1; got 0"):
        largest_batch(quiet, at_most=0)
    with pytest.raises(ValueError, match="trial must fit with one example"):
        largest_batch(refuse, at_most=12, report=quiet)


def test_the_report_says_which_length_was_tried():
    told = []
    largest_batch(training_trial, limit=1_000_000, at_most=2, report=told.append)
    assert [line.split(", ")[1] for line in told] == ["with 32 tokens an example"] * 2
    told.clear()

    def mixed(batch_size):
        training_trial(batch_size, length=8)
        training_trial(batch_size, length=24)
        if batch_size > 1:
            refuse()

    largest_batch(mixed, at_most=2, report=told.append)
    assert told == [
        "batch size 1 fits, with 24 tokens an example",
        "batch size 2 runs out of memory, with 24 tokens an example",
    ]


def test_a_limit_on_the_cpu_finds_what_measuring_confirms():
    limit = 1_000_000
    answer = largest_batch(training_trial, limit=limit, report=quiet)
    assert answer not in (1, 2, 4, 8, 16)  # between two sizes that were tried
    tokens = 8 * 32
    assert peak_of_training(answer).later.peak + answer * tokens <= limit
    assert peak_of_training(answer + 1).later.peak + (answer + 1) * tokens > limit


def test_a_trial_without_updates_promises_too_much():
    def only_back(batch_size):
        training_trial(batch_size, updates=False)

    limit = 1_000_000
    promised = largest_batch(only_back, limit=limit, report=quiet)
    assert promised > largest_batch(training_trial, limit=limit, report=quiet)


def test_the_longest_examples_decide():
    lengths = [8] * 30 + [32] * 2

    def on(some):
        def trial(batch_size):
            chosen = (some * batch_size)[:batch_size]
            training_trial(batch_size, length=max(chosen))

        return largest_batch(trial, limit=1_000_000, report=quiet)

    assert on(lengths) > on(sorted(lengths, reverse=True))


def test_nothing_of_a_failed_trial_is_there_at_the_next():
    made = []

    def trial(batch_size):
        assert not [one for one in made if one() is not None]
        model = nn.Linear(8, 8)
        model.loop = [model]  # let go by the collector alone
        made.append(weakref.ref(model))
        out = model(torch.ones(batch_size, 8))
        if batch_size > 5:
            out.register_hook(refuse)
        out.sum().backward()

    assert largest_batch(trial, report=quiet) == 5
    assert all(one() is None for one in made)


def test_a_real_refusal_of_the_cpu():
    def trial(batch_size):
        torch.empty(2**50 if batch_size > 5 else 2**10, dtype=torch.uint8)  # a pebibyte

    assert largest_batch(trial, report=quiet) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_a_real_limit_of_the_system():
    code = """
import resource, torch
from helpers.memory import largest_batch
room = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 2**29
resource.setrlimit(resource.RLIMIT_AS, (room, room))
def trial(size):
    torch.zeros(size, 2**24)
print(largest_batch(trial, report=lambda _: None))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 4 <= int(done.stdout) <= 8  # of 64 MiB each in 512 MiB


@pytest.mark.parametrize(
    "error",
    [RuntimeError("CUDA error: device-side assert triggered"), ValueError("no"), MemoryError()],
)
def test_any_other_error_is_passed_on(error):
    def trial(batch_size):
        if batch_size > 2:
            raise error

    with pytest.raises(type(error)) as caught:
        largest_batch(trial, report=quiet)
    assert caught.value is error


def test_an_error_without_words_counts():
    def trial(batch_size):
        if batch_size > 3:
            raise torch.OutOfMemoryError

    assert largest_batch(trial, report=quiet) == 3


def test_not_even_one_example():
    with pytest.raises(ValueError, match=r"trial must fit with one example; .* at least 2.00 GiB"):
        largest_batch(refuse, report=quiet)
    words = r"needed at least .* KiB, and the limit is 1.00 KiB"
    with pytest.raises(ValueError, match=words):
        largest_batch(training_trial, limit=1024, report=quiet)


def test_a_trial_that_keeps_the_error_to_itself(monkeypatch):
    monkeypatch.setattr(search, "MOST_EXAMPLES", 8)

    def trial(batch_size):
        try:
            training_trial(batch_size)
        except torch.OutOfMemoryError:
            return

    with pytest.raises(ValueError, match="trial must let the out-of-memory error out"):
        largest_batch(trial, limit=1_000_000, report=quiet)
    with pytest.raises(TypeError, match=r"trial must return nothing, .* got False"):
        largest_batch(lambda _: False, report=quiet)
    with pytest.raises(ValueError, match="trial must run out of memory at some size"):
        largest_batch(quiet, report=quiet)


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (-1, ValueError), (0.5, TypeError), (True, TypeError)]
)
def test_a_limit_is_a_whole_number_of_bytes(limit, error):
    with pytest.raises(error, match="limit must be a whole number of at least 1"):
        largest_batch(quiet, limit=limit)
    with pytest.raises(TypeError, match="trial must be a function of a batch size; got 3"):
        largest_batch(3)


def test_our_own_limit_is_told_and_explained():
    told = []
    with pytest.raises(ValueError, match=r"1\.00 KiB allowed") as caught:
        largest_batch(training_trial, limit=1024, report=told.append)
    assert explain_oom(str(caught.value)).cause == "limit"
    assert told == ["batch size 1 runs out of memory"]


@pytest.mark.parametrize("message", KNOWN)
def test_what_explain_oom_knows_is_out_of_memory_for_the_search(message):
    def trial(batch_size):
        if batch_size > 3:
            raise RuntimeError(message)

    explain_oom(message)
    assert largest_batch(trial, report=quiet) == 3
