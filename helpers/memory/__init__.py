"""Where the bytes go: simulated and measured; what fits, and why it ran out.

``estimate`` works the same out by arithmetic, and ``explain_oom`` reads an error; neither needs
torch (``helpers.footprint``, ``helpers.oom``), and both are here as well.
"""

from helpers.footprint import Breakdown, Line, estimate, fixed_and_slope
from helpers.memory.measurement import Measurement, measure
from helpers.memory.saved import peak_of_saved_tensors
from helpers.memory.search import largest_batch
from helpers.memory.simulation import simulate
from helpers.oom import OutOfMemory, explain_oom

__all__ = [
    "Breakdown",
    "Line",
    "Measurement",
    "OutOfMemory",
    "estimate",
    "explain_oom",
    "fixed_and_slope",
    "largest_batch",
    "measure",
    "peak_of_saved_tensors",
    "simulate",
]
