"""The same update on several devices: real processes, one a device.

From a notebook, ``launch`` starts them. From a shell, torch's own launcher does::

    python -m torch.distributed.run --standalone --nproc-per-node 2 -m helpers.parallel --check

and, for several machines, the same on each of them with ``--nnodes 2 --rdzv-backend c10d
--rdzv-endpoint HOST:PORT`` in place of ``--standalone``.
"""

import argparse
import contextlib
import importlib
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from helpers._checks import one_of, positive, whole
from helpers._replica import bare
from helpers.accumulate import relative_difference
from helpers.data import CharTokenizer, collate, make_records
from helpers.examples import Data, draw_updates
from helpers.model import IGNORED, ModelConfig, SmallLM, token_loss
from helpers.plan import RunPlan
from helpers.train import train

LAST_LINES = 8
PATIENCE = 1.0  # seconds
CLOSE_ENOUGH = 1e-12
UNGUARDED = 74  # what a process leaves with that would launch others while it starts
BACKENDS = ("gloo", "nccl")


class LaunchError(RuntimeError):
    """A process died or did not finish; the message has its last lines."""


def launch(
    function: Callable[..., Any],
    /,
    *arguments: Any,  # noqa: ANN401
    processes: int = 2,
    backend: str | None = None,
    timeout: float = 300.0,
) -> list[Any]:
    """Run ``function(*arguments)`` in several processes that form one group; return the results.

    The processes start anew (spawned, never forked), so that it works from a notebook, after CUDA
    was used, and on every system. They meet through a file in a temporary folder, not a port.
    ``backend`` "nccl" gives each a GPU of its own, "gloo" shares the CPU; without one it is "nccl"
    if there are GPUs enough. What the first process prints is shown here as it comes. If one
    fails, or not all have finished after ``timeout`` seconds, the others are ended.

    A new process reads the script that launches it from the top. So guard the call there, or each
    process would launch others (in a notebook this is not needed)::

        if __name__ == "__main__":
            launch(function)

    ``function`` must be one that a new process can import: not a lambda, nor defined in a notebook.
    What it returns must be made of tensors, numbers, strings, lists and dicts.

    Raises ``ValueError`` or ``TypeError`` for arguments that cannot be meant, before anything
    starts, and ``LaunchError`` with the last lines of the process that failed, or one line if the
    launch is not guarded.
    """
    if getattr(mp.current_process(), "_inheriting", False):  # it reads the script that launched it
        os._exit(UNGUARDED)
    _refuse_what_cannot_be_imported(function)
    whole("processes", processes)
    positive("timeout", timeout)
    backend = backend_for(processes) if backend is None else one_of("backend", backend, BACKENDS)
    if backend == "nccl" and processes > torch.cuda.device_count():
        raise ValueError(
            f"processes must be at most {torch.cuda.device_count()} under nccl, the GPUs of this "
            f"machine; got {processes}. Use backend='gloo'"
        )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        context = mp.start_processes(
            _process,
            args=(processes, backend, folder, function, arguments),
            nprocs=processes,
            join=False,
            daemon=True,
            start_method="spawn",
        )
        try:
            _wait(context.processes, Path(folder), timeout)
        finally:
            for process, error_file in zip(context.processes, context.error_files):
                process.kill()
                process.join()
                Path(error_file).unlink(missing_ok=True)
        return [torch.load(_result(folder, rank)) for rank in range(processes)]


def _refuse_what_cannot_be_imported(function: Callable[..., Any]) -> None:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    found = None
    if module not in (None, "__main__"):
        with contextlib.suppress(ImportError):
            found = getattr(importlib.import_module(module), name, None)
    if not callable(function) or found is not function:
        raise ValueError(
            f"function must be one that a new process can import from a file; got {function!r}"
        )


def _log(folder: str | Path, rank: int) -> Path:
    return Path(folder) / f"{rank}.log"


def _failure(folder: str | Path, rank: int) -> Path:
    return Path(folder) / f"{rank}.json"


def _result(folder: str | Path, rank: int) -> Path:
    return Path(folder) / f"{rank}.pt"


