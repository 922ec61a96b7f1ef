"""The state of a run in one file, which is whole or not there at all.

The file is in the safetensors format. What is no tensor is JSON in its metadata, so that reading it
runs no code, and a checksum there covers both.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from reprlib import Repr
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.optim import Optimizer

from helpers._checks import whole
from helpers.device import random_state, set_random_state
from helpers.plan import RunPlan

if TYPE_CHECKING:
    from helpers.train import Examples, History

KIND = "helpers.checkpoint 1"
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def save_state(path: str | Path, state: dict[str, Any]) -> None:
    """Write a state to ``path``; a crash at any moment leaves the file that was there before.

    ``state`` holds dicts (keys are text or whole numbers), lists and tuples of tensors, numbers,
    text, bools and None. Tensors are written from any device.

    Raises ``TypeError`` for anything else, and ``OSError`` where nothing can be written.
    """
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_take_tensors(state, "state", tensors))
    metadata = {"kind": KIND, "state": tree, "sha256": _checksum(tree, tensors)}
    _write_whole(Path(path), to_bytes(tensors, metadata))


def load_state(path: str | Path) -> dict[str, Any]:
    """Return what ``save_state`` wrote, with all tensors on the CPU.

    Raises ``ValueError`` for a file that is damaged or something else, ``FileNotFoundError`` where
    there is none.
    """
    try:
        with safe_open(path, "pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - not a dict
    except SafetensorError as error:
        raise ValueError(
            f"path must lead to a checkpoint; {path} is none, or is cut off or damaged "
            f"({type(error).__name__}: {error})"
        ) from None
    if metadata.get("kind") != KIND:
        raise ValueError(
            f"path must lead to a checkpoint written by save_state ({KIND!r}); {path} is of the "
            f"kind {metadata.get('kind')!r}"
        )
    tree = metadata.get("state", "")
    if metadata.get("sha256") != _checksum(tree, tensors):
        raise ValueError(
            f"path must lead to a whole checkpoint; {path} is damaged: its contents are not those "
            f"that were written"
        )
    return _put_tensors(json.loads(tree), tensors)


def _take_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:  # noqa: ANN401
    """Return ``value`` as JSON can hold it, with its tensors moved to ``tensors``."""
    if isinstance(value, Tensor):
        # A copy, because safetensors takes no two tensors that share memory.
        return {"tensor": _named(tensors, name, value.detach().to("cpu", copy=True).contiguous())}
    if isinstance(value, list) and {type(item) for item in value} == {float}:
        # A history is long, and text would be slow and large.
        return {"floats": _named(tensors, name, torch.tensor(value, dtype=torch.float64))}
    if isinstance(value, dict) and all(type(key) in (str, int) for key in value):
        pairs = [
            [key, _take_tensors(item, f"{name}.{key}", tensors)] for key, item in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, (list, tuple)):
        items = [
            _take_tensors(item, f"{name}[{index}]", tensors) for index, item in enumerate(value)
        ]
        return items if isinstance(value, list) else {"tuple": items}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(
        f"{name} must be a tensor, number, text, bool, None, or a dict, list or tuple of them; got "
        f"{type(value).__name__}"
    )


def _named(tensors: dict[str, Tensor], name: str, tensor: Tensor) -> str:
    name = f"{name}#{len(tensors)}"  # the key 1 and the key "1" are two
    tensors[name] = tensor
    return name


def _put_tensors(tree: Any, tensors: dict[str, Tensor]) -> Any:  # noqa: ANN401
    """Undo ``_take_tensors``."""
    if isinstance(tree, list):
        return [_put_tensors(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "floats":
        return tensors[content].tolist()
    if kind == "tuple":
        return tuple(_put_tensors(content, tensors))
    return {key: _put_tensors(item, tensors) for key, item in content}


def fingerprint(*tensors: Tensor) -> str:
    """Return 64 hex digits that two lists of tensors share only if they are the same."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _checksum(tree: str, tensors: dict[str, Tensor]) -> str:
    names = sorted(tensors)
    contents = fingerprint(*(tensors[name] for name in names))
    return hashlib.sha256(f"{tree}{names}{contents}".encode()).hexdigest()


