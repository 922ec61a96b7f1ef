"""The arithmetic of a run: batches, updates and epochs, and who is in the last one.

A *step* is one update of the weights. A *micro-batch* is what one device puts through the model at
once; with accumulation, several of them make one step. Nothing here imports torch.
"""

from __future__ import annotations

import argparse
import dataclasses
import html
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import NamedTuple, overload

from helpers._checks import exact, in_updates, updates_or_share, whole
from helpers.schedule import BatchRamp


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


_FIGURES = (
    *("examples", "batch_size", "accumulation", "devices", "effective_batch_size", "epochs"),
    *("batches_per_epoch", "steps_per_epoch", "total_steps", "warmup_steps", "last_batch_size"),
    *("examples_seen", "repeated_examples", "tokens_processed"),
)


class ResumePoint(NamedTuple):
    """Where a run goes on: the epoch from 0, what to skip in it, and how much is left to do."""

    epoch: int
    micro_batches: int
    updates_left: int


class PlannedStage(NamedTuple):
    """What one stage of a ramp comes to in a run; tokens are None if none were given."""

    batch_size: int
    accumulation: int
    updates: int
    examples: int
    tokens: int | None


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
    ramp
        A batch that grows, from ``batch_ramp``, in effective batch sizes. It begins at the plan's
        own, and goes on in multiples of batch_size × devices: by more accumulation. ``stages``
        tells what it comes to. What is said of an epoch's updates, and
        ``effective_batch_size``, holds for its first stage.

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
    ramp: BatchRamp | None = None

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
        if self.ramp is not None:
            self._check_ramp()
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
            epochs = self._epochs_after(self.max_steps)
        else:
            epochs = exact("epochs", 1 if self.epochs is None else self.epochs)
        if epochs <= 0:
            raise ValueError(f"epochs must be above zero; got {self.epochs!r}")
        return epochs.numerator if epochs.denominator == 1 else epochs

    def _check_ramp(self) -> None:
        if not isinstance(self.ramp, BatchRamp):
            raise TypeError(f"ramp must be what batch_ramp returns, or None; got {self.ramp!r}")
        first, unit = self.ramp.stages[0].batch_size, self.batch_size * self.devices
        if first != self.effective_batch_size:
            raise ValueError(
                f"ramp must begin at the plan's own batch of {self.effective_batch_size} (batch "
                f"size × accumulation × devices); got {first}"
            )
        for size, _ in self.ramp.stages:
            if size % unit:
                raise ValueError(
                    f"ramp must hold multiples of batch_size × devices, {unit}, so that every "
                    f"device gets whole micro-batches; got {size}. Try {size // unit * unit} or "
                    f"{size // unit * unit + unit}"
                )

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
        whole_epochs, rest = divmod(Fraction(self.epochs), 1)
        start = self._updates_before(whole_epochs)
        if rest == 0:
            return start
        return start + math.ceil(rest * (self._updates_before(whole_epochs + 1) - start))

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
        """Tokens × epochs, to the nearest token; None if no tokens were given.

        With a ramp an epoch's updates differ in size: then it is what its examples come to.
        """
        if self.tokens is None:
            return None
        if self.ramp is not None:
            return self._tokens_in(self.examples_after(self.total_steps))
        return round(self.tokens * Fraction(self.epochs))

    def _tokens_in(self, examples: int) -> int:
        return round(Fraction(self.tokens * examples, self.examples))

    @property
    def _windows(self) -> tuple[tuple[int, int | None], ...]:
        """The accumulation of each stage, and its updates."""
        if self.ramp is None:
            return ((self.accumulation, None),)
        unit = self.batch_size * self.devices
        return tuple((size // unit, updates) for size, updates in self.ramp.stages)

    def accumulation_at(self, step: int) -> int:
        """Return the micro-batches of a full update that follows ``step`` updates."""
        stage = 0 if self.ramp is None else sum(end <= step for end in self.ramp.ends)
        return self._windows[stage][0]

    def _position(self, step: int) -> tuple[int, int]:
        """Return the epoch after so many updates, and its micro-batches that are used up."""
        epoch = used = 0
        for accumulation, updates in self._windows:
            here = step if updates is None else min(step, updates)
            to_end = -(-(self.batches_per_epoch - used) // accumulation)
            if here < to_end:
                used += here * accumulation
            else:
                # An update ends with its epoch, so every later epoch starts with a full one.
                per_epoch = -(-self.batches_per_epoch // accumulation)
                epochs, rest = divmod(here - to_end, per_epoch)
                epoch, used = epoch + 1 + epochs, rest * accumulation
            step -= here
        return epoch, used

    def _updates_before(self, epoch: int) -> int:
        """Return the updates made when an epoch begins."""
        made = 0
        for accumulation, updates in self._windows:
            now, used = self._position(made)
            if now >= epoch:
                break
            needed = -(-(self.batches_per_epoch - used) // accumulation)
            needed += (epoch - now - 1) * -(-self.batches_per_epoch // accumulation)
            made += needed if updates is None else min(needed, updates)
        return made

    def _epochs_after(self, step: int) -> Fraction:
        """Return the passes that so many updates make, each update of an epoch the same share."""
        epoch, _ = self._position(step)
        start = self._updates_before(epoch)
        return epoch + Fraction(step - start, self._updates_before(epoch + 1) - start)

    def _step(self, step: int) -> int:
        if whole("step", step, at_least=0) > self.total_steps:
            raise ValueError(
                f"step must be at most the {self.total_steps} updates of the run; got {step}"
            )
        return step

    def resume_point(self, step: int) -> ResumePoint:
        """Return where a run goes on after ``step`` updates.

        What is skipped are micro-batches of ``batch_size`` on each device, not updates. A run that
        is over stands where it would go on, with no update left.

        Raises ``ValueError`` or ``TypeError`` unless ``step`` is from 0 to ``total_steps``.

        >>> RunPlan(13, 1, accumulation=4, epochs=2).resume_point(6)
        ResumePoint(epoch=1, micro_batches=8, updates_left=2)
        """
        return ResumePoint(*self._position(self._step(step)), self.total_steps - step)

    def examples_after(self, step: int) -> int:
        """Return the examples that ``step`` updates take, over all devices, repeats included.

        Raises ``ValueError`` or ``TypeError`` unless ``step`` is from 0 to ``total_steps``.
        """
        epoch, used = self._position(self._step(step))
        return epoch * self.examples_seen + used * self.batch_size * self.devices

    @property
    def stages(self) -> tuple[PlannedStage, ...]:
        """The stages that the run reaches; without a ramp it is one."""
        stages: list[PlannedStage] = []
        made = 0
        for accumulation, updates in self._windows:
            left = self.total_steps - made
            now = left if updates is None else min(left, updates)
            if now == 0:
                break
            examples = self.examples_after(made + now) - self.examples_after(made)
            size = accumulation * self.batch_size * self.devices
            tokens = None if self.tokens is None else self._tokens_in(examples)
            stages.append(PlannedStage(size, accumulation, now, examples, tokens))
            made += now
        return tuple(stages)

    @property
    def notes(self) -> tuple[str, ...]:
        """What deserves a second look in this plan, in plain words."""
        sizes, nominal = self.update_sizes, self.effective_batch_size
        dropped = self.examples - (self.examples_seen - self.repeated_examples)
        notes = [*self._notes_on_ramp()]
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

    def _notes_on_ramp(self) -> Iterator[str]:
        if self.ramp is None:
            return
        reached = self.stages[-1].batch_size
        last = self.ramp.stages[-1].batch_size
        if reached < last:
            yield (
                f"The run ends after {_count(self.total_steps, 'update')}, in the ramp's stage of "
                f"{reached:,}: it never reaches {last:,}."
            )
        if reached > self.examples_seen:
            yield (
                f"No update holds {reached:,} examples: an epoch has only {self.examples_seen:,}, "
                f"and an update ends with it."
            )

    @property
    def _at_first(self) -> str:
        return "" if self.ramp is None else " at first"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("examples", f"{self.examples:,}"),
            (
                "effective batch",
                f"{self.effective_batch_size:,} = {self.batch_size:,} a device × "
                f"{self.accumulation:,} accumulated × {_count(self.devices, 'device')}"
                f"{self._at_first}",
            ),
            ("batches an epoch, a device", f"{self.batches_per_epoch:,}"),
            ("last batch", _count(self.last_batch_size, "example")),
            ("updates an epoch", f"{self.steps_per_epoch:,}{self._at_first}"),
            ("epochs", _mixed(self.epochs)),
            ("updates in all", f"{self.total_steps:,}"),
            ("warmup", _count(self.warmup_steps, "update")),
        ]
        if self.ramp is not None:
            rows += [
                (f"stage {number}, batch {stage.batch_size:,}", _in_words(stage))
                for number, stage in enumerate(self.stages, start=1)
            ]
        if self.tokens is not None:
            rows.append(("tokens processed", f"{self.tokens_processed:,}"))
        return rows

    def __repr__(self) -> str:
        text = (
            f"RunPlan: {_count(self.examples, 'example')} in batches of "
            f"{self.effective_batch_size:,}, {_count(self.steps_per_epoch, 'update')} an "
            f"epoch{self._at_first}, "
            f"epochs: {_mixed(self.epochs)}, {_count(self.total_steps, 'update')} in all, "
            f"{self.warmup_steps:,} of warmup"
        )
        if self.ramp is not None:
            text += f", batches {' → '.join(f'{stage.batch_size:,}' for stage in self.stages)}"
        return "\n  ".join((text, *self.notes))

    def table(self) -> str:
        """Return all figures of the plan as lines of text, and its notes below them."""
        rows = self._rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join((*(f"{name.ljust(width)}  {value}" for name, value in rows), *self.notes))

    def as_dict(self) -> dict[str, int | float | None]:
        """Return the figures of the plan by name, as JSON can hold them."""
        return {
            name: float(value) if isinstance(value, Fraction) else value
            for name, value in ((name, getattr(self, name)) for name in _FIGURES)
        }

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left">{name}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in self._rows()
        )
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<table>{cells}</table>" + (f"<ul>{notes}</ul>" if notes else "")


def accumulation_for(
    global_batch: int, *, batch_size: int, devices: int = 1, tokens_per_example: int | None = None
) -> int:
    """Return the accumulation that makes an effective batch of exactly ``global_batch``.

    It counts examples, or tokens if ``tokens_per_example`` is given.

    Raises ``ValueError`` if no whole number of micro-batches makes it, with the nearest that can be
    made and the sizes for a device that would fit.

    >>> accumulation_for(256, batch_size=4, devices=8)
    8
    >>> accumulation_for(524_288, batch_size=4, tokens_per_example=2048)
    64
    """
    each = 1 if tokens_per_example is None else whole("tokens_per_example", tokens_per_example)
    unit = whole("batch_size", batch_size) * whole("devices", devices) * each
    accumulation, rest = divmod(whole("global_batch", global_batch), unit)
    if rest == 0:
        return accumulation
    totals = [unit * times for times in (accumulation, accumulation + 1) if times]
    share, uneven = divmod(global_batch, devices * each)
    most = 0 if uneven else min(batch_size, share)
    # The largest five will do, and the search for them is over soon.
    sizes = list(islice((size for size in range(most, 0, -1) if share % size == 0), 5))[::-1]
    fitting = " or ".join(f"{size:,}" for size in sizes) or "none"
    raise ValueError(
        f"global_batch must be a multiple of batch_size × devices"
        f"{'' if each == 1 else ' × tokens_per_example'} = {unit:,}; got {global_batch:,}. Nearest "
        f"{'is' if len(totals) == 1 else 'are'} {' and '.join(f'{total:,}' for total in totals)}; "
        f"of the batch sizes up to {batch_size:,}, {fitting} would do for {global_batch:,}"
    )


def infer_effective_batch(examples: int, steps: int, epochs: float = 1) -> int:
    """Return the smallest effective batch with which a run makes so many updates in all.

    For reading a log: examples and updates are printed, and the accumulation is not. With few
    updates some larger batches give as many.

    Raises ``ValueError`` if no batch size does, with the two that come nearest: then the log counts
    something else, such as micro-batches, or drops the last batch.

    >>> infer_effective_batch(29_450, 1841)
    16
    """
    whole("steps", steps)

    def updates(size: int) -> int:
        return RunPlan(examples, size, epochs=epochs).total_steps

    low, high = 1, whole("examples", examples)
    while low < high:  # a larger batch never makes more updates
        middle = (low + high) // 2
        if updates(middle) <= steps:
            high = middle
        else:
            low = middle + 1
    if updates(low) != steps:
        near = [size for size in (low - 1, low) if size]
        raise ValueError(
            f"steps must be what some batch size gives for {examples:,} examples and "
            f"epochs={epochs}; got {steps:,}, and "
            + ", ".join(f"batch {size:,} gives {updates(size):,}" for size in near)
        )
    return low


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _in_words(stage: PlannedStage) -> str:
    words = f"{_count(stage.updates, 'update')}, {_count(stage.examples, 'example')}"
    return words if stage.tokens is None else f"{words}, {_count(stage.tokens, 'token')}"


def _mixed(value: int | Fraction) -> str:
    """Write 80/13 as '6 2/13'."""
    number, rest = divmod(Fraction(value), 1)
    if rest == 0:
        return f"{number:,}"
    return f"{number:,} {rest}" if number else str(rest)


def _warmup(text: str) -> int | float | Fraction:
    """Read "15" as updates, and "0.05" or "5%" as a share, exactly."""
    try:
        if text.endswith("%"):
            return Fraction(text[:-1]) / 100
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(
            f"must be updates such as 15, or a share such as 0.05 or 5%; got {text!r}"
        ) from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the plan of a run: ``python -m helpers.plan --examples 810 --batch-size 8``."""
    parser = argparse.ArgumentParser(prog="python -m helpers.plan", description=main.__doc__)
    parser.add_argument("--examples", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True, help="on one device")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--drop-last", action="store_true")
    parser.add_argument(
        "--warmup", type=_warmup, default=0, help="updates, or a share as 0.05, 5%%"
    )
    parser.add_argument("--tokens", type=int, help="of all examples together")
    parser.add_argument("--json", action="store_true")
    given = vars(parser.parse_args(arguments))
    as_json = given.pop("json")
    try:
        plan = RunPlan(**given)
    except (ValueError, TypeError) as error:
        parser.error(str(error))
    print(json.dumps(plan.as_dict(), indent=2) if as_json else plan.table())


if __name__ == "__main__":
    main()
