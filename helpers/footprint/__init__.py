"""The memory of a training step, worked out: each term with its source. No torch here."""

from helpers.footprint.activations import activations_by_kind
from helpers.footprint.breakdown import COLOURS, MOMENTS, PARTS, Breakdown, gib
from helpers.footprint.estimation import estimate
from helpers.footprint.line import Line, fixed_and_slope
from helpers.footprint.setting import OPTIMIZERS, PRECISIONS, Setting, check, notes_on

__all__ = [
    "COLOURS",
    "MOMENTS",
    "OPTIMIZERS",
    "PARTS",
    "PRECISIONS",
    "Breakdown",
    "Line",
    "Setting",
    "activations_by_kind",
    "check",
    "estimate",
    "fixed_and_slope",
    "gib",
    "notes_on",
]
