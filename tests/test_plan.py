import dataclasses
import json
import re
import subprocess
import sys
import tracemalloc
from fractions import Fraction
from itertools import pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler

from helpers.plan import RunPlan, accumulation_for, infer_effective_batch, splits_for
from helpers.plan.__main__ import main
from helpers.schedule import BatchRamp, batch_ramp

# What each plan is, worked out by hand. Numbers are repository issues where readers met them.
BY_HAND = [
    (RunPlan(800, 8, epochs=3), {"steps_per_epoch": 100, "total_steps": 300}),
    (RunPlan(800, 8, epochs=3, warmup=0.05), {"warmup_steps": 15}),
    (RunPlan(800, 32, epochs=3), {"steps_per_epoch": 25, "total_steps": 75}),
    (RunPlan(800, 8, epochs=3, tokens=400_000), {"tokens_processed": 1_200_000}),
    (RunPlan(810, 8), {"total_steps": 102, "last_batch_size": 2, "examples_seen": 810}),
    (RunPlan(810, 8, drop_last=True), {"total_steps": 101, "examples_seen": 808}),
    (RunPlan(100, 8, epochs=3), {"total_steps": 39, "last_batch_size": 4}),
    (RunPlan(50_000, 8), {"total_steps": 6_250}),
    (RunPlan(1_000_000, 1_000, epochs=3), {"steps_per_epoch": 1_000, "total_steps": 3_000}),
    (RunPlan(800, 4, accumulation=8), {"effective_batch_size": 32, "total_steps": 25}),
    (RunPlan(800, 32, accumulation=8), {"effective_batch_size": 256}),
    (RunPlan(800, 32, devices=8), {"effective_batch_size": 256}),
    (RunPlan(800, 8, accumulation=4), {"effective_batch_size": 32}),
    (RunPlan(800, 2, accumulation=8), {"effective_batch_size": 16}),
    (RunPlan(800, 1, accumulation=8), {"effective_batch_size": 8}),
    (RunPlan(500, 1), {"total_steps": 500}),
    (RunPlan(500, 500), {"total_steps": 1}),
    (RunPlan(500, 32), {"total_steps": 16, "last_batch_size": 20}),
    # transformers 36297: rounding down gave 20 updates
    (
        RunPlan(91, 10, devices=2, accumulation=2, epochs=10),
        {"batches_per_epoch": 5, "steps_per_epoch": 3, "total_steps": 30, "repeated_examples": 1},
    ),
    # transformers 33455
    (
        RunPlan(9, 2, accumulation=2, epochs=3),
        {"batches_per_epoch": 5, "total_steps": 9, "update_sizes": (4, 4, 1)},
    ),
    (RunPlan(32, 4, accumulation=4), {"total_steps": 2}),  # transformers 37777: not 3
    (RunPlan(500, 10, warmup=0.05), {"total_steps": 50, "warmup_steps": 3}),  # unsloth 8723
    (RunPlan(100, 1, warmup=0.07), {"warmup_steps": 7}),  # binary floats give 8
    (RunPlan(50, 1, warmup=0.14), {"warmup_steps": 7}),
    (RunPlan(30, 1, warmup=0.03), {"warmup_steps": 1}),  # deepmd-kit 5134: int() gives 0
    (RunPlan(50, 1, warmup=0.4), {"warmup_steps": 20}),
    (RunPlan(100, 1, warmup=0.4), {"warmup_steps": 40}),
    (RunPlan(100, 1, warmup=1), {"warmup_steps": 1}),  # OneTrainer 558: whole numbers are updates
    (RunPlan(100, 1, warmup=1.0), {"warmup_steps": 100}),
    (RunPlan(100, 1, warmup=50), {"warmup_steps": 50}),
    (RunPlan(100, 1, warmup=0.0), {"warmup_steps": 0}),
    # fewer batches than the accumulation
    (
        RunPlan(10, 4, accumulation=8),
        {"batches_per_epoch": 3, "total_steps": 1, "update_sizes": (10,)},
    ),
    (RunPlan(8, 8, accumulation=4), {"total_steps": 1, "update_sizes": (8,)}),  # pet 25
    (RunPlan(3, 1, accumulation=2, epochs=24), {"total_steps": 48}),  # transformers 31677
    (RunPlan(5, 1, accumulation=2, epochs=2), {"update_sizes": (2, 2, 1), "total_steps": 6}),
    (RunPlan(100, 8, accumulation=4, epochs=3), {"steps_per_epoch": 4, "total_steps": 12}),
    (RunPlan(100, 8, accumulation=4, epochs=3, drop_last=True), {"total_steps": 9}),
    (RunPlan(1000, 16, accumulation=8, epochs=0.5), {"total_steps": 4}),
    (RunPlan(1000, 16, accumulation=8, epochs=2.5), {"total_steps": 20}),
    (RunPlan(10_000, 8, devices=2, accumulation=4, epochs=3), {"total_steps": 471}),
    (RunPlan(10, 1, devices=4), {"examples_seen": 12, "repeated_examples": 2}),
    (RunPlan(10, 2, devices=4, drop_last=True), {"examples_seen": 8, "repeated_examples": 0}),
    (RunPlan(200, 256), {"batches_per_epoch": 1, "last_batch_size": 200}),
    (RunPlan(2, 1, accumulation=8, epochs=20), {"total_steps": 20, "update_sizes": (2,)}),
    # what does not fill an update is left out: a batch and a half of 15; 10 of 28 prompts, or 14
    (RunPlan(960, 64, accumulation=2), {"total_steps": 8}),
    (RunPlan(960, 64, accumulation=2, drop_last_update=True), {"total_steps": 7}),
    (
        RunPlan(5498, 1, accumulation=4, devices=7),
        {"total_steps": 197, "effective_batch_size": 28},
    ),
    (
        RunPlan(5498, 1, accumulation=4, devices=7, drop_last_update=True),
        {"total_steps": 196, "examples_seen": 5488, "repeated_examples": 0},
    ),
    (RunPlan(5498, 28, drop_last_update=True), {"total_steps": 196, "last_batch_size": 28}),
    (
        RunPlan(810, 4, accumulation=2, epochs=3, drop_last_update=True),  # torchtune
        {"steps_per_epoch": 101, "total_steps": 303, "examples_seen": 808},
    ),
    # 375 million tokens at 524,288 an update are 715.3 updates
    (
        RunPlan(10**6, 512, tokens=1024 * 10**6, warmup=375 * 10**6, warmup_by="tokens"),
        {"warmup_steps": 716},
    ),
    (RunPlan(9, 2, accumulation=2, warmup=8, warmup_by="examples"), {"warmup_steps": 2}),
    # an epoch is 4, 4, 1: nine examples take three updates, and the tenth a fourth
    (RunPlan(9, 2, accumulation=2, warmup=9, warmup_by="examples"), {"warmup_steps": 3}),
    (RunPlan(9, 2, accumulation=2, warmup=10, warmup_by="examples"), {"warmup_steps": 4}),
    (RunPlan(9, 2, warmup=0, warmup_by="examples"), {"warmup_steps": 0}),
]


