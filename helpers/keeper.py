"""A run that can stop and go on: what it is made of, kept in a checkpoint."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from reprlib import Repr
from typing import Any

from torch import nn
from torch.optim import Optimizer

from helpers._checks import whole
from helpers._replica import bare, place
from helpers.checkpoint import fingerprint, load_state, save_state
from helpers.device import random_state, set_random_state
from helpers.examples import Examples
from helpers.history import History
from helpers.precision import Precision

# What a checkpoint means that was written before runs had these.
_BEFORE = {"drop_last_update": False, "warmup_by": "updates", "precision": "float32"}
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def check_keeping(checkpoint: str | Path | None, save_every: int | None, resume: bool) -> None:
    """Raise ``ValueError`` or ``TypeError`` unless a run can be kept so and, if asked, resumed."""
    if not isinstance(resume, bool):
        raise TypeError(f"resume must be True or False; got {resume!r}")
    if checkpoint is None:
        if resume or save_every is not None:
            raise ValueError(
                f"checkpoint must be a path where save_every or resume is given; got None with "
                f"save_every={save_every!r} and resume={resume!r}"
            )
        return
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
    if save_every is not None:
        whole("save_every", save_every)


class RunKeeper:
    """Saves what a run of ``train`` is made of to one file, and brings it back.

    ``schedule`` and ``options`` are what decides the run beside the other arguments. Nothing of
    the run is changed before all is checked.
    """

    def __init__(
        self,
        path: str | Path,
        model: nn.Module,
        updater: Optimizer,
        history: History,
        examples: Examples,
        schedule: Sequence[float],
        precision: Precision,
        **options: object,
    ) -> None:
        self.path = Path(path)
        self.model, self.updater, self.history = bare(model), updater, history
        self.precision = precision
        options = options | {"precision": precision.name}
        self.device = next(model.parameters()).device
        self.writes = place(model)[0] == 0
        self.run = self._describe(examples, schedule, options)

    def save(self) -> None:
        """Write the run as it stands, on the first device; between two updates only."""
        if not self.writes:
            return
        happened = {name: value for name, value in vars(self.history).items() if name != "plan"}
        state = {
            "run": self.run,
            "model": self.model.state_dict(),
            "optimizer": self.updater.state_dict(),
            "random": random_state(self.device),
            "history": happened,
            "precision": self.precision.state(),
        }
        save_state(self.path, state)

    def resume(self) -> None:
        """Put the run where it stood; ``ValueError`` for a damaged file or one of another run."""
        state = load_state(self.path)
        _refuse_another_run(_BEFORE | state.get("run", {}), self.run)
        self.model.load_state_dict(state["model"])
        self.updater.load_state_dict(state["optimizer"])
        set_random_state(state["random"], self.device)
        self.precision.set_state(state.get("precision", {}))
        vars(self.history).update(state["history"])

    def _describe(
        self, examples: Examples, schedule: Sequence[float], options: dict[str, object]
    ) -> dict[str, Any]:
        """Return all that decides what a run does, in plain values that compare by name."""
        plan = self.history.plan
        config = getattr(self.model, "config", None)
        shapes = {
            name: f"{tuple(value.shape)} of {value.dtype}"
            for name, value in self.model.state_dict().items()
        }
        groups = [
            {name: _plain(value) for name, value in group.items() if name not in ("params", "lr")}
            | {"parameters": len(group["params"])}
            for group in self.updater.param_groups
        ]
        settings = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
        return {
            **{name: _plain(value) for name, value in (settings | options).items()},
            "schedule": [float(factor) for factor in schedule],
            "data": fingerprint(examples.inputs, examples.targets),
            "device": examples.inputs.device.type,
            "model": type(self.model).__name__,
            "model.config": repr(config) if dataclasses.is_dataclass(config) else None,
            "model.state": shapes,
            "optimizer": type(self.updater).__name__,
            "optimizer.groups": groups,
        }


def _plain(value: object) -> bool | int | float | str | None:
    """Return a value that a file gives back as it is."""
    return value if value is None or type(value) in (bool, int, float, str) else repr(value)


def _refuse_another_run(saved: dict[str, Any], here: dict[str, Any]) -> None:
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
