"""A state in one file, which is whole or not there at all.

The file is in the safetensors format. What is no tensor is JSON in its metadata, so that reading it
runs no code, and a checksum there covers both.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

KIND = "helpers.checkpoint 1"


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
