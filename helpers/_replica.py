"""A model of which each device may train a copy: what is in the wrapper, and whose copy it is."""

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def bare(model: nn.Module) -> nn.Module:
    """Return the model without ``DistributedDataParallel`` around it."""
    return getattr(model, "module", model)


def place(model: nn.Module) -> tuple[int, int]:
    """Return the number of this device, from 0, and how many work on the same updates."""
    if not isinstance(model, DistributedDataParallel):
        return 0, 1
    return dist.get_rank(model.process_group), dist.get_world_size(model.process_group)
