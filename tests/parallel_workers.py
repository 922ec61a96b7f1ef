"""What the tests let processes do; a new process must be able to import it."""

import atexit
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from helpers.parallel import replica
from helpers.train import train


def add_ranks(extra):
    total = torch.tensor(float(dist.get_rank() + extra))
    dist.all_reduce(total)
    print(f"process {dist.get_rank()} has {total.item():g}")
    return {"total": total, "pid": os.getpid(), "threads": torch.get_num_threads()}


def several_runs(config, data, ways):
    return [replica(config, data, torch.float64, how) for how in ways]


def stop_and_resume(make_model, data, path, how):
    """Return the losses and weights of a run, and of one that stops in its 12th micro-batch."""
    results = []
    for crash_at in (None, 11):
        model = DistributedDataParallel(make_model(crash_at=crash_at))
        name = f"{path} {crash_at}"
        if crash_at is not None:
            try:
                train(model, data, checkpoint=name, save_every=2, **how)
            except RuntimeError as error:
                print("stopped", error)
            dist.barrier()  # the first may still be writing
            model = DistributedDataParallel(make_model(seed=1))
        resume = crash_at is not None
        history = train(model, data, checkpoint=name, save_every=2, resume=resume, **how)
        weights = [weight.detach() for weight in model.module.parameters()]
        results.append({"loss": history.loss, "examples": history.examples, "weights": weights})
    return results


def abort_at_the_interpreters_end():
    atexit.register(os.abort)
    return dist.get_rank()


def fail_in_second():
    print("about to divide")
    if dist.get_rank() == 1:
        raise ZeroDivisionError("one share has no targets")
    dist.barrier()


def die_in_second():
    print("still here", flush=True)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def leave_in_first():
    if dist.get_rank() == 0:
        sys.exit(7)
    dist.barrier()


def hang_in_second():
    print("waiting", os.getpid())
    if dist.get_rank() == 1:
        time.sleep(600)
    dist.barrier()
