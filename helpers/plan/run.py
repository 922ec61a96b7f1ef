"""``RunPlan``: how many batches, updates and epochs a run has."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction

from helpers._checks import exact, in_updates, one_of, updates_or_share, whole
from helpers.plan.course import Course, PlannedStage, ResumePoint
from helpers.plan.sizes import UpdateSizes
from helpers.plan.words import InWords
from helpers.schedule import BatchRamp

_FIGURES = (
    *("examples", "batch_size", "accumulation", "devices", "effective_batch_size", "epochs"),
    *("batches_per_epoch", "steps_per_epoch", "total_steps", "warmup_steps", "last_batch_size"),
    *("examples_seen", "repeated_examples", "tokens_processed"),
)


@dataclass(frozen=True, repr=False)
class RunPlan(InWords):
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
    drop_last_update
        Leave out the last update of an epoch where it does not hold a full effective batch, as
        torchtune does. Not with a ramp.
    warmup, warmup_by
        An int is a number of updates. A float from 0 to 1 is a share of the run and rounds up, in
        decimal arithmetic: 0.07 of 100 updates is 7. Transformers computes in binary floats and
        gets 8, and takes 1.0 for one update. With ``warmup_by`` "examples" or "tokens" an int
        counts these, over all devices, and the warmup ends with the update that reaches them.
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
    >>> RunPlan(960, 64, accumulation=2, drop_last_update=True).total_steps
    7
    >>> sizes = {"examples": 10**6, "batch_size": 512, "tokens": 1024 * 10**6}
    >>> RunPlan(**sizes, warmup=375_000_000, warmup_by="tokens").warmup_steps
    716
    """

    examples: int
    batch_size: int
    _: dataclasses.KW_ONLY
    accumulation: int = 1
    devices: int = 1
    epochs: int | float | Fraction | None = None
    max_steps: int | None = None
    drop_last: bool = False
    drop_last_update: bool = False
    warmup: int | float | Fraction = 0
    warmup_by: str = "updates"
    tokens: int | None = None
    ramp: BatchRamp | None = None

    def __post_init__(self) -> None:
        self._set("examples", self._examples())
        for name in ("batch_size", "accumulation", "devices"):
            self._set(name, whole(name, getattr(self, name)))
        for name in ("drop_last", "drop_last_update"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False; got {getattr(self, name)!r}")
        if self.tokens is not None:
            self._set("tokens", whole("tokens", self.tokens))
        self._set("warmup", self._warmup())
        if self.batches_per_epoch == 0:
            raise ValueError(self._no_update())
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

    def _warmup(self) -> int | Fraction:
        if one_of("warmup_by", self.warmup_by, ("updates", "examples", "tokens")) == "updates":
            return updates_or_share("warmup", self.warmup)
        if self.warmup_by == "tokens" and self.tokens is None:
            raise ValueError("tokens must be given for warmup_by='tokens'; got None")
        return whole("warmup", self.warmup, at_least=0)

    def _no_update(self) -> str:
        share, needed = self._share, self.batch_size
        what, size = "batch_size", f"one batch_size of {self.batch_size}"
        if self.drop_last_update:
            needed, what = needed * self.accumulation, "batch_size × accumulation"
            size = f"one batch_size × accumulation of {needed}"
        name = "drop_last_update" if self.drop_last_update else "drop_last"
        return (
            f"no update would ever happen: {share} examples a device (of {self.examples}) do not "
            f"fill {size}, and {name} leaves the rest out. Use {name}=False or a {what} of at most "
            f"{share}"
        )

    def _epochs(self) -> int | Fraction:
        if self.max_steps is not None:
            if self.epochs is not None:
                raise ValueError(
                    f"give epochs or max_steps, not both; got epochs={self.epochs!r} and "
                    f"max_steps={self.max_steps!r}"
                )
            self._set("max_steps", whole("max_steps", self.max_steps))
            epochs = self._course.epochs_after(self.max_steps)
        else:
            epochs = exact("epochs", 1 if self.epochs is None else self.epochs)
        if epochs <= 0:
            raise ValueError(f"epochs must be above zero; got {self.epochs!r}")
        return epochs.numerator if epochs.denominator == 1 else epochs

    def _check_ramp(self) -> None:
        if not isinstance(self.ramp, BatchRamp):
            raise TypeError(f"ramp must be what batch_ramp returns, or None; got {self.ramp!r}")
        if self.drop_last_update:
            raise ValueError(
                "drop_last_update must be False with a ramp, whose updates have several sizes"
            )
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
        if self.drop_last_update:
            return self._share // (self.batch_size * self.accumulation) * self.accumulation
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
        course = self._course
        start = course.updates_before(whole_epochs)
        if rest == 0:
            return start
        return start + math.ceil(rest * (course.updates_before(whole_epochs + 1) - start))

    @property
    def warmup_steps(self) -> int:
        """Updates of the warmup, which may be longer than the run."""
        if self.warmup_by == "updates":
            return in_updates(self.warmup, self.total_steps)
        each = Fraction(self.tokens, self.examples) if self.warmup_by == "tokens" else 1
        needed = math.ceil(self.warmup / each)
        low, high = 0, needed  # an update has an example or more
        while low < high:
            middle = (low + high) // 2
            if self._examples_after(middle) < needed:
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def warmup_reach(self) -> Fraction:
        """The share of the full learning rate that is reached; below 1 if warmup is cut off."""
        if self.warmup_steps <= self.total_steps:
            return Fraction(1)
        return Fraction(self.total_steps, self.warmup_steps)

    @property
    def last_batch_size(self) -> int:
        """Examples of the last micro-batch of an epoch on one device."""
        if self.drop_last or self.drop_last_update:
            return self.batch_size
        return (self._share - 1) % self.batch_size + 1

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
        # They sit at the very end of an epoch, so whatever is dropped drops them.
        dropped = self.examples_seen < self._share * self.devices
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
    def _course(self) -> Course:
        if self.ramp is None:
            return Course(self.batches_per_epoch, ((self.accumulation, None),))
        unit = self.batch_size * self.devices
        windows = ((size // unit, updates) for size, updates in self.ramp.stages)
        return Course(self.batches_per_epoch, tuple(windows))

    def accumulation_at(self, step: int) -> int:
        """Return the micro-batches of a full update that follows ``step`` updates."""
        stage = 0 if self.ramp is None else sum(end <= step for end in self.ramp.ends)
        return self._course.windows[stage][0]

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
        return ResumePoint(*self._course.position(self._step(step)), self.total_steps - step)

    def examples_after(self, step: int) -> int:
        """Return the examples that ``step`` updates take, over all devices, repeats included.

        Raises ``ValueError`` or ``TypeError`` unless ``step`` is from 0 to ``total_steps``.
        """
        return self._examples_after(self._step(step))

    def _examples_after(self, step: int) -> int:
        epoch, used = self._course.position(step)
        return epoch * self.examples_seen + used * self.batch_size * self.devices

    @property
    def stages(self) -> tuple[PlannedStage, ...]:
        """The stages that the run reaches; without a ramp it is one."""
        stages: list[PlannedStage] = []
        made = 0
        for accumulation, updates in self._course.windows:
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

    def as_dict(self) -> dict[str, int | float | None]:
        """Return the figures of the plan by name, as JSON can hold them."""
        return {
            name: float(value) if isinstance(value, Fraction) else value
            for name, value in ((name, getattr(self, name)) for name in _FIGURES)
        }
