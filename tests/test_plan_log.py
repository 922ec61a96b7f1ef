"""Logs in the wording of four tools, with numbers of our own, or public ones of which we say so."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.plan import RunPlan, check_log


def transformers(examples, epochs, size, accumulation, total, steps):
    return (
        f"***** Running training *****\n  Num examples = {examples:,}\n  Num Epochs = {epochs:,}\n"
        f"  Instantaneous batch size per device = {size:,}\n"
        f"  Total train batch size (w. parallel, distributed & accumulation) = {total:,}\n"
        f"  Gradient Accumulation steps = {accumulation}\n"
        f"  Total optimization steps = {steps:,}\n  Number of trainable parameters = 7,615,616"
    )


def unsloth(examples, epochs, size, accumulation, total, steps, devices=1):
    return (
        f"==((====))==  Unsloth - 2x faster | Num GPUs used = {devices}\n"
        f"   \\\\   /|    Num examples = {examples:,} | Num Epochs = {epochs:,} | Total steps = "
        f"{steps:,}\nO^O/ \\_/ \\    Batch size per device = {size:,} | Gradient accumulation "
        f"steps = {accumulation}\n\\        /    Data Parallel GPUs = {devices} | Total batch size "
        f"({size} x {accumulation} x {devices}) = {total:,}\n"
    )


def axolotl(plan, steps):
    return (
        f"micro_batch_size: {plan.batch_size}\ngradient_accumulation_steps: {plan.accumulation}\n"
        f"num_epochs: {plan.epochs}\neval_batch_size: 99\n[DEBUG] [axolotl.calculate_total_num_"
        f"steps:405] [RANK:0] total_num_tokens: {plan.tokens:_}\n[RANK:0] total_num_steps: {steps}"
    )


def torchtune(plan, step, per_epoch):
    return (
        f"batch_size: {plan.batch_size}\nepochs: {plan.epochs}\nmax_steps_per_epoch: null\n"
        f"gradient_accumulation_steps: {plan.accumulation}\n"
        f"1|{step}|Loss: 1.2436443567276:  26%|██▌       | {step}/{per_epoch} [06:45<17:27, 13.96s/"
    )


def test_a_banner_that_contradicts_its_own_updates():
    # unsloth 224: 16 × 8 on 8 devices were asked for, and 4 × 2 were shown
    text = unsloth(12_734_115, 2, 4, 2, 64, 99_486, devices=8)
    found = check_log(None, text)
    assert found.effective_batch == 256
    (told,) = found.contradicts
    assert told == (
        "12,734,115 examples, 2 epochs and 99,486 updates make 256 examples an update, and the "
        "text says 64."
    )
    plan = RunPlan(12_734_115, 16, accumulation=2, devices=8, epochs=2)
    against = check_log(plan, text)
    assert told in against.contradicts
    assert "examples an update: 256." in against.agrees
    assert "updates in all: 99,486." in against.agrees
    assert "batch size of a device: 4 in the log, and 16 in the plan." in against.contradicts


def test_a_batch_that_counts_completions():
    # open-r1 483: 7 devices × 8 × 4, and 8 completions of each prompt
    text = transformers(5498, 1, 8, 4, 224, 196)
    found = check_log(RunPlan(5498, 1, accumulation=4, devices=7), text)
    assert found.effective_batch == 28
    assert "The batch of 224 is that of 7 devices." in found.implies
    assert any(line.startswith("224 is 8 × 28") for line in found.implies)
    assert any("make 28 examples an update, and the text says 224" in n for n in found.contradicts)
    assert any("drop_last_update=True" in line for line in found.contradicts)
    left_out = RunPlan(5498, 1, accumulation=4, devices=7, drop_last_update=True)
    assert "updates in all: 196." in check_log(left_out, text).agrees


@pytest.mark.parametrize(
    ("examples", "batch", "epochs", "steps"),
    [
        (900, 16, 10, 560),  # LLaMA-Factory 4783: rounded down in each epoch
        (900, 16, 10, 570),
        (467, 8, 5, 290),
        (800, 32, 3, 60),  # cut off in the third epoch
    ],
)
def test_ways_to_round_and_to_stop_are_no_contradiction(examples, batch, epochs, steps):
    text = transformers(examples, epochs, batch // 2, 2, batch, steps)
    found = check_log(None, text)
    assert found.contradicts == ()
    assert found.effective_batch == batch


@given(
    examples=st.integers(50, 3000),
    size=st.integers(1, 8),
    accumulation=st.integers(1, 4),
    devices=st.integers(1, 4),
    length=st.one_of(
        st.fixed_dictionaries({"epochs": st.integers(1, 5)}),
        st.fixed_dictionaries({"max_steps": st.integers(1, 200)}),
        st.fixed_dictionaries({"epochs": st.sampled_from([0.5, 1.5, 2.25])}),
    ),
    banner=st.sampled_from([transformers, unsloth]),
)
@settings(max_examples=200, deadline=None)
def test_the_banner_of_a_plan_agrees_with_it(examples, size, accumulation, devices, length, banner):
    plan = RunPlan(examples, size, accumulation=accumulation, devices=devices, **length)
    shown = -(-Fraction(plan.epochs) // 1)
    total = plan.effective_batch_size
    more = {"devices": devices} if banner is unsloth else {}
    text = banner(examples, int(shown), size, accumulation, total, plan.total_steps, **more)
    found = check_log(plan, text)
    assert found.contradicts == ()
    assert found.effective_batch == total
    wrong = banner(examples + 1, int(shown), size, accumulation, total, plan.total_steps, **more)
    assert any(line.startswith("examples: ") for line in check_log(plan, wrong).contradicts)


def test_axolotl():
    plan = RunPlan(800, 4, accumulation=2, epochs=3, tokens=8_606_215)
    assert check_log(plan, axolotl(plan, 300)).contradicts == ()
    assert "tokens: 8,606,215." in check_log(plan, axolotl(plan, 300)).agrees
    found = check_log(plan, axolotl(plan, 102) + "\ntotal_num_steps: 301")  # after packing
    assert found.contradicts == ("updates in all: 301 in the log, and 300 in the plan.",)


def test_torchtunes_bar_counts_the_updates_of_an_epoch():
    plan = RunPlan(810, 4, accumulation=2, epochs=3)
    (told,) = check_log(plan, torchtune(plan, 26, 101)).contradicts
    assert told.startswith("updates an epoch: 101 in the log, and 102 in the plan, as if")
    left_out = plan.replace(drop_last_update=True)
    found = check_log(left_out, torchtune(plan, 26, 101))
    assert found.contradicts == ()
    assert "updates an epoch: 101." in found.agrees
    alone = check_log(None, "Num examples = 810\n" + torchtune(plan, 26, 101))
    assert alone.effective_batch == 8


LINES = [
    "Map: 100%|████| 54568/54568 [00:02<00:00]\n 32%|███▊  | 283/873 [25:44<47:06,  4.79s/it]\n"
    "  7%|▋   | 2/30 [00:01<00:09]\n{'loss': 0.8635, 'learning_rate': 0.00013, 'epoch': 0.97}",
    "873 updates\n[ 283/873 02:50 < 38:04, 0.12 it/s, Epoch 0.97/3]",
    '{"epoch": "0.97", "loss": "0.86", "step": 283}',
]


@pytest.mark.parametrize("text", LINES)
def test_a_line_with_an_epoch(text):
    plan = RunPlan(291 * 12, 4, accumulation=3, epochs=3)
    found = check_log(plan, text)
    assert "after 283 updates: epoch 0.97 in the log." in found.agrees
    assert found.contradicts == ()
    assert found.implies == ("Epoch 0.97 after 283 updates is about 292 updates an epoch.",)
    half = check_log(plan.replace(accumulation=6, epochs=6), text)
    assert "after 283 updates: epoch 0.97 in the log, and 1.94 in the plan." in half.contradicts
    counted = check_log(None, f"Num examples = 3,492\n{text}")
    assert counted.effective_batch == 12


def test_what_is_said_twice_and_a_batch_that_no_devices_make():
    text = "per_device_train_batch_size: 16\n" + unsloth(800, 1, 4, 2, 8, 100)
    assert "batch size of a device: the text says 16 and 4." in check_log(None, text).contradicts
    (told,) = check_log(None, transformers(800, 1, 3, 2, 16, 50)).contradicts
    assert told == "No number of devices makes 16 of 3 a device × 2 accumulated."
    (told,) = check_log(None, unsloth(800, 1, 4, 2, 16, 50)).contradicts
    assert told.endswith("× 1 device = 8 examples an update, and the text says 16.")
    without = check_log(None, "batch_size: 4\ngradient_accumulation_steps: 2\nworld_size: 3")
    assert without.effective_batch == 24
    assert without.contradicts == ()


def test_a_run_of_so_many_updates_does_not_tell_its_batch():
    found = check_log(None, "Num examples = 800\nnum_train_epochs: 3\nmax_steps: 60")
    assert (found.effective_batch, found.contradicts) == (None, ())
    assert found.numbers["total_steps"] == 60
    assert "max_steps" not in check_log(None, "Num examples = 8\nmax_steps: -1").numbers


def test_it_reads_as_lines():
    text = repr(check_log(RunPlan(800, 8), transformers(800, 1, 8, 1, 8, 99)))
    assert "  Agrees: examples: 800." in text
    assert "  Contradicts: updates in all: 99 in the log, and 100 in the plan." in text


def test_what_is_no_log_is_refused():
    with pytest.raises(ValueError, match=r"text must hold numbers of a run, .* got 'hello'"):
        check_log(None, "hello")
    with pytest.raises(TypeError, match="text must be that of a log; got 5"):
        check_log(None, 5)
    with pytest.raises(TypeError, match="plan must be a RunPlan or None; got 5"):
        check_log(5, "Num examples = 3")


@pytest.mark.parametrize(("examples", "size"), [(11, 4), (10, 3)])
def test_of_two_batches_that_make_as_many_updates_the_nearer_one_is_implied(examples, size):
    # Batches of 3 and of 4 both make 3 updates: one of them drops a rest, the other keeps it.
    said = check_log(None, f"Num examples = {examples}\nNum Epochs = 1\nTotal steps = 3")
    assert any(f"{size} examples an update" in line for line in said.implies), said