@pytest.mark.parametrize(("plan", "expected"), BY_HAND)
def test_counts_worked_out_by_hand(plan, expected):
    assert {name: getattr(plan, name) for name in expected} == expected


@pytest.mark.parametrize("batches", range(1, 41))
@pytest.mark.parametrize("accumulation", range(1, 9))
def test_windows_cover_the_epoch(batches, accumulation):
    sizes = list(RunPlan(batches, 1, accumulation=accumulation).update_sizes)
    assert sum(sizes) == batches
    assert all(1 <= size <= accumulation for size in sizes)
    assert sizes[:-1] == [accumulation] * (len(sizes) - 1)


def test_fraction_of_an_epoch_is_exact():
    assert RunPlan(800, 8, max_steps=39).epochs == Fraction(39, 100)
    assert RunPlan(100, 8, max_steps=39).epochs == 3
    assert isinstance(RunPlan(100, 8, max_steps=39).epochs, int)
    assert RunPlan(1000, 1, epochs=0.007).total_steps == 7
    assert RunPlan(10, 1).epochs == 1


def test_warmup_longer_than_the_run_is_said():
    plan = RunPlan(100, 8, epochs=3, warmup=100)
    assert (plan.total_steps, plan.warmup_steps) == (39, 100)
    assert plan.warmup_reach == Fraction(39, 100)
    assert "reaches 39% of its full value" in repr(plan)
    assert RunPlan(100, 8, warmup=13).warmup_reach == 1
    assert RunPlan(100, 8).warmup_reach == 1


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (RunPlan(810, 8), "last update of an epoch holds 2 of 8 examples"),
        (RunPlan(810, 8, drop_last=True), "leaves out 2 examples"),
        (RunPlan(9, 2, devices=2), "repeats 1 example, so that each of 2 devices gets 5"),
        (RunPlan(10, 4, accumulation=8), "every update holds 10 examples, not 32"),
        (RunPlan(30, 1, warmup=0.03), "no ramp"),
        (RunPlan(960, 64, accumulation=2, drop_last_update=True), "last_update leaves out 64 ex"),
        (RunPlan(10, 1, warmup=2000), "reaches 0.5% of its full value"),
        (RunPlan(1995, 1, warmup=2000), "reaches 99.75% of its full value"),
        (RunPlan(100, 1, warmup=0.21), "warmup takes 21% of the run: 21 of 100 updates"),
        (RunPlan(100, 1, warmup=1.0), "as long as the run of 100 updates: only the last one"),
    ],
)
def test_notes(plan, words):
    assert words in " ".join(plan.notes)
    assert words in repr(plan)
    assert words in plan._repr_html_()


