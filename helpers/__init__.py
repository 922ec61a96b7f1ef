"""The work behind the batch notebooks: one module for each idea.

Nothing is imported here, so that ``import helpers.plan`` stays free of torch. ``COLLECTION`` tells
this package from any other that is called ``helpers``; the notebooks' set-up cell looks at it.
"""

__version__ = "0.1.0"

COLLECTION = "batch-notebooks"
