import math

import pytest

from helpers.history import History
from helpers.plan import RunPlan


def made(updates, total=10):
    history = History(RunPlan(64, 8, max_steps=total))
    for number in range(updates):
        history.add(3.0 - number, 0.1, 8, 72, 0.5)
    return history


@pytest.mark.parametrize(
    ("every", "times"),
    [(None, [0, 10]), (1, [*range(11)]), (4, [0, 4, 8, 10]), (5, [0, 5, 10]), (99, [0, 10])],
)
def test_due_first_last_and_after_so_many_updates(every, times):
    assert [step for step in range(11) if made(step).due(every)] == times


def test_counts_add_up_from_the_start():
    history = made(3)
    assert history.steps == 3
    assert history.loss == [3.0, 2.0, 1.0]
    assert history.examples == [8, 16, 24]
    assert history.tokens == [72, 144, 216]
    assert history.seconds == [0.5, 1.0, 1.5]


def test_the_final_loss_is_the_last_held_out_one_unless_the_run_diverged():
    history = made(3)
    assert math.isnan(history.final_loss)
    history.held_out = {0: 4.0, 3: 2.5}
    assert history.final_loss == 2.5
    history.diverged_at = 4
    assert math.isnan(history.final_loss)


def test_it_says_what_happened():
    history = made(3)
    assert repr(history) == "History: 3 of 10 updates, 24 examples in 1.5 s"
    history.held_out[3] = 2.5
    history.interrupted = True
    assert repr(history).endswith("1.5 s, held-out loss 2.500, interrupted")
    history.diverged_at = 4
    assert repr(history).endswith("1.5 s, diverged at update 4, interrupted")
    assert repr(made(0)) == "History: 0 of 10 updates"
