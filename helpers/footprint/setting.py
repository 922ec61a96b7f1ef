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

    @property
    def bytes(self) -> int:
        """Bytes of one number that computes."""
        return PRECISIONS[self.precision]

    @property
    def adapters(self) -> list[tuple[int, int]]:
        """The (out, in) of each weight matrix of a block that has an adapter."""
        return list(self.shape.block_matrices) if self.trainable == "lora" else []

    @property
    def trained_in_block(self) -> list[int]:
        """The numbers in each trainable tensor of one block."""
        if self.trainable == "full":
            return list(self.shape.block_tensors)
        return [self.rank * size for matrix in self.adapters for size in matrix]

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
    if not isinstance(given["checkpointing"], bool):
        raise TypeError(f"checkpointing must be True or False; got {given['checkpointing']!r}")
    if whole("context", context) > shape.context:
        raise ValueError(f"context must be at most the model's {shape.context:,}; got {context:,}")
    checked = Setting(shape, whole("batch_size", batch_size), int(context), **given)
    _check_adapters(checked)
    return checked


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
    elif setting.rank is not None:
        raise ValueError(f"rank is for trainable='lora'; got rank={setting.rank!r} with 'full'")
    if setting.base_bits not in (16, 8, 4):
        raise ValueError(f"base_bits must be 16, 8 or 4; got {setting.base_bits!r}")
    if setting.trainable == "full" and setting.base_bits != 16:
        raise ValueError(
            f"base_bits is for trainable='lora', whose base weights are frozen; got "
            f"{setting.base_bits!r} with 'full'"
        )
