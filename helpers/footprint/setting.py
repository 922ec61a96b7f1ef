"""The question: a model and how it is trained, checked."""

from dataclasses import dataclass
from typing import Any

from helpers._checks import one_of, whole
from helpers.shapes import ATTENTION, Shape, find_shape

PRECISIONS = {"float32": 4, "bfloat16": 2, "mixed": 2}  # bytes of a weight that computes
OPTIMIZERS = ("sgd", "momentum", "adamw", "adamw-8bit")


@dataclass(frozen=True)
class Setting:
    """The checked arguments of ``estimate`` and ``simulate``."""

    shape: Shape
    batch_size: int
    context: int
    precision: str
    optimizer: str
    trainable: str
    checkpointing: bool
    attention: str
    rank: int | None = None
    base_bits: int = 16
    adapters: tuple[str, ...] | None = None
    in_backward: bool = False
    states_on_cpu: bool = False
    loss_chunk: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes of one number that computes."""
        return PRECISIONS[self.precision]

    @property
    def adapted(self) -> list[tuple[int, int] | None]:
        """The (out, in) of each weight matrix of a block that has an adapter; None for others."""
        shape = self.shape
        return [
            size
            if self.trainable == "lora" and name in (self.adapters or shape.matrix_names)
            else None
            for name, size in zip(shape.matrix_names, shape.block_matrices)
        ]

    def needs_input_of(self, *names: str) -> bool:
        """Return whether one of these matrices needs its input in the backward pass."""
        return self.trainable == "full" or any(
            name in (self.adapters or self.shape.matrix_names) for name in names
        )

    @property
    def trained_in_block(self) -> list[int]:
        """The numbers in each trainable tensor of one block."""
        if self.trainable == "full":
            return list(self.shape.block_tensors)
        return [self.rank * size for matrix in self.adapted if matrix for size in matrix]

    @property
    def trained(self) -> list[int]:
        """The numbers in each trainable tensor of the model."""
        outer = list(self.shape.outer_tensors) if self.trainable == "full" else []
        return outer + self.trained_in_block * self.shape.layers


def check(shape: str | Shape, *, batch_size: int, context: int, **given: Any) -> Setting:  # noqa: ANN401
    """Return the arguments of ``estimate`` or ``simulate`` once they are all sound."""
    shape = find_shape(shape)
    for name, allowed in (
        ("precision", PRECISIONS),
        ("optimizer", OPTIMIZERS),
        ("trainable", ("full", "lora")),
        ("attention", ATTENTION),
    ):
        one_of(name, given[name], allowed)
    for name in ("checkpointing", "in_backward", "states_on_cpu"):
        if not isinstance(given.get(name, False), bool):
            raise TypeError(f"{name} must be True or False; got {given[name]!r}")
    if given.get("in_backward") and given.get("states_on_cpu"):
        raise ValueError(
            "in_backward must be False with states_on_cpu, whose update waits for all gradients"
        )
    if given.get("loss_chunk") is not None:
        given["loss_chunk"] = whole("loss_chunk", given["loss_chunk"])
    if whole("context", context) > shape.context and shape.family == "gpt2":
        raise ValueError(
            f"context must be at most the model's {shape.context:,}; got {context:,}. It has "
            f"learned no positions beyond; a model with rotary ones may be run longer"
        )
    if given.get("adapters") is not None:
        given["adapters"] = _matrices(shape, given["adapters"])
    checked = Setting(shape, whole("batch_size", batch_size), int(context), **given)
    _check_adapters(checked)
    return checked


def _matrices(shape: Shape, adapters: Any) -> tuple[str, ...]:  # noqa: ANN401
    names = (adapters,) if isinstance(adapters, str) else tuple(adapters)
    if not names:
        raise ValueError("adapters must name a matrix or more, or be None for all; got none")
    for name in names:
        one_of("adapters", name, shape.matrix_names)
    return names


def notes_on(setting: Setting) -> tuple[str, ...]:
    """Return what deserves a second look in a setting, in plain words."""
    shape = setting.shape
    if setting.context <= shape.context:
        return ()
    return (
        f"A context of {setting.context:,} is longer than the model's own {shape.context:,}: its "
        f"rotary positions reach there, and whether it is any good there is another question.",
    )


def _check_adapters(setting: Setting) -> None:
    if setting.trainable == "lora":
        if setting.rank is None:
            raise ValueError("rank must be given for trainable='lora', such as 8 or 16; got None")
        whole("rank", setting.rank)
        if setting.precision == "float32":
            raise ValueError(
                "precision must be 'bfloat16' or 'mixed' for trainable='lora', whose base weights "
                "have 16 bits or fewer; got 'float32'"
            )
    elif setting.adapters is not None:
        raise ValueError(
            f"adapters are for trainable='lora'; got adapters={setting.adapters!r} with 'full'"
        )
    elif setting.rank is not None:
        raise ValueError(f"rank is for trainable='lora'; got rank={setting.rank!r} with 'full'")
    if setting.base_bits not in (16, 8, 4):
        raise ValueError(f"base_bits must be 16, 8 or 4; got {setting.base_bits!r}")
    if setting.trainable == "full" and setting.base_bits != 16:
        raise ValueError(
            f"base_bits is for trainable='lora', whose base weights are frozen; got "
            f"{setting.base_bits!r} with 'full'"
        )