def test_plain_plan_has_no_notes():
    assert RunPlan(800, 8, epochs=3, warmup=0.05).notes == ()
    assert RunPlan(800, 8, epochs=3, warmup=0.2).notes == ()
    assert RunPlan(960, 64, drop_last_update=True).notes == ()


def test_table_has_a_row_for_each_number():
    table = RunPlan(810, 8, epochs=2.5, tokens=1000)._repr_html_()
    for cell in ("810", "102", "2 1/2", "255", "2,500"):
        assert f">{cell}<" in table
    assert table.count("<tr>") == table.count("</tr>") == 9


def test_update_sizes_is_a_sequence():
    sizes = RunPlan(9, 2, accumulation=2).update_sizes
    assert sizes == (4, 4, 1)
    assert sizes != (4, 4, 2)
    assert sizes != (4, 4)
    assert sizes != [4, 4, 1]
    assert (sizes[0], sizes[-1], sizes[1:], len(sizes), list(sizes)) == (4, 1, (4, 1), 3, [4, 4, 1])
    assert sizes == RunPlan(9, 4).update_sizes
    assert hash(sizes) == hash(RunPlan(9, 4).update_sizes)
    assert RunPlan(3, 8).update_sizes == RunPlan(3, 4).update_sizes
    with pytest.raises(IndexError):
        sizes[3]
    assert repr(sizes) == "(4, 4, 1)"
    assert repr(RunPlan(801, 8).update_sizes) == "(8, 8, ..., 8, 1) [101 updates]"


