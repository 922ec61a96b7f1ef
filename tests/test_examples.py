import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.examples import Examples, draw_updates
from helpers.model import ModelConfig, SmallLM
from helpers.plan import RunPlan
from helpers.schedule import batch_ramp


@given(
    examples=st.integers(1, 30),
    batch_size=st.integers(1, 4),
    accumulation=st.integers(1, 3),
    devices=st.integers(1, 2),
    drop_last=st.booleans(),
    made=st.integers(0, 12),
)
@settings(max_examples=40, deadline=None)
def test_updates_drawn_from_anywhere_are_those_of_the_whole_run(
    examples, batch_size, accumulation, devices, drop_last, made
):
    if drop_last and -(-examples // devices) < batch_size:
        return
    first = batch_size * accumulation * devices
    plan = RunPlan(
        examples, batch_size, accumulation=accumulation, devices=devices, drop_last=drop_last,
        max_steps=12, ramp=batch_ramp(first, {2: 2 * first, 7: 3 * first}),
    )  # fmt: skip
    for rank in range(devices):
        whole = list(itertools.islice(draw_updates(plan, 3, rank), 12))
        rest = list(itertools.islice(draw_updates(plan, 3, rank, made=made), 12 - made))
        assert [torch.cat(update).tolist() for update in rest] == [
            torch.cat(update).tolist() for update in whole[made:]
        ]
        assert [len(update) for update in rest] == [len(update) for update in whole[made:]]


def test_an_update_that_is_left_out_is_not_drawn():
    plan = RunPlan(22, 4, accumulation=2, epochs=2, drop_last_update=True)
    # Two full updates of 8 an epoch; the third would have had 6.
    drawn = list(itertools.islice(draw_updates(plan, 3), plan.total_steps))
    assert [[len(batch) for batch in update] for update in drawn] == [[4, 4]] * 4
    epochs = [torch.cat([torch.cat(update) for update in drawn[i : i + 2]]) for i in (0, 2)]
    assert [len(set(epoch.tolist())) for epoch in epochs] == [16, 16]


def test_a_ramp_draws_the_same_examples_in_more_or_in_larger_micro_batches():
    plan = RunPlan(20, 2, accumulation=2, max_steps=4, ramp=batch_ramp(4, {1: 8}))
    # 4 + 8 + 8 is an epoch of 20, and the next begins with a full update
    sizes = {
        "accumulation": [[2, 2], [2] * 4, [2] * 4, [2] * 4],
        "batch_size": [[2, 2], [4, 4], [4, 4], [4, 4]],
    }
    drawn = {grow: list(itertools.islice(draw_updates(plan, 3, grow=grow), 4)) for grow in sizes}
    for grow, updates in drawn.items():
        assert [[len(batch) for batch in update] for update in updates] == sizes[grow]
    pieces, larger = ([torch.cat(update).tolist() for update in drawn[grow]] for grow in sizes)
    assert pieces == larger


def test_examples_are_windows_or_pairs():
    windows = torch.arange(12).view(3, 4)
    model = SmallLM(ModelConfig(12, 3, 8, 1, 2))
    pair = windows[:, :-1], windows[:, 1:].clone()
    pair[1][1] = -100
    positions = torch.tensor([2, 0])
    for data, counts in ((windows, [3, 3, 3]), (pair, [3, 0, 3])):
        examples = Examples("data", data, model)
        assert len(examples) == 3
        assert examples.target_counts.tolist() == counts
        inputs, targets = examples.batch(positions)
        assert inputs.tolist() == [[8, 9, 10], [0, 1, 2]]
        assert targets.tolist() == [[9, 10, 11], [1, 2, 3]]
