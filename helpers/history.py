"""What a run remembers. No torch here."""

import math
from dataclasses import dataclass, field

from helpers.plan import RunPlan


@dataclass
class History:
    """What happened in a run: one number for each update made, and the held-out losses.

    ``loss`` is the mean over the targets of an update, in nats, before that update is made.
    ``examples``, ``tokens`` (targets) and ``seconds`` (of training, without evaluation) count up
    from the start. ``held_out`` maps a number of updates made to the held-out loss after them.
    ``diverged_at`` is the update whose loss was not finite, or whose gradient was not at any scale,
    and which was therefore not made. ``skipped`` counts gradients that overflowed in 16 bits; each
    was tried again, so that no update is missing.
    """

    plan: RunPlan
    loss: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    examples: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    held_out: dict[int, float] = field(default_factory=dict)
    diverged_at: int | None = None
    interrupted: bool = False
    skipped: int = 0

    @property
    def steps(self) -> int:
        """Updates made."""
        return len(self.loss)

    @property
    def final_loss(self) -> float:
        """The last held-out loss; NaN if the run diverged or nothing was held out."""
        if self.diverged_at is not None or not self.held_out:
            return math.nan
        return self.held_out[max(self.held_out)]

    def due(self, every: int | None) -> bool:
        """Return whether it is time for what is done after so many updates, and after the last.

        It is also due before the first; None is these two times only.
        """
        last = self.plan.total_steps
        return self.steps == last or self.steps % (every or last) == 0

    def add(self, loss: float, lr: float, examples: int, tokens: int, seconds: float) -> None:
        """Note one update, which took so many examples, tokens and seconds."""
        self.loss.append(loss)
        self.lr.append(lr)
        self.examples.append(examples + (self.examples[-1] if self.examples else 0))
        self.tokens.append(tokens + (self.tokens[-1] if self.tokens else 0))
        self.seconds.append(seconds + (self.seconds[-1] if self.seconds else 0.0))

    def __repr__(self) -> str:
        parts = [f"{self.steps:,} of {self.plan.total_steps:,} updates"]
        if self.steps:
            parts.append(f"{self.examples[-1]:,} examples in {self.seconds[-1]:.1f} s")
        if self.diverged_at is not None:
            parts.append(f"diverged at update {self.diverged_at:,}")
        elif self.held_out:
            parts.append(f"held-out loss {self.final_loss:.3f}")
        if self.skipped:
            parts.append(f"{self.skipped:,} skipped")
        if self.interrupted:
            parts.append("interrupted")
        return f"History: {', '.join(parts)}"