def _write_whole(path: Path, content: bytes) -> None:
    # In the same folder, because a file is only renamed in one go inside one file system.
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if os.name != "nt":  # Windows has no way to sync a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class RunKeeper:
    """Saves what a run of ``train`` is made of to one file, and brings it back.

    ``run`` is what ``describe`` says of it. Nothing of the run is changed before all is checked.
    """

    def __init__(
        self,
        path: Path,
        run: dict[str, Any],
        model: nn.Module,
        updater: Optimizer,
        history: "History",
    ) -> None:
        self.path, self.run = path, run
        self.model, self.updater, self.history = _bare(model), updater, history
        self.device = next(model.parameters()).device

    def save(self) -> None:
        """Write the run as it stands; between two updates only."""
        happened = {name: value for name, value in vars(self.history).items() if name != "plan"}
        state = {
            "run": self.run,
            "model": self.model.state_dict(),
            "optimizer": self.updater.state_dict(),
            "random": random_state(self.device),
            "history": happened,
        }
        save_state(self.path, state)

    def resume(self) -> None:
        """Put the run where it stood; ``ValueError`` for a damaged file or one of another run."""
        state = load_state(self.path)
        refuse_another_run(state.get("run", {}), self.run)
        self.model.load_state_dict(state["model"])
        self.updater.load_state_dict(state["optimizer"])
        set_random_state(state["random"], self.device)
        vars(self.history).update(state["history"])


def path_and_interval(
    checkpoint: str | Path | None, save_every: int | None, resume: bool, plan: RunPlan
) -> tuple[Path | None, int]:
    """Return the path of a checkpoint and the updates between two of them, checked."""
    if not isinstance(resume, bool):
        raise TypeError(f"resume must be True or False; got {resume!r}")
    if checkpoint is None:
        if resume or save_every is not None:
            raise ValueError(
                f"checkpoint must be a path where save_every or resume is given; got None with "
                f"save_every={save_every!r} and resume={resume!r}"
            )
        return None, plan.total_steps
    if not isinstance(checkpoint, (str, Path)):
        raise TypeError(f"checkpoint must be a path; got {checkpoint!r}")
    path = Path(checkpoint)
    if not path.parent.is_dir() or path.is_dir():
        raise ValueError(f"checkpoint must be a file in a folder that exists; got {str(path)!r}")
    if resume and not path.exists():
        raise ValueError(
            f"checkpoint must exist to resume from it; {str(path)!r} does not. Begin with "
            f"resume=False"
        )
    return path, plan.total_steps if save_every is None else whole("save_every", save_every)


def describe(
    plan: RunPlan,
    model: nn.Module,
    updater: Optimizer,
    examples: "Examples",
    factors: Sequence[float],
    **options: object,
) -> dict[str, Any]:
    """Return all that decides what a run does, in plain values that compare by name."""
    config = getattr(_bare(model), "config", None)
    shapes = {
        name: f"{tuple(value.shape)} of {value.dtype}"
        for name, value in _bare(model).state_dict().items()
    }
    groups = [
        {name: _plain(value) for name, value in group.items() if name not in ("params", "lr")}
        | {"parameters": len(group["params"])}
        for group in updater.param_groups
    ]
    settings = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    return {
        **{name: _plain(value) for name, value in (settings | options).items()},
        "schedule": [float(factor) for factor in factors],
        "data": fingerprint(examples.inputs, examples.targets),
        "device": examples.inputs.device.type,
        "model": type(_bare(model)).__name__,
        "model.config": repr(config) if dataclasses.is_dataclass(config) else None,
        "model.state": shapes,
        "optimizer": type(updater).__name__,
        "optimizer.groups": groups,
    }


def _bare(model: nn.Module) -> nn.Module:
    """Return the model without ``DistributedDataParallel`` around it."""
    return getattr(model, "module", model)


def _plain(value: object) -> bool | int | float | str | None:
    """Return a value that a file gives back as it is."""
    return value if value is None or type(value) in (bool, int, float, str) else repr(value)


def refuse_another_run(saved: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise ``ValueError`` that names what differs between two descriptions of a run."""
    differences = list(_differences(saved, here, ""))
    if differences:
        more = f"; and {len(differences) - 4} more" if len(differences) > 4 else ""
        raise ValueError(
            f"checkpoint must be of the same run; {'; '.join(differences[:4])}{more}. Resume with "
            f"the arguments it was saved with, or begin anew with resume=False"
        )


def _differences(saved: Any, here: Any, name: str) -> Iterator[str]:  # noqa: ANN401
    if isinstance(saved, dict) and isinstance(here, dict):
        for key in saved | here:
            inside = f"{name}.{key}" if name else key
            yield from _differences(saved.get(key), here.get(key), inside)
    elif isinstance(saved, list) and isinstance(here, list) and len(saved) == len(here):
        for index, (before, now) in enumerate(zip(saved, here)):
            yield from _differences(before, now, f"{name}[{index}]")
    elif saved != here:
        yield f"{name} was {_SHORT.repr(saved)} and is {_SHORT.repr(here)}"
