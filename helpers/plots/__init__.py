"""Every figure of the notebooks, one function each; each returns a ``Picture``."""

from helpers.plots.batches import epoch_orders, noise_against_batch, noise_and_speed, throughput
from helpers.plots.critical import branches, noise_and_critical_batch, steps_to_target, trade_off
from helpers.plots.look import BLUE, GREEN, GREY, ORANGE, Picture, batch_colour, batch_marker
from helpers.plots.memory import memory_against_batch, memory_bars, memory_timeline
from helpers.plots.pieces import cost_of_accumulation, gap_against_spread, updates_against_devices
from helpers.plots.rates import (
    best_rate_against_batch,
    loss_against_rate,
    loss_by_warmup,
    rate_landscape,
)
from helpers.plots.runs import loss_curves, named_curves, repeats, three_clocks
from helpers.plots.schedules import rate_and_batch, rate_curves, run_timeline

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "Picture",
    "batch_colour",
    "batch_marker",
    "best_rate_against_batch",
    "branches",
    "cost_of_accumulation",
    "epoch_orders",
    "gap_against_spread",
    "loss_against_rate",
    "loss_by_warmup",
    "loss_curves",
    "memory_against_batch",
    "memory_bars",
    "memory_timeline",
    "named_curves",
    "noise_against_batch",
    "noise_and_critical_batch",
    "noise_and_speed",
    "rate_and_batch",
    "rate_curves",
    "rate_landscape",
    "repeats",
    "run_timeline",
    "steps_to_target",
    "three_clocks",
    "throughput",
    "trade_off",
    "updates_against_devices",
]
