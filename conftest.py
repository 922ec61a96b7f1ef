"""For the tests and for nbval: the same surroundings on every machine."""

import os

# No progress bars, so that outputs are the same each time.
os.environ.setdefault("TQDM_DISABLE", "1")
# One thread a process. The models are so small that more gain little, and on a busy machine threads
# that wait for each other can make a run a hundred times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A claim that so few runs leave undecided does not stop a reader. Here it is a failure.
os.environ.setdefault("CLAIMS", "strict")