def test_an_epoch_of_a_trillion_allocates_nothing():
    tracemalloc.start()
    plan = RunPlan(10**12, 7, accumulation=3, devices=5, epochs=3, warmup=0.01)
    assert plan.update_sizes[-1] + (len(plan.update_sizes) - 1) * 105 == plan.examples_seen
    assert plan._repr_html_()
    assert repr(plan.update_sizes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


def test_plan_is_frozen_and_compares():
    plan = RunPlan(800, 8)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.batch_size = 9
    assert plan == RunPlan(800, 8, epochs=1)
    assert len({plan, RunPlan(800, 8, epochs=1)}) == 1


def test_replace_changes_the_length_without_conflict():
    by_epochs, by_steps = RunPlan(800, 8, epochs=3), RunPlan(800, 8, max_steps=50)
    assert by_epochs.replace(batch_size=32).total_steps == 75
    assert by_steps.replace(batch_size=32).total_steps == 50
    assert by_epochs.replace(max_steps=7).total_steps == 7
    assert by_steps.replace(epochs=2).total_steps == 200


@given(
    examples=st.integers(1, 80),
    batch_size=st.integers(1, 9),
    accumulation=st.integers(1, 5),
    devices=st.integers(1, 5),
    drop_last=st.booleans(),
)
def test_without_the_unfilled_update_all_are_full(
    examples, batch_size, accumulation, devices, drop_last
):
    how = {"accumulation": accumulation, "devices": devices, "drop_last": drop_last}
    share, unit = -(-examples // devices), batch_size * accumulation
    if share < unit:
        with pytest.raises(ValueError, match=r"no update .* drop_last_update=False"):
            RunPlan(examples, batch_size, drop_last_update=True, **how)
        return
    plan = RunPlan(examples, batch_size, drop_last_update=True, **how)
    assert plan.update_sizes == (unit * devices,) * (share // unit)
    assert plan.examples_seen == sum(plan.update_sizes) == plan.examples_after(plan.total_steps)
    assert plan.repeated_examples == max(plan.examples_seen - examples, 0)
    assert RunPlan(examples, batch_size, **how).total_steps - plan.total_steps in (0, 1)


@given(
    examples=st.integers(1, 40),
    accumulation=st.integers(1, 4),
    tokens=st.integers(1, 300),
    warmup=st.integers(0, 900),
)
def test_a_warmup_in_tokens_ends_with_the_update_that_reaches_them(
    examples, accumulation, tokens, warmup
):
    plan = RunPlan(
        examples, 2, accumulation=accumulation, tokens=tokens, warmup=warmup, warmup_by="tokens"
    )
    seen, updates, sizes = Fraction(0), 0, list(plan.update_sizes)
    while seen < warmup:
        seen += Fraction(tokens, examples) * sizes[updates % len(sizes)]
        updates += 1
    assert plan.warmup_steps == updates


def test_a_warmup_that_is_counted_needs_whole_numbers_and_tokens():
    with pytest.raises(ValueError, match="tokens must be given for warmup_by='tokens'; got None"):
        RunPlan(100, 8, warmup=500, warmup_by="tokens")
    with pytest.raises(TypeError, match=r"warmup must be a whole number .* got 0.05"):
        RunPlan(100, 8, warmup=0.05, warmup_by="examples")
    with pytest.raises(ValueError, match="warmup_by must be one of 'updates', 'examples', 'token"):
        RunPlan(100, 8, warmup=5, warmup_by="epochs")


BAD = [None, 0, -1, 2.0, 2.5, True, "8", float("nan"), [8]]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("name", ["examples", "batch_size", "accumulation", "devices"])
def test_bad_size_is_named(name, value):
    sizes = {"examples": 100, "batch_size": 8, name: value}
    with pytest.raises((ValueError, TypeError), match=name):
        RunPlan(**sizes)


@pytest.mark.parametrize("value", [0, -3, 0.0, float("nan"), float("inf"), True, "3"])
def test_bad_epochs_are_named(value):
    with pytest.raises((ValueError, TypeError), match="epochs"):
        RunPlan(100, 8, epochs=value)


@pytest.mark.parametrize("value", [0, -3, 2.5, True, "3"])
def test_bad_max_steps_are_named(value):
    with pytest.raises((ValueError, TypeError), match="max_steps"):
        RunPlan(100, 8, max_steps=value)


@pytest.mark.parametrize("value", [-0.3, -20, 1.5, float("nan"), float("inf"), True, "5%", None])
def test_bad_warmup_is_named(value):
    with pytest.raises((ValueError, TypeError), match="warmup"):
        RunPlan(100, 8, warmup=value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("tokens", -1), ("tokens", 1.5), ("drop_last", 1), ("drop_last_update", None)],
)
def test_other_bad_arguments_are_named(name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        RunPlan(100, 8, **{name: value})


def test_epochs_and_max_steps_together_are_refused():
    with pytest.raises(ValueError, match="epochs or max_steps, not both"):
        RunPlan(100, 8, epochs=3, max_steps=39)


@pytest.mark.parametrize(("examples", "batch_size"), [(200, 256), (5, 8)])
def test_no_update_ever_is_an_error_with_both_numbers(examples, batch_size):
    with pytest.raises(ValueError, match=f"no update .* {examples} .* {batch_size}"):
        RunPlan(examples, batch_size, drop_last=True)


def test_a_stream_is_told_what_to_do():
    with pytest.raises(TypeError, match="stream has no length"):
        RunPlan(None, 8)


@given(
    examples=st.integers(1, 60),
    batch_size=st.integers(1, 9),
    accumulation=st.integers(1, 5),
    devices=st.integers(1, 5),
    drop_last=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_plan_agrees_with_real_loaders(examples, batch_size, accumulation, devices, drop_last):
    loaders = [
        DataLoader(
            range(examples),
            batch_size=batch_size,
            drop_last=drop_last,
            sampler=DistributedSampler(range(examples), devices, rank, shuffle=False),
        )
        for rank in range(devices)
    ]
    drawn = [[batch.tolist() for batch in loader] for loader in loaders]
    if not drawn[0]:
        with pytest.raises(ValueError, match="no update"):
            RunPlan(examples, batch_size, devices=devices, drop_last=drop_last)
        return
    plan = RunPlan(
        examples, batch_size, accumulation=accumulation, devices=devices, drop_last=drop_last
    )
    windows = range(0, len(drawn[0]), accumulation)
    sizes = tuple(
        sum(len(batch) for share in drawn for batch in share[start : start + accumulation])
        for start in windows
    )
    seen = [example for share in drawn for batch in share for example in batch]
    assert plan.batches_per_epoch == len(drawn[0]) == len(drawn[-1])
    assert plan.last_batch_size == len(drawn[0][-1]) == len(drawn[-1][-1])
    assert plan.steps_per_epoch == len(windows)
    assert plan.update_sizes == sizes
    assert plan.examples_seen == len(seen)
    assert plan.repeated_examples == len(seen) - len(set(seen))


@given(
    examples=st.integers(1, 40),
    batch_size=st.integers(1, 9),
    accumulation=st.integers(1, 5),
    epochs=st.integers(1, 5),
)
@settings(max_examples=100, deadline=None)
def test_total_is_what_a_counting_loop_counts(examples, batch_size, accumulation, epochs):
    updates = 0
    for _ in range(epochs):
        waiting = 0
        for _ in range(0, examples, batch_size):
            waiting += 1
            if waiting == accumulation:
                updates, waiting = updates + 1, 0
        updates += waiting > 0
    plan = RunPlan(examples, batch_size, accumulation=accumulation, epochs=epochs)
    assert plan.total_steps == updates
    assert isinstance(plan.total_steps, int)


@pytest.mark.parametrize("module", ["plan", "schedule"])
def test_import_brings_in_nothing_heavy(module):
    code = (
        f"import sys, helpers.{module}\n"
        "print([name for name in ('torch', 'numpy', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_more_devices_never_need_more_updates():
    totals = [RunPlan(1000, 4, devices=devices).total_steps for devices in range(1, 20)]
    assert all(fewer <= more for more, fewer in pairwise(totals))


@pytest.mark.parametrize(
    ("plan", "step", "point"),
    [
        # transformers 5605: 2,748 updates of 4 micro-batches skip 10,992 of them, not 2,748
        (RunPlan(27_484, 1, accumulation=4), 2748, (0, 10_992, 4123)),
        (RunPlan(13, 1, accumulation=4, epochs=2), 6, (1, 8, 2)),  # not (6 × 4) mod 13 = 11
        (RunPlan(13, 1, accumulation=4, epochs=2), 0, (0, 0, 8)),
        (RunPlan(13, 1, accumulation=4, epochs=2), 3, (0, 12, 5)),
        (RunPlan(13, 1, accumulation=4, epochs=2), 4, (1, 0, 4)),
        (RunPlan(13, 1, accumulation=4, epochs=2), 8, (2, 0, 0)),
        (RunPlan(91, 10, devices=2, accumulation=2, epochs=10), 29, (9, 4, 1)),
        (RunPlan(10, 4, accumulation=8, epochs=3), 2, (2, 0, 1)),
        # 2 updates of 2, 1 of 4 and the 1 that is left; then 4, 4, 1
        (RunPlan(9, 1, accumulation=2, epochs=2, ramp=batch_ramp(2, {2: 4})), 3, (0, 8, 4)),
        (RunPlan(9, 1, accumulation=2, epochs=2, ramp=batch_ramp(2, {2: 4})), 6, (1, 8, 1)),
    ],
)
def test_resume_point_by_hand(plan, step, point):
    assert plan.resume_point(step) == point


RAMPS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), max_size=3)


def make_ramp(first, unit, growth):
    """Return a ramp from ``first`` on, with stages of so many updates and so many units more."""
    sizes = [first]
    for _, more in growth:
        sizes.append(sizes[-1] + more * unit)
    return BatchRamp(tuple(zip(sizes, [*(updates for updates, _ in growth), None])))


def count_updates(plan, accumulations, enough):
    """Return (epoch, micro-batches used, examples, batches) after each update, one by one."""
    positions, epoch, used, examples = [(0, 0, 0)], 0, 0, 0
    for accumulation in accumulations:
        if enough(positions):
            return positions
        for _ in range(accumulation):
            used += 1
            ends = used == plan.batches_per_epoch
            examples += (plan.last_batch_size if ends else plan.batch_size) * plan.devices
            if ends:
                epoch, used = epoch + 1, 0
                break
        positions.append((epoch, used, examples))
    raise AssertionError("not enough updates")


@given(
    examples=st.integers(1, 40),
    batch_size=st.integers(1, 5),
    accumulation=st.integers(1, 4),
    devices=st.integers(1, 3),
    drop_last=st.booleans(),
    growth=RAMPS,
    epochs=st.integers(1, 4),
    max_steps=st.one_of(st.none(), st.integers(1, 30)),
)
@settings(max_examples=150, deadline=None)
def test_resume_points_and_stages_are_what_a_loop_counts(
    examples, batch_size, accumulation, devices, drop_last, growth, epochs, max_steps
):
    if drop_last and -(-examples // devices) < batch_size:
        return
    unit = batch_size * devices
    ramp = make_ramp(unit * accumulation, unit, growth)
    length = {"epochs": epochs} if max_steps is None else {"max_steps": max_steps}
    how = {"accumulation": accumulation, "devices": devices, "drop_last": drop_last}
    plan = RunPlan(examples, batch_size, ramp=ramp, tokens=7 * examples, **how, **length)
    sizes = ramp.batch_sizes(500)
    positions = count_updates(
        plan,
        [size // unit for size in sizes],
        lambda made: made[-1][0] == epochs if max_steps is None else len(made) > max_steps,
    )
    total = len(positions) - 1
    assert plan.total_steps == total
    for step, (epoch, used, seen) in enumerate(positions):
        assert plan.resume_point(step) == (epoch, used, total - step)
        assert plan.examples_after(step) == seen
        assert plan.accumulation_at(step) * unit == sizes[step]
    for stage in plan.stages:
        updates = [step for step in range(total) if sizes[step] == stage.batch_size]
        drawn = positions[updates[-1] + 1][2] - positions[updates[0]][2]
        assert stage == (stage.batch_size, stage.batch_size // unit, len(updates), drawn, 7 * drawn)
    assert sum(stage.updates for stage in plan.stages) == total
    assert plan.tokens_processed == 7 * positions[-1][2]
    # A length in updates and the epochs that it comes to are the same run.
    again = RunPlan(examples, batch_size, ramp=ramp, epochs=plan.epochs, **how)
    assert again.total_steps == total


@given(
    examples=st.integers(1, 60),
    batch_size=st.integers(1, 5),
    accumulation=st.integers(1, 4),
    half_epochs=st.integers(1, 7),
)
def test_a_ramp_that_does_not_grow_is_none(examples, batch_size, accumulation, half_epochs):
    plan = RunPlan(examples, batch_size, accumulation=accumulation, epochs=half_epochs / 2)
    same = plan.replace(ramp=batch_ramp(batch_size * accumulation, {}))
    assert same.total_steps == plan.total_steps
    assert same.stages == plan.stages
    assert plan.total_steps == -(-half_epochs * plan.steps_per_epoch // 2)


def test_stages_of_a_ramp_by_hand():
    # 800 examples: 50 updates of 8, 25 of 16; then 32 at a time, 25 updates an epoch
    plan = RunPlan(800, 8, epochs=3, tokens=80_000, ramp=batch_ramp(8, {50: 16, 75: 32}))
    assert plan.total_steps == 125
    assert plan.stages == (
        (8, 1, 50, 400, 40_000),
        (16, 2, 25, 400, 40_000),
        (32, 4, 50, 1600, 160_000),
    )
    assert plan.tokens_processed == 240_000
    assert plan.notes == ()
    assert "100 updates an epoch at first, epochs: 3" in repr(plan)
    assert "batches 8 → 16 → 32" in repr(plan)
    table = plan._repr_html_()
    assert ">100 at first<" in table
    assert ">stage 2, batch 16<" in table
    assert ">25 updates, 400 examples, 40,000 tokens<" in table


@pytest.mark.parametrize("how", [{}, {"devices": 2}, {"accumulation": 4}, {"devices": 4}])
def test_stages_are_counted_in_updates_whatever_the_split(how):
    # diffusers 9633, accelerate 662: counted in micro-batches or per device
    pieces = how.get("devices", 1) * how.get("accumulation", 1)
    plan = RunPlan(6400, 64 // pieces, ramp=batch_ramp(64, {40: 128}), warmup=0.1, **how)
    assert [(stage.batch_size, stage.updates) for stage in plan.stages] == [(64, 40), (128, 30)]
    assert plan.warmup_steps == 7


def test_a_long_ramp_allocates_nothing():
    tracemalloc.start()
    ramp = batch_ramp(105, {10**10: 210, 10**11: 420})
    plan = RunPlan(10**12, 7, accumulation=3, devices=5, epochs=30, ramp=ramp)
    assert plan.resume_point(plan.total_steps) == (30, 0, 0)
    assert sum(stage.examples for stage in plan.stages) == 30 * plan.examples_seen
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (RunPlan(80, 8, ramp=batch_ramp(8, {50: 16})), "in the ramp's stage of 8: it never reach"),
        (RunPlan(80, 8, ramp=batch_ramp(8, {5: 160})), "No update holds 160 examples: an epoch"),
    ],
)
def test_notes_on_a_ramp(plan, words):
    assert words in " ".join(plan.notes)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"ramp": batch_ramp(16, {5: 32})}, "ramp must begin at the plan's own batch of 8 .*; got"),
        ({"ramp": batch_ramp(8, {5: 12})}, "multiples of batch_size × devices, 8.* Try 8 or 16"),
        ({"ramp": batch_ramp(16, {5: 24}), "devices": 2}, "× devices, 16"),
        ({"ramp": {5: 16}}, "ramp must be what batch_ramp returns"),
        ({"ramp": batch_ramp(8, {5: 16}), "drop_last_update": True}, "drop_last_update must be F"),
    ],
)
def test_bad_ramp_is_named(how, words):
    with pytest.raises((ValueError, TypeError), match=words):
        RunPlan(800, 8, **how)


@pytest.mark.parametrize("step", [-1, 14, 2.0, True, None])
def test_bad_step_is_named(step):
    plan = RunPlan(100, 8)
    with pytest.raises((ValueError, TypeError), match="step"):
        plan.resume_point(step)
    with pytest.raises((ValueError, TypeError), match="step"):
        plan.examples_after(step)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 4))