def _wait(processes: list[mp.Process], folder: Path, timeout: float) -> None:
    """Show what the first process prints until all have finished; raise if one has not."""
    until, shown = time.monotonic() + timeout, 0
    while True:
        codes = [process.exitcode for process in processes]
        printed = _read(_log(folder, 0))
        print(printed[shown:], end="")
        shown = len(printed)
        if all(code == 0 for code in codes):
            return
        if UNGUARDED in codes:
            raise LaunchError(
                'guard the launch in your script with if __name__ == "__main__": each new process '
                "reads the script from the top, and would launch others"
            )
        if any(codes):
            time.sleep(PATIENCE)  # those that waited for the failed one fail too
            rank, reason = _first_cause(processes, folder)
            break
        if time.monotonic() > until:
            rank, reason = codes.index(None), f"it had not finished after {timeout:g} s"
            break
        time.sleep(0.05)
    raise LaunchError(
        f"process {rank} failed: {reason}. Its last lines:\n{_last_lines(folder, rank)}"
    )


def _first_cause(processes: list[mp.Process], folder: Path) -> tuple[int, str]:
    """Return which process failed first and why: one ended by a signal, or the earliest error."""
    for rank, process in enumerate(processes):
        if (process.exitcode or 0) < 0:
            return rank, f"it was ended by {signal.Signals(-process.exitcode).name}"
    failures = [
        (*json.loads(_read(_failure(folder, rank)) or '[Infinity, "it left"]'), rank)
        for rank, process in enumerate(processes)
        if process.exitcode
    ]
    _, reason, rank = min(failures)
    return rank, reason


