"""A stand-in for a card: tensors that say "cuda", lie in plain memory, and refuse those of the CPU.

Inside ``card()`` this machine seems to have a GPU. A tensor that is made on it or moved to it says
so, and so does all that is computed from it; to mix it with a tensor of the CPU raises the error of
CUDA, in the cases where CUDA does. So a forgotten ``.to(device)`` is found without a GPU.

What it cannot show:

- kernels: which ones there are, their rounding, their speed, and what they cannot do on a card;
- the allocator: what is full, what is in pieces; its counters here are all zero;
- fused optimizers and attention as they are on a card: those of the CPU run;
- random numbers of a card, and a generator that lives there;
- several cards, streams, and an answer that is read before the card has it;
- a gradient that flows from the card back to the CPU, and any process that is started meanwhile.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._tools.mem_tracker import _WeakRefInfo
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

HOST, CARD = torch.device("cpu"), torch.device("cuda", 0)
GETTERS = {  # what a tensor says of where it is
    torch.Tensor.device.__get__: lambda place: place,
    torch.Tensor.is_cuda.__get__: lambda place: place == CARD,
    torch.Tensor.is_cpu.__get__: lambda place: place == HOST,
    torch.Tensor.get_device: lambda place: 0 if place == CARD else -1,
}
FOR_HOST_ALONE = {torch.Tensor.numpy, torch.Tensor.__array__}
MOVES = {torch.Tensor.cpu: HOST, torch.Tensor.cuda: CARD}
aten = torch.ops.aten
COPIES = {aten.copy_.default, aten._foreach_copy_.default}
# Indices may be on the CPU, what is indexed may not: its place in the arguments.
INDEXING = {
    aten.index.Tensor: (0,),
    aten.index_put.default: (0, 2),
    aten.index_put_.default: (0, 2),
    aten._index_put_impl_.default: (0, 2),
}


def place_of(tensor: Tensor) -> torch.device | None:
    """Return where a tensor says that it is; None for one that was made inside an operation."""
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    if isinstance(tensor, FakeTensor):
        return tensor.fake_device
    return getattr(tensor.untyped_storage(), "place", None)


def put(tensor: Tensor, place: torch.device) -> None:
    """Let a tensor, and all views of its memory, say that it is there."""
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    if not isinstance(tensor, FakeTensor):
        tensor.untyped_storage().place = place


class Names(TorchFunctionMode):
    """Answers where a tensor is, and takes the card's name out of calls before torch sees it."""

    def __init__(self, checks: "Checks") -> None:
        super().__init__()
        self.checks = checks

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in GETTERS:
            place = place_of(args[0])
            return func(*args) if place is None else GETTERS[func](place)
        if func in FOR_HOST_ALONE and place_of(args[0]) == CARD:
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the "
                "tensor to host memory first."
            )
        asked = MOVES.get(func)
        if func == torch.Tensor.to:
            asked, args = _asked(args)
        if func == torch.Tensor.cuda:
            func, args = torch.Tensor.to, (*args[:1], HOST)
        if kwargs.get("device") is not None:
            asked = _place(kwargs["device"])
            kwargs["device"] = HOST
        generator = kwargs.get("generator")
        if asked == CARD and generator is not None and generator.device.type == "cpu":
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        with self.checks.making(asked):
            result = func(*args, **kwargs)
            if not isinstance(result, Tensor):
                return result
            if asked is not None and place_of(result) not in (None, asked):
                result = result.clone()
        if func == torch.Tensor.__deepcopy__:
            put(result, place_of(args[0]))
        elif place_of(result) is None:
            put(result, asked or HOST)
        return result


def _place(named: torch.device | str | int) -> torch.device:
    return HOST if torch.device(named).type == "cpu" else CARD


def _asked(args: tuple) -> tuple[torch.device | None, tuple]:
    """Return where ``Tensor.to`` is to move its tensor, and its arguments without the name."""
    asked, rest = None, [args[0]]
    for arg in args[1:]:
        if isinstance(arg, Tensor):
            asked = place_of(arg)
            rest.append(arg.dtype)
        elif isinstance(arg, (torch.device, str)):
            asked = _place(arg)
            rest.append(HOST)
        else:
            rest.append(arg)
    return asked, tuple(rest)


class Checks(TorchDispatchMode):
    """Sees each operation: refuses mixed places, and gives its results a place."""

    asked: torch.device | None = None

    @contextmanager
    def making(self, asked: torch.device | None) -> Iterator[None]:
        """Put what is made inside to the place that was asked for."""
        before, self.asked = self.asked, asked
        try:
            yield
        finally:
            self.asked = before

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = list(tensors_in((*args, *kwargs.values())))
        if any(isinstance(tensor, FakeTensor) for tensor in given):
            return func(*args, **kwargs)
        places = {place_of(tensor) for tensor in given}
        if {HOST, CARD} <= places and not may_mix(func, args, given):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda:0 and cpu! (in {func}, on the stand-in)"
            )
        result = func(*args, **kwargs)
        place = self.asked or (CARD if CARD in places else HOST if HOST in places else None)
        if place is not None:
            for made in tensors_in(result if isinstance(result, (list, tuple)) else (result,)):
                if place_of(made) is None:
                    put(made, place)
        return result


def tensors_in(values: Iterable) -> Iterator[Tensor]:
    """Yield the tensors among values, and in lists of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def may_mix(func: torch._ops.OpOverload, args: tuple, given: list[Tensor]) -> bool:
    """Return whether CUDA does this operation with tensors of the CPU as well."""
    if func in COPIES:
        return True
    if func in INDEXING:
        given = [args[position] for position in INDEXING[func]]
        return place_of(given[0]) == CARD and _single_numbers(given)
    by_number = torch.Tag.pointwise in func.tags or "_foreach_" in func.name()
    return by_number and _single_numbers(given)


def _single_numbers(given: Iterable[Tensor]) -> bool:
    return all(tensor.dim() == 0 for tensor in given if place_of(tensor) == HOST)


@contextmanager
def card() -> Iterator[None]:
    """Let this machine seem to have one card, with the memory of a T4."""
    total = 15 * 2**30
    checks = Checks()
    by_device = torch._C._group_tensors_by_device_and_dtype

    def grouped(*args):
        groups = by_device(*args)
        return {(groups[k][0][0][0].device, k[1]): value for k, value in groups.items()}

    weigh = _WeakRefInfo.create_winfo

    def weighed(storage, _, *rest):
        return weigh(storage, storage.device, *rest)  # the tracker asks where no mode answers

    fakes = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_properties": lambda _=None: SimpleNamespace(name="none", total_memory=total),
        "get_device_capability": lambda _=None: (7, 5),
        "mem_get_info": lambda _=None: (total, total),
        "memory_stats": lambda _=None: defaultdict(int),
        "reset_peak_memory_stats": lambda _=None: None,
        "synchronize": lambda _=None: None,
        "get_rng_state": lambda _=None: torch.get_rng_state(),
        "set_rng_state": lambda *_: None,
    }
    at = property(lambda storage: getattr(storage, "place", HOST))
    with ExitStack() as stack:
        stack.enter_context(patch.multiple(torch.cuda, **fakes))
        stack.enter_context(patch.object(torch.UntypedStorage, "device", at))
        stack.enter_context(patch.object(_WeakRefInfo, "create_winfo", weighed))
        stack.enter_context(patch.object(torch._C, "_group_tensors_by_device_and_dtype", grouped))
        stack.enter_context(checks)
        stack.enter_context(Names(checks))
        yield
