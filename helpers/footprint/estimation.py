"""The working out: fixed bytes and activations put together, and divided among devices."""

from collections.abc import Sequence

from helpers._checks import whole
from helpers.footprint.activations import backward, forward, updating_backward
from helpers.footprint.breakdown import Breakdown
from helpers.footprint.fixed import (
    bytes_of_base,
    bytes_of_states,
    temporary_of_update,
)
from helpers.footprint.setting import Setting, check, notes_on
from helpers.shapes import Shape


def estimate(
    shape: str | Shape,
    *,
    batch_size: int,
    context: int,
    precision: str = "bfloat16",
    optimizer: str = "adamw",
    trainable: str = "full",
    rank: int | None = None,
    base_bits: int = 16,
    adapters: Sequence[str] | None = None,
    checkpointing: bool = False,
    attention: str = "fused",
    in_backward: bool = False,
    states_on_cpu: bool = False,
    loss_chunk: int | None = None,
    devices: int = 1,
    shard: int = 0,
) -> Breakdown:
    """Work out the memory of one device in a step of training, from the second step on.

    The first step has no optimizer states until its update. The forward pass counts at its end; the
    backward pass is at least as full wherever a block is fuller inside. What the allocator rounds
    up, its fragments, the libraries' own memory and buffers for communication come on top.

    Parameters
    ----------
    shape
        The name of one of ``helpers.shapes.SHAPES``, a ``Shape`` of your own, or what is in a
        model's ``config.json``, as a dict.
    batch_size, context
        Examples in a micro-batch, and tokens in each, padding included. Beyond the model's own
        context only where positions are rotary, with a note. Accumulating more of them
        keeps the gradients through the forward pass as well, and nothing else.
    precision
        "float32"; "bfloat16", weights, gradients and states alike; or "mixed": 16-bit weights and
        gradients, float32 states and a float32 copy of the weights, 16 bytes a parameter with AdamW
        (Rajbhandari et al. 2019, arXiv 1910.02054, section 3.1). torch's autocast comes to 16 as
        well, as 4 + 4 + 8, and has a 16-bit copy of the weights besides.
    optimizer
        "sgd", "momentum", "adamw" or "adamw-8bit".
    trainable
        "full"; or "lora": frozen base weights in ``base_bits`` 16, 8 or 4, and an adapter of
        ``rank`` on every linear layer of a block, or on those that ``adapters`` names: some of
        "q", "k", "v", "out", "up", "gate", "down" in the family "llama", and of "qkv", "out", "up",
        "down" in "gpt2".
    checkpointing
        Keep the input of each block alone and compute the rest again (Chen et al. 2016, arXiv
        1604.06174).
    attention
        "fused", or "matrix" with the scores of all pairs of tokens.
    in_backward
        Update each tensor as soon as its gradient is there, and let go of it: no step of the
        optimizer, no accumulation, no clipping. Not with ``shard``.
    states_on_cpu
        The optimizer's states, master weights among them, and its update are on the CPU, to which
        the gradients go.
    loss_chunk
        Tokens whose logits are there at one time, and computed once more in the backward pass; all
        of the micro-batch's without it. A fused cross-entropy, in one kernel, has fewer still.
    devices, shard
        Data-parallel devices, and what they divide among them: 0 nothing, 1 states, 2 gradients as
        well, 3 parameters as well (the stages of ZeRO, arXiv 1910.02054, section 5).

    Raises ``ValueError`` or ``TypeError`` for an unknown name, a context beyond learned positions,
    a shard without devices, and sizes that are not whole numbers of at least 1.
    """
    setting = check(
        shape,
        batch_size=batch_size,
        context=context,
        precision=precision,
        optimizer=optimizer,
        trainable=trainable,
        rank=rank,
        base_bits=base_bits,
        adapters=adapters,
        checkpointing=checkpointing,
        attention=attention,
        in_backward=in_backward,
        states_on_cpu=states_on_cpu,
        loss_chunk=loss_chunk,
    )
    _check_devices(devices, shard)
    if in_backward and shard:
        raise ValueError(f"shard must be 0 with in_backward; got {shard}")
    return Breakdown(_moments(setting, devices, shard), notes_on(setting))


def _check_devices(devices: int, shard: int) -> None:
    whole("devices", devices)
    if whole("shard", shard, at_least=0) > 3:
        raise ValueError(f"shard must be 0, 1, 2 or 3; got {shard}")
    if shard and devices == 1:
        raise ValueError(f"devices must be at least 2 for shard={shard}; got devices=1")


def _moments(setting: Setting, devices: int, shard: int) -> dict[str, dict[str, int]]:
    trained = sum(setting.trained)
    parameters = bytes_of_base(setting)
    if setting.trainable == "lora":
        parameters += setting.bytes * trained

    def part_of(whole_of_it: int, stage: int) -> int:
        return -(-whole_of_it // devices) if shard >= stage else whole_of_it

    always = {
        "parameters": part_of(parameters, 3),
        "states": part_of(bytes_of_states(setting), 1),
    }
    gathered, reduced = _gathered(setting, shard)
    instants = updating_backward(setting) if setting.in_backward else backward(setting)
    gradients, activations, temporary = max(instants, key=sum)
    moments = {
        "forward": always | {"activations": forward(setting), "temporary": gathered},
        "backward": always
        | {
            "gradients": part_of(gradients, 2),
            "activations": activations,
            "temporary": temporary + gathered + reduced,
        },
        "update": always
        | {
            "gradients": part_of(setting.bytes * trained, 2),
            "temporary": temporary_of_update(setting, part_of(trained, 1)),
        },
    }
    if setting.in_backward:
        del moments["update"]
    return moments


def _gathered(setting: Setting, shard: int) -> tuple[int, int]:
    """Return the bytes of weights made whole at one time, and of gradients not yet divided.

    A block at a time, or the table of the vocabulary if that is larger; with quantized weights a
    matrix at a time.
    """
    shape, full = setting.shape, setting.trainable == "full"
    table = shape.vocab_size * shape.width
    largest = max(table, sum(shape.block_tensors))
    gathered = setting.bytes * largest if shard == 3 else 0
    if setting.base_bits < 16:
        gathered += setting.bytes * max(out * inner for out, inner in shape.block_matrices)
    undivided = max(table if full else 0, sum(setting.trained_in_block))
    return gathered, setting.bytes * undivided if shard >= 2 else 0
