"""The same update on several devices: real processes, one a device.

From a notebook, ``launch`` starts them. From a shell, torch's own launcher does::

    python -m torch.distributed.run --standalone --nproc-per-node 2 -m helpers.parallel --check

and, for several machines, the same on each of them with ``--nnodes 2 --rdzv-backend c10d
--rdzv-endpoint HOST:PORT`` in place of ``--standalone``.
"""

import contextlib
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from helpers._checks import positive, whole
from helpers.model import ModelConfig, SmallLM
from helpers.train import Data, train

LAST_LINES = 8
CLOSE_ENOUGH = 1e-12


class LaunchError(RuntimeError):
    """A process died or did not finish; the message has its last lines."""


def launch(
    function: Callable[..., Any],
    /,
    *arguments: Any,  # noqa: ANN401
    processes: int = 2,
    timeout: float = 300.0,
) -> list[Any]:
    """Run ``function(*arguments)`` in several processes that form one group; return the results.

    The processes start anew (spawned, never forked), so that it works from a notebook, after CUDA
    was used, and on every system. They meet through a file in a temporary folder, not a port. On
    CUDA each has a GPU of its own. What the first prints is shown here as it comes. If one fails,
    or all have not finished after ``timeout`` seconds, the others are ended.

    ``function`` must be one that a new process can import: not a lambda, nor defined in a notebook.
    What it returns must be made of tensors, numbers, strings, lists and dicts.

    Raises ``ValueError`` or ``TypeError`` for arguments that cannot be meant, before anything
    starts, and ``LaunchError`` with the last lines of the process that failed.
    """
    _refuse_what_cannot_be_imported(function)
    whole("processes", processes)
    positive("timeout", timeout)
    if torch.cuda.is_available() and processes > torch.cuda.device_count():
        raise ValueError(
            f"processes must be at most {torch.cuda.device_count()}, the GPUs of this machine; "
            f"got {processes}"
        )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        context = mp.start_processes(
            _process,
            args=(processes, folder, function, arguments),
            nprocs=processes,
            join=False,
            daemon=True,
            start_method="spawn",
        )
        try:
            _wait(context, Path(folder), time.monotonic() + timeout, timeout)
        finally:
            for process in context.processes:
                process.kill()
                process.join()
        return [torch.load(_result(folder, rank)) for rank in range(processes)]


def _refuse_what_cannot_be_imported(function: Callable[..., Any]) -> None:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    found = None
    if module not in (None, "__main__"):
        with contextlib.suppress(ImportError):
            found = getattr(importlib.import_module(module), name, None)
    if found is not function:
        raise ValueError(
            f"function must be one that a new process can import from a file; got {function!r}"
        )


def _log(folder: str | Path, rank: int) -> Path:
    return Path(folder) / f"{rank}.log"


def _result(folder: str | Path, rank: int) -> Path:
    return Path(folder) / f"{rank}.pt"


def _wait(context: mp.ProcessContext, folder: Path, until: float, timeout: float) -> None:
    """Show what the first process prints until all have finished; raise if one has not."""
    shown = 0
    while True:
        try:
            finished = context.join(timeout=0.1)
        except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
            raise LaunchError(
                f"process {error.error_index} failed ({_reason(error)}). Its last lines:\n"
                f"{_last_lines(folder, error.error_index)}"
            ) from None
        printed = _log(folder, 0).read_text("utf-8", "replace") if _log(folder, 0).exists() else ""
        print(printed[shown:], end="")
        shown = len(printed)
        if finished:
            return
        if time.monotonic() > until:
            slow = [rank for rank, one in enumerate(context.processes) if one.is_alive()]
            raise LaunchError(
                f"processes {slow} had not finished after {timeout:g} s and were ended. The last "
                f"lines of process {slow[0]}:\n{_last_lines(folder, slow[0])}"
            )


def _reason(error: Exception) -> str:
    if isinstance(error, mp.ProcessExitedException):
        return f"it ended with exit code {error.exit_code}"
    return str(error).strip().splitlines()[-1]


def _last_lines(folder: Path, rank: int) -> str:
    if not _log(folder, rank).exists():
        return "(it had not started)"
    lines = _log(folder, rank).read_text("utf-8", "replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-LAST_LINES:]) or "  (it printed nothing)"


def _process(
    rank: int, processes: int, folder: str, function: Callable[..., Any], arguments: tuple
) -> None:
    """Be one of the processes: join the group, work, store the result, leave."""
    log = _log(folder, rank).open("w", buffering=1, encoding="utf-8")
    os.dup2(log.fileno(), sys.stdout.fileno())
    os.dup2(log.fileno(), sys.stderr.fileno())
    sys.stdout = sys.stderr = log
    # The processes share the cores; more threads than cores would only wait for each other.
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    with _group(rank, processes, init_method=(Path(folder) / "meeting").as_uri()):
        torch.save(function(*arguments), _result(folder, rank))


@contextlib.contextmanager
def _group(rank: int, processes: int, **how: Any) -> Iterator[None]:  # noqa: ANN401
    """Belong to the group of processes: NCCL with a GPU each, gloo on CPUs."""
    if torch.cuda.is_available():
        local = int(os.environ.get("LOCAL_RANK", rank))
        torch.cuda.set_device(local)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=processes, **how)
    try:
        yield
    finally:
        dist.destroy_process_group()


def replica(config: ModelConfig, data: Data, dtype: torch.dtype, how: dict[str, Any]) -> dict:
    """Train one replica of a ``SmallLM`` in a group of processes, and return what came of it.

    ``how`` holds the arguments of ``train``; ``batch_size`` is that of one device. Returns the
    losses of the updates, the seconds, and the final weights by name.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = SmallLM(config).to(device, dtype)
    shared = DistributedDataParallel(model)
    history = train(shared, data, **how)
    weights = {name: weight.detach().cpu() for name, weight in model.named_parameters()}
    return {"loss": history.loss, "seconds": history.seconds, "weights": weights}


def alone(config: ModelConfig, data: Data, dtype: torch.dtype, how: dict[str, Any]) -> dict:
    """Train the same model in this one process, and return the same as ``replica``."""
    model = SmallLM(config).to(dtype)
    history = train(model, data, **how)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    return {"loss": history.loss, "seconds": history.seconds, "weights": weights}