def test_accumulation_makes_the_global_batch(accumulation, batch_size, devices):
    total = RunPlan(10_000, batch_size, accumulation=accumulation, devices=devices)
    found = accumulation_for(total.effective_batch_size, batch_size=batch_size, devices=devices)
    assert found == accumulation


def test_accumulation_in_tokens():
    # nanochat 285
    how = {"tokens_per_example": 2048}
    assert accumulation_for(524_288, batch_size=32, devices=8, **how) == 1
    assert accumulation_for(524_288, batch_size=4, **how) == 64


def test_global_batch_that_cannot_be_made_is_refused_with_what_can():
    # nanochat 532: one pass is 4 × 256 tokens, more than the 512 that are wanted
    once = r"\(accumulation 1\)"
    words = rf"= 1,024; got 512 tokens. Nearest is 1,024 {once}; .* 1 .* or 2 {once} would"
    with pytest.raises(ValueError, match=words):
        accumulation_for(512, batch_size=4, tokens_per_example=256)
    # 100 on 4 devices is 25 each: 8 does not divide it, and 1 and 5 do
    words = (
        r"Nearest are 96 \(accumulation 3\) and 128 \(accumulation 4\); .*up to 8, "
        rf"1 \(accumulation 25\) or 5 \(accumulation 5\) would do, and above it 25 {once}"
    )
    with pytest.raises(ValueError, match=words):
        accumulation_for(100, batch_size=8, devices=4)
    words = rf"Nearest is 1,000,000,000 {once}; .*, 1 .* or 7 {once} would do, and above it none"
    with pytest.raises(ValueError, match=words):
        accumulation_for(7, batch_size=10**9)
    with pytest.raises(ValueError, match=r"got 10. .*up to 8, none would do, and above it none"):
        accumulation_for(10, batch_size=8, devices=4)
    # transformers 25956: an effective batch of 8 cannot be kept with 3
    with pytest.raises(ValueError, match=r"Nearest are 6 \(accumulation 2\) and 9 "):
        accumulation_for(8, batch_size=3)
    for bad in ({"batch_size": 0}, {"batch_size": 2, "devices": 0}, {"batch_size": 1.5}):
        with pytest.raises((ValueError, TypeError), match="must be a whole number"):
            accumulation_for(8, **bad)


