"""For the tests and for nbval: no progress bars, so that outputs are the same each time."""

import os

os.environ.setdefault("TQDM_DISABLE", "1")
