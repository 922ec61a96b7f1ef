"""The arithmetic of a run: batches, updates and epochs, and who is in the last one.

A *step* is one update of the weights. A *micro-batch* is what one device puts through the model at
once; with accumulation, several of them make one step. Nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import overload

from helpers._checks import exact, in_updates, updates_or_share, whole


class UpdateSizes(Sequence[int]):
    """The examples in each update of one epoch, without a list as long as the epoch.

    All updates but the last hold ``full`` examples. It compares equal to a tuple of the same
    numbers.
    """

    __slots__ = ("count", "full", "last")

    def __init__(self, count: int, full: int, last: int) -> None:
        self.count, self.full, self.last = count, full, last

    def __len__(self) -> int:
        return self.count

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        positions = range(self.count)[index]
        if isinstance(positions, range):
            return tuple(self[position] for position in positions)
        return self.last if positions == self.count - 1 else self.full

    def __eq__(self, other: object) -> bool:
        if isinstance(other, UpdateSizes):
            mine = (self.count, self.last, self.full if self.count > 1 else self.last)
            return mine == (other.count, other.last, other.full if other.count > 1 else other.last)
        if isinstance(other, tuple):
            return len(other) == self.count and all(a == b for a, b in zip(self, other))
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.count, self.last))

    def __repr__(self) -> str:
        if self.count <= 6:
            return repr(tuple(self))
        return f"({self.full}, {self.full}, ..., {self.full}, {self.last}) [{self.count:,} updates]"


@dataclass(frozen=True, repr=False)
class RunPlan:
    """How many batches, updates and epochs a training run has.

    Parameters
    ----------
    examples
        Training examples in the data set.
    batch_size
        Examples in one micro-batch on one device.
    accumulation
        Micro-batches whose gradients are added before one update.
    devices
        Devices that work on the same update. Each gets as many examples as any other; the
        shortfall is repeated, as torch's ``DistributedSampler`` does.
    epochs, max_steps
        The length of the run, in passes over the data or in updates. Give one; without either it
        is one epoch. After construction ``epochs`` is always there, as an int where it is whole
        and as a ``Fraction`` otherwise. A fraction of an epoch rounds up to a whole update.
    drop_last
        Leave out the last micro-batch of an epoch where it is not full, as a ``DataLoader`` does.
        The last update of an epoch may still have fewer micro-batches than the others: it is an
        update all the same.
    warmup
        An int is a number of updates. A float from 0 to 1 is a share of the run and rounds up, in
        decimal arithmetic: 0.07 of 100 updates is 7. Transformers computes in binary floats and
        gets 8, and takes 1.0 for one update.
    tokens
        Tokens in the data set, if they are to be counted.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or size, and for a plan without a single update.

    Examples
    --------
    >>> plan = RunPlan(800, 8, epochs=3, warmup=0.05)
    >>> plan.steps_per_epoch, plan.total_steps, plan.warmup_steps
    (100, 300, 15)
    >>> RunPlan(9, 2, accumulation=2).update_sizes
    (4, 4, 1)
    >>> RunPlan(100, 8, max_steps=39).epochs
    3
    """

    examples: int
    batch_size: int
    _: dataclasses.KW_ONLY
    accumulation: int = 1
    devices: int = 1
    epochs: int | float | Fraction | None = None
    max_steps: int | None = None
    drop_last: bool = False
    warmup: int | float | Fraction = 0
    tokens: int | None = None

    def __post_init__(self) -> None:
        self._set("examples", self._examples())
        for name in ("batch_size", "accumulation", "devices"):
            self._set(name, whole(name, getattr(self, name)))
        if not isinstance(self.drop_last, bool):
            raise TypeError(f"drop_last must be True or False; got {self.drop_last!r}")
        if self.tokens is not None:
            self._set("tokens", whole("tokens", self.tokens))
        self._set("warmup", updates_or_share("warmup", self.warmup))
        if self.batches_per_epoch == 0:
            raise ValueError(
                f"no update would ever happen: {self._share} examples a device (of "
                f"{self.examples}) do not fill one batch_size of {self.batch_size}, and drop_last "
                f"leaves the rest out. Use drop_last=False or a batch_size of at most {self._share}"
            )
        self._set("epochs", self._epochs())

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _examples(self) -> int:
        if self.examples is None:
            raise TypeError(
                "examples must be a whole number of at least 1; got None. A stream has no length "
                "and no epochs: plan it as max_steps updates over the examples you will draw"
            )
        return whole("examples", self.examples)

    def _epochs(self) -> int | Fraction:
        if self.max_steps is not None:
            if self.epochs is not None:
                raise ValueError(
                    f"give epochs or max_steps, not both; got epochs={self.epochs!r} and "
                    f"max_steps={self.max_steps!r}"
                )
            self._set("max_steps", whole("max_steps", self.max_steps))
            epochs = Fraction(self.max_steps, self.steps_per_epoch)
        else:
            epochs = exact("epochs", 1 if self.epochs is None else self.epochs)
        if epochs <= 0:
            raise ValueError(f"epochs must be above zero; got {self.epochs!r}")
        return epochs.numerator if epochs.denominator == 1 else epochs

    def replace(self, **changes: object) -> RunPlan:
        """Return a plan with some arguments changed; a new length replaces the old one."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.max_steps is not None or "max_steps" in changes:
            given["epochs"] = None
        if "epochs" in changes:
            given["max_steps"] = None
        return RunPlan(**(given | changes))

    @property
    def _share(self) -> int:
        """Examples of one device in an epoch, repeated ones included."""
        return -(-self.examples // self.devices)

    @property
    def effective_batch_size(self) -> int:
        """Examples in a full update: batch size × accumulation × devices."""
        return self.batch_size * self.accumulation * self.devices

    @property
    def batches_per_epoch(self) -> int:
        """Micro-batches of one device in an epoch."""
        full, rest = divmod(self._share, self.batch_size)
        return full if self.drop_last or rest == 0 else full + 1

    @property
    def steps_per_epoch(self) -> int:
        """Updates in an epoch, a short last one included."""
        return -(-self.batches_per_epoch // self.accumulation)

    @property
    def total_steps(self) -> int:
        """Updates in the run."""
        if self.max_steps is not None:
            return self.max_steps
        return math.ceil(Fraction(self.epochs) * self.steps_per_epoch)

    @property
    def warmup_steps(self) -> int:
        """Updates of the warmup, which may be longer than the run."""
        return in_updates(self.warmup, self.total_steps)

    @property
    def warmup_reach(self) -> Fraction:
        """The share of the full learning rate that is reached; below 1 if warmup is cut off."""
        if self.warmup_steps <= self.total_steps:
            return Fraction(1)
        return Fraction(self.total_steps, self.warmup_steps)

    @property
    def last_batch_size(self) -> int:
        """Examples of the last micro-batch of an epoch on one device."""
        return self.batch_size if self.drop_last else (self._share - 1) % self.batch_size + 1

    @property
    def update_sizes(self) -> UpdateSizes:
        """Examples in each update of one epoch, over all devices."""
        last_window = (self.batches_per_epoch - 1) % self.accumulation + 1
        last = ((last_window - 1) * self.batch_size + self.last_batch_size) * self.devices
        return UpdateSizes(self.steps_per_epoch, self.effective_batch_size, last)

    @property
    def examples_seen(self) -> int:
        """Examples that go through the model in an epoch, repeated ones counted each time."""
        before_last = (self.batches_per_epoch - 1) * self.batch_size
        return (before_last + self.last_batch_size) * self.devices

    @property
    def repeated_examples(self) -> int:
        """Examples that an epoch sees once more, so that every device has as many."""
        # They sit at the very end of an epoch, so dropping the last batch drops them.
        dropped = self.drop_last and self._share % self.batch_size > 0
        return 0 if dropped else self._share * self.devices - self.examples

    @property
    def tokens_processed(self) -> int | None:
        """Tokens × epochs, to the nearest token; None if no tokens were given."""
        return None if self.tokens is None else round(self.tokens * Fraction(self.epochs))

    @property
    def notes(self) -> tuple[str, ...]:
        """What deserves a second look in this plan, in plain words."""
        sizes, nominal = self.update_sizes, self.effective_batch_size
        dropped = self.examples - (self.examples_seen - self.repeated_examples)
        notes = []
        if self.accumulation > self.batches_per_epoch:
            notes.append(
                f"An epoch has only {self.batches_per_epoch:,} of the {self.accumulation:,} "
                f"micro-batches of an update: every update holds {_count(sizes.last, 'example')}, "
                f"not {nominal:,}."
            )
        elif sizes.last < nominal:
            notes.append(
                f"The last update of an epoch holds {sizes.last:,} of {nominal:,} examples."
            )
        if dropped:
            notes.append(f"drop_last leaves out {_count(dropped, 'example')} in every epoch.")
        if self.repeated_examples:
            notes.append(
                f"Every epoch repeats {_count(self.repeated_examples, 'example')}, so that each of "
                f"{self.devices:,} devices gets {self._share:,}."
            )
        if self.warmup_reach < 1:
            notes.append(
                f"The warmup of {self.warmup_steps:,} updates is longer than the run of "
                f"{self.total_steps:,}: the learning rate reaches "
                f"{float(self.warmup_reach):.0%} of its full value."
            )
        elif self.warmup_steps == 1:
            notes.append("A warmup of one update is no ramp: the first update has the full rate.")
        return tuple(notes)

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("examples", f"{self.examples:,}"),
            (
                "effective batch",
                f"{self.effective_batch_size:,} = {self.batch_size:,} a device × "
                f"{self.accumulation:,} accumulated × {_count(self.devices, 'device')}",
            ),
            ("batches an epoch, a device", f"{self.batches_per_epoch:,}"),
            ("last batch", _count(self.last_batch_size, "example")),
            ("updates an epoch", f"{self.steps_per_epoch:,}"),
            ("epochs", _mixed(self.epochs)),
            ("updates in all", f"{self.total_steps:,}"),
            ("warmup", _count(self.warmup_steps, "update")),
        ]
        if self.tokens is not None:
            rows.append(("tokens processed", f"{self.tokens_processed:,}"))
        return rows

    def __repr__(self) -> str:
        text = (
            f"RunPlan: {_count(self.examples, 'example')} in batches of "
            f"{self.effective_batch_size:,}, {_count(self.steps_per_epoch, 'update')} an epoch, "
            f"epochs: {_mixed(self.epochs)}, {_count(self.total_steps, 'update')} in all, "
            f"{self.warmup_steps:,} of warmup"
        )
        return "\n  ".join((text, *self.notes))

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left">{name}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in self._rows()
        )
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<table>{cells}</table>" + (f"<ul>{notes}</ul>" if notes else "")


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _mixed(value: int | Fraction) -> str:
    """Write 80/13 as '6 2/13'."""
    number, rest = divmod(Fraction(value), 1)
    if rest == 0:
        return f"{number:,}"
    return f"{number:,} {rest}" if number else str(rest)