def test_splits_on_both_sides_of_a_batch_size():
    # nanochat 605: 524,288 tokens are 1,024 sequences of 512, and 6 of them do not divide it
    found = splits_for(524_288, batch_size=6, tokens_per_example=512)
    assert found.exact is None
    assert found.nearest == ((522_240, 6, 170), (525_312, 6, 171))
    assert {(4, 256), (8, 128)} <= {split[1:] for split in found.other_sizes}
    with pytest.raises(ValueError, match=r"522,240 \(accumulation 170\) and 525,312 \(accum"):
        accumulation_for(524_288, batch_size=6, tokens_per_example=512)
    assert splits_for(256, batch_size=4, devices=8).exact == (256, 4, 8)
    prime = 10**9 + 7
    sizes = splits_for(prime, batch_size=10**9).other_sizes
    assert sizes == ((prime, 1, prime), (prime, prime, 1))


@given(st.integers(1, 3000), st.integers(1, 60), st.integers(1, 4), st.integers(1, 5))
def test_every_split_makes_what_it_says(global_batch, batch_size, devices, tokens):
    found = splits_for(
        global_batch, batch_size=batch_size, devices=devices, tokens_per_example=tokens
    )
    exact = () if found.exact is None else (found.exact,)
    for total, size, accumulation in (*exact, *found.nearest, *found.other_sizes):
        assert size * accumulation * devices * tokens == total
    assert all(split.global_batch == global_batch for split in (*exact, *found.other_sizes))
    sizes = [split.batch_size for split in found.other_sizes]
    assert sizes == sorted(set(sizes) - {batch_size})
    for beyond in (range(1, batch_size), range(batch_size + 1, global_batch + 1)):
        fitting = [n for n in beyond if global_batch % (n * devices * tokens) == 0]
        assert not fitting or set(fitting) & set(sizes)
    below = [split.global_batch for split in found.nearest]
    assert all(abs(total - global_batch) < batch_size * devices * tokens for total in below)


