"""What a plan says of itself: one line, a table, and notes on what deserves a second look."""

import html
from collections.abc import Iterator
from fractions import Fraction

from helpers._words import percent
from helpers.plan.course import PlannedStage


class InWords:
    """The words of a ``RunPlan``, made of the figures that it has."""

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
            name = "drop_last_update" if self.drop_last_update else "drop_last"
            notes.append(f"{name} leaves out {_count(dropped, 'example')} in every epoch.")
        if self.repeated_examples:
            notes.append(
                f"Every epoch repeats {_count(self.repeated_examples, 'example')}, so that each of "
                f"{self.devices:,} devices gets {self._share:,}."
            )
        notes += self._notes_on_warmup()
        return tuple(notes)

    def _notes_on_warmup(self) -> Iterator[str]:
        warmup, total = self.warmup_steps, self.total_steps
        if self.warmup_reach < 1:
            yield (
                f"The warmup of {warmup:,} updates is longer than the run of {total:,}: the "
                f"learning rate reaches {percent(self.warmup_reach)} of its full value."
            )
        elif warmup == 1:
            yield "A warmup of one update is no ramp: the first update has the full rate."
        elif warmup == total:
            yield (
                f"The warmup is as long as the run of {total:,} updates: only the last one has the "
                f"full rate."
            )
        elif 5 * warmup > total:
            yield (
                f"The warmup takes {percent(Fraction(warmup, total))} of the run: {warmup:,} of "
                f"{total:,} updates."
            )

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

    def rows(self) -> list[tuple[str, str]]:
        """Return the figures of the plan as pairs of a name and a value, both in words."""
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
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join((*(f"{name.ljust(width)}  {value}" for name, value in rows), *self.notes))

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left">{name}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in self.rows()
        )
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<table>{cells}</table>" + (f"<ul>{notes}</ul>" if notes else "")


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
