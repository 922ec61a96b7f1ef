"""Pictures of ideas, drawn by code: one for each notebook, as SVG with an alternative text."""

from helpers.diagrams.kit import Diagram
from helpers.diagrams.machines import memory, plan, sharding
from helpers.diagrams.rates import budgets, valley, warmup
from helpers.diagrams.training import accumulation, epoch, step

__all__ = [
    "Diagram",
    "accumulation",
    "budgets",
    "epoch",
    "memory",
    "plan",
    "sharding",
    "step",
    "valley",
    "warmup",
]