def _read(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""


def _last_lines(folder: Path, rank: int) -> str:
    lines = _read(_log(folder, rank)).splitlines()[-LAST_LINES:]
    return "\n".join(f"  {line}" for line in lines) or "  (it printed nothing)"


def _process(
    rank: int,
    processes: int,
    backend: str,
    folder: str,
    function: Callable[..., Any],
    arguments: tuple,
) -> None:
    """Be one of the processes: join the group, work, store the result, leave."""
    log = _log(folder, rank).open("w", buffering=1, encoding="utf-8")
    os.dup2(log.fileno(), sys.stdout.fileno())
    os.dup2(log.fileno(), sys.stderr.fileno())
    sys.stdout = sys.stderr = log
    # The processes share the cores; more threads than cores would only wait for each other.
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    # Noted inside the group too: leaving it breaks the others' connections, and they fail later.
    with (
        _noting(_failure(folder, rank)),
        _group(backend, rank, processes, (Path(folder) / "meeting").as_uri()),
        _noting(_failure(folder, rank)),
    ):
        torch.save(function(*arguments), _result(folder, rank))
    # All is done. The interpreter's own end would now and then abort in a thread of the group.
    log.flush()
    os._exit(0)


@contextlib.contextmanager
def _noting(path: Path) -> Iterator[None]:
    """Write down when and why something failed, the first time only."""
    try:
        yield
    except BaseException as error:
        if not path.exists():
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            path.write_text(json.dumps([time.time(), reason]), encoding="utf-8")
        raise


def backend_for(processes: int) -> str:
    """Return "nccl" if each process of this machine can have a GPU of its own."""
    return "nccl" if 0 < processes <= torch.cuda.device_count() else "gloo"


@contextlib.contextmanager
def _group(
    backend: str, rank: int = -1, processes: int = -1, meet: str | None = None
) -> Iterator[None]:
    """Belong to a group; without numbers, the launcher's environment variables say who is who."""
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    dist.init_process_group(backend, init_method=meet, rank=rank, world_size=processes)
    try:
        yield
    finally:
        dist.destroy_process_group()


def alone(config: ModelConfig, data: Data, dtype: torch.dtype, how: dict[str, Any]) -> dict:
    """Train a ``SmallLM`` in one process, for comparison, and return what ``replica`` returns."""
    return _train(_first_model(config, dtype, how), data, how)


def replica(config: ModelConfig, data: Data, dtype: torch.dtype, how: dict[str, Any]) -> dict:
    """Train one process's copy of a ``SmallLM`` in a group, each update shared by all.

    ``how`` holds the arguments of ``train``; ``batch_size`` is that of one process, and ``seed``
    draws the first weights too. Returns the
    losses of the updates, the targets and seconds up to each, the final weights by name, and the
    bytes of gradients that one update sends.
    """
    model = DistributedDataParallel(_first_model(config, dtype, how))
    sent = _count_sent_bytes(model)
    result = _train(model, data, how)
    result["bytes_an_update"] = sum(sent) // len(result["loss"])
    return result


def sharded_gradient(config: ModelConfig, data: tuple[Tensor, Tensor], dtype: torch.dtype) -> dict:
    """Take the gradient of one batch with a model of which each process keeps only a part.

    torch's ``fully_shard`` (FSDP2) splits every parameter, its gradient and with it the optimizer's
    states over the processes, and gathers a block only while it computes. Returns the whole
    gradient by name, the numbers that this process keeps, and how many there are in all.
    """
    mesh = init_device_mesh(_device().type, (dist.get_world_size(),))
    model = SmallLM(config).to(_device(), dtype)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    inputs, targets = (part[dist.get_rank() :: mesh.size()].to(_device()) for part in data)
    targets_a_process = int((data[1] != IGNORED).sum()) / mesh.size()
    (token_loss(model(inputs), targets, "sum") / targets_a_process).backward()
    return {
        "gradient": {
            name: part.grad.full_tensor().cpu() for name, part in model.named_parameters()
        },
        "kept": sum(part.to_local().numel() for part in model.parameters()),
        "parameters": sum(part.numel() for part in model.parameters()),
    }


def time_exchange(numbers: int, rounds: int = 50) -> float:
    """Return the seconds that adding up so many float32 numbers over all processes takes."""
    buffer = torch.zeros(numbers, device=_device())
    taken = []
    for _ in range(rounds):
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(buffer)
        buffer[0].item()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _device() -> torch.device:
    """Return where this process computes: its GPU in a group under NCCL, the CPU otherwise."""
    on_gpu = dist.is_initialized() and dist.get_backend() == "nccl"
    return torch.device("cuda" if on_gpu else "cpu")


def _first_model(config: ModelConfig, dtype: torch.dtype, how: dict[str, Any]) -> SmallLM:
    return SmallLM(config, seed=how.get("seed", 0)).to(_device(), dtype)


def _train(model: nn.Module, data: Data, how: dict[str, Any]) -> dict:
    history = train(model, data, **how)
    weights = {name: weight.detach().cpu() for name, weight in bare(model).named_parameters()}
    return {
        "loss": history.loss,
        "tokens": history.tokens,
        "seconds": history.seconds,
        "weights": weights,
    }


def _count_sent_bytes(model: DistributedDataParallel) -> list[int]:
    """Return a list that gets the bytes of every piece of gradient as it is sent."""
    sent: list[int] = []

    def send(_: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        sent.append(bucket.buffer().nbytes)
        return default_hooks.allreduce_hook(None, bucket)

    model.register_comm_hook(None, send)
    return sent


def check(updates: int = 20) -> dict[str, Any]:
    """Train ragged data in a group and in one process, in float64; return how far they differ.

    Many examples have no target, so that a process now and then has none in a whole update.
    """
    processes, rank = dist.get_world_size(), dist.get_rank()
    records = make_records(60 * processes)
    tokenizer = CharTokenizer("".join(record.text for record in records))
    inputs, targets = collate(records, tokenizer)
    targets[torch.arange(len(targets)) % 5 < 3] = IGNORED
    config = ModelConfig(tokenizer.vocab_size, inputs.shape[1], width=16, layers=1, heads=2)
    how = {"lr": 3e-3, "steps": updates, "clip": 1.0}

    shares = {"batch_size": 2, "accumulation": 2}
    shared = replica(config, (inputs, targets), torch.float64, how | shares)
    whole = alone(config, (inputs, targets), torch.float64, how | {"batch_size": 4 * processes})
    plan = RunPlan(len(inputs), **shares, devices=processes, max_steps=updates)
    has_target = (targets != IGNORED).any(1)
    silent = sum(
        not has_target[torch.cat(update)].any()
        for number in range(processes)
        for update in itertools.islice(draw_updates(plan, 0, number), updates)
    )
    difference = relative_difference(shared["weights"], whole["weights"])
    return {
        "processes": processes,
        "rank": rank,
        "updates": len(shared["loss"]),
        "shares_without_a_target": silent,
        "relative_difference": difference,
        "ok": difference < CLOSE_ENOUGH,
    }


def main() -> None:
    """Be one of the processes that torch's launcher started."""
    parser = argparse.ArgumentParser(prog="python -m helpers.parallel", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", required=True, help="compare a group with one process"
    )
    parser.parse_args()
    if "RANK" not in os.environ:
        parser.error(
            "start it with: python -m torch.distributed.run ... -m helpers.parallel --check"
        )
    with _group(backend_for(int(os.environ["LOCAL_WORLD_SIZE"]))):
        result = check()
        if result.pop("rank") == 0:
            print(json.dumps(result), flush=True)
        dist.barrier()
    sys.exit(0 if result["ok"] else 1)


if __name__ == "__main__":
    main()
