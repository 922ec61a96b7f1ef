"""The bytes that are there whatever the batch: weights, states, what an update throws away."""

from helpers.footprint.setting import Setting

BLOCK_OF_8_BIT = 256  # numbers that share a scale in bitsandbytes; smaller tensors than 4,096 stay
LEAST_8_BIT = 4096


def bytes_of_base(setting: Setting) -> int:
    """Return the bytes of the frozen or trained base weights.

    In 8 bits one byte a weight and a float32 scale a row (Dettmers et al. 2022, arXiv 2208.07339);
    in 4 bits half a byte, an 8-bit scale for 64 weights and a float32 one for 256 of those
    (Dettmers et al. 2023, arXiv 2305.14314, section 3). Only the matrices of the blocks shrink.
    """
    shape, quantized = setting.shape, 0
    if setting.base_bits == 16:
        return setting.bytes * shape.parameters
    for out, inner in shape.block_matrices:
        count = out * inner
        if setting.base_bits == 8:
            quantized += count + 4 * out
        else:
            scales = -(-count // 64)
            quantized += -(-count // 2) + scales + 4 * -(-scales // 256)
    kept = sum(shape.outer_tensors) + shape.layers * sum(shape.block_vectors)
    return shape.layers * quantized + setting.bytes * kept


def bytes_of_states(setting: Setting) -> int:
    """Return the bytes that the optimizer keeps from step to step.

    AdamW keeps two numbers a parameter (Kingma and Ba 2014, arXiv 1412.6980), and torch a float32
    count of the steps for each tensor, which stays on the CPU; SGD keeps none, and one with
    momentum. In 8 bits each is one byte and a float32 scale for a block of them (Dettmers et al.
    2021, arXiv 2110.02861). Mixed precision keeps all of it in float32, and a float32 copy of the
    weights (Rajbhandari et al. 2019, arXiv 1910.02054, section 3.1).
    """
    sizes = setting.trained
    if setting.states_on_cpu:
        return 0
    width = 4 if setting.precision == "mixed" else setting.bytes
    master = 4 * sum(sizes) if setting.precision == "mixed" else 0
    if setting.optimizer == "adamw-8bit":
        return master + sum(
            8 * size if size < LEAST_8_BIT else 2 * (size + 4 * -(-size // BLOCK_OF_8_BIT))
            for size in sizes
        )
    moments = {"sgd": 0, "momentum": 1, "adamw": 2}[setting.optimizer]
    counts = 4 * len(sizes) if setting.optimizer == "adamw" else 0
    return master + moments * width * sum(sizes) + counts


def temporary_of_update(setting: Setting, share: int) -> int:
    """Return the bytes that an update of ``share`` numbers makes and throws away.

    torch's AdamW updates all tensors together where it can, with the roots of all second moments
    at once. With master weights, and in 8 bits, tensor by tensor.
    """
    if setting.states_on_cpu:
        return 0
    if setting.precision == "mixed":
        return temporary_of_tensor(setting, min(max(setting.trained), share))
    return setting.bytes * share if setting.optimizer == "adamw" else 0


def temporary_of_tensor(setting: Setting, size: int) -> int:
    """Return the bytes that the update of one tensor alone makes and throws away."""
    roots = 2 * (setting.optimizer == "adamw")  # the root, and that corrected
    if setting.precision == "mixed":  # and a float32 gradient
        return 4 * (1 + roots) * size
    return setting.bytes * roots * size