def test_effective_batch_from_a_log():
    # ms-swift 808
    assert infer_effective_batch(29_450, 1841) == 16
    assert infer_effective_batch(100, 39, epochs=3) == 8


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([1, 2, 3, 0.5, 2.5]))
def test_inferred_batch_is_the_smallest_of_all_that_fit(examples, batch_size, epochs):
    steps = RunPlan(examples, batch_size, epochs=epochs).total_steps
    fitting = [
        size
        for size in range(1, examples + 1)
        if RunPlan(examples, size, epochs=epochs).total_steps == steps
    ]
    assert infer_effective_batch(examples, steps, epochs) == fitting[0]


def test_log_that_contradicts_itself_is_refused_with_what_comes_near():
    with pytest.raises(ValueError, match=r"got 40, and batch 7 gives 45, batch 8 gives 39"):
        infer_effective_batch(100, 40, epochs=3)
    with pytest.raises(ValueError, match=r"got 101, and batch 1 gives 100"):
        infer_effective_batch(100, 101)


def test_plan_on_the_command_line(capsys):
    main(["--examples", "810", "--batch-size", "8", "--epochs", "3", "--warmup", "5%"])
    table = capsys.readouterr().out
    assert re.search(r"updates in all +306\n", table)
    assert re.search(r"warmup +16 updates\n", table)  # 15.3 rounded up
    assert "holds 2 of 8 examples" in table
    main(["--examples", "100", "--batch-size", "8", "--max-steps", "20", "--warmup", "3", "--json"])
    figures = json.loads(capsys.readouterr().out)
    assert (figures["total_steps"], figures["warmup_steps"]) == (20, 3)
    assert figures["epochs"] == pytest.approx(20 / 13)
    assert figures["tokens_processed"] is None
    main(["--examples", "960", "--batch-size", "64", "--accumulation", "2", "--drop-last-update"])
    assert re.search(r"updates in all +7\n", capsys.readouterr().out)
    warmup = ["--warmup", "100", "--warmup-by", "examples"]
    main(["--examples", "960", "--batch-size", "64", *warmup])
    assert re.search(r"warmup +2 updates\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--epochs", "2", "--max-steps", "3"], "not both"), (["--warmup", "1.5"], "warmup")],
)
def test_command_line_says_what_is_wrong(capsys, words, said):
    with pytest.raises(SystemExit):
        main(["--examples", "100", "--batch-size", "8", *words])
    assert said in capsys.readouterr().err


def test_numbers_of_numpy_become_those_of_python():
    plan = RunPlan(800, 8, epochs=numpy.int64(3))
    assert type(plan.epochs) is int
    assert json.loads(json.dumps(plan.as_dict()))["total_steps"] == 300


@pytest.mark.parametrize("text", ["1/0%", "abc", "%"])
def test_a_warmup_that_cannot_be_read_is_refused_with_what_can(text, capsys):
    with pytest.raises(SystemExit):
        main(["--examples", "810", "--batch-size", "8", "--warmup", text])
    assert f"updates such as 15, or a share such as 0.05 or 5%; got {text!r}" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(("text", "updates"), [("1/3%", 1), ("1e-2", 3), ("100%", 300), ("7", 7)])
def test_a_share_on_the_command_line_is_exact(text, updates, capsys):
    sizes = ["--examples", "30000", "--batch-size", "100"]
    main([*sizes, "--warmup", text, "--json"])
    assert json.loads(capsys.readouterr().out)["warmup_steps"] == updates
