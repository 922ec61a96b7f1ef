import gc
import subprocess
import sys

import pytest
import torch
from torch import nn

from helpers import memory
from helpers.accumulate import gradients
from helpers.footprint import check
from helpers.memory import peak_of_saved_tensors, simulate
from helpers.model import ModelConfig, SmallLM, token_loss
from helpers.shapes import Shape

GIB = 2**30

TOKENS = torch.randint(11, (16, 9), generator=torch.Generator().manual_seed(0))


def test_bytes_by_hand():
    first, second = nn.Linear(4, 8, bias=False), nn.Linear(8, 2, bias=False)
    model, x = nn.Sequential(first, nn.ReLU(), second), torch.randn(3, 4)
    peak = peak_of_saved_tensors(lambda: model(x).sum().backward(), model)
    # the input of each layer; ReLU keeps its output, which is the input of the second
    assert peak == 4 * (3 * 4 + 3 * 8)


def test_what_a_backward_pass_has_used_is_let_go():
    model, x = nn.Linear(4, 8, bias=False), torch.randn(3, 4)

    def twice():
        for _ in range(2):
            model(x.clone()).square().sum().backward()

    def both_first():
        sum(model(x.clone()).square().sum() for _ in range(2)).backward()

    once = peak_of_saved_tensors(lambda: model(x.clone()).square().sum().backward(), model)
    assert peak_of_saved_tensors(twice, model) == once
    assert peak_of_saved_tensors(both_first, model) == 2 * once


@pytest.mark.parametrize("pieces", [2, 4, 8])
def test_accumulation_keeps_one_micro_batch_and_summing_losses_keeps_all(pieces):
    model = SmallLM(ModelConfig(11, 8, 16, 2, 2))
    cut = [(part[:, :-1], part[:, 1:]) for part in TOKENS.chunk(pieces)]
    whole = peak_of_saved_tensors(
        lambda: gradients(model, [(TOKENS[:, :-1], TOKENS[:, 1:])]), model
    )
    part = peak_of_saved_tensors(lambda: gradients(model, cut), model)

    def sum_first():
        sum(token_loss(model(x), y, "sum") for x, y in cut).backward()

    assert part == pytest.approx(whole / pieces, rel=0.02)
    assert peak_of_saved_tensors(sum_first, model) == pytest.approx(whole, rel=0.02)


def test_nothing_stays_alive():
    model, x = nn.Linear(4, 8), torch.randn(3, 4)
    peak_of_saved_tensors(lambda: model(x).sum().backward(), model)
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one).__name__ == "_Kept"]


# --- simulate -------------------------------------------------------------------------------------

FEW = {
    "gpt2": Shape(97, 32, 32, 4, 4),
    "llama": Shape(97, 32, 32, 4, 4, kv_heads=2, feed=48, family="llama"),
}


def setting(shape, **changes):
    how = {"precision": "bfloat16", "optimizer": "adamw", "trainable": "full"}
    how |= {"attention": "fused", "checkpointing": False}
    return check(shape, **how | changes)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("gpt2", {"precision": "mixed"}),
        ("gpt2", {"attention": "matrix"}),
        ("llama", {"checkpointing": True}),
        ("llama", {"trainable": "lora", "rank": 4}),
    ],
)
def test_two_and_three_layers_tell_all_four(family, kind):
    one = setting(FEW[family], batch_size=3, context=32, **kind)
    assert memory._extrapolated(one) == memory._simulate(one)


def test_the_peak_moves_from_the_update_to_the_backward_pass():
    small, large = (simulate("llama-7b", batch_size=size, context=2048) for size in (1, 4))
    assert (small.when, large.when) == ("update", "backward")
    # the update holds parameters, gradients, two moments and their roots: 5 × 12.55 GiB
    assert small.peak == pytest.approx(5 * 2 * 6_738_415_616, rel=1e-3)
    assert large.activations > large.peak / 2


@pytest.mark.skipif(sys.platform == "win32", reason="asks the system for its peak of memory")
def test_a_simulation_takes_hardly_any_memory():
    code = (
        "import resource, sys; from helpers.memory import simulate;"
        "simulate('llama-7b', batch_size=4, context=2048);"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "print(peak if sys.platform == 'darwin' else 1024 * peak)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1.5 * GIB


def test_what_torch_does_not_have_is_not_simulated():
    with pytest.raises(ValueError, match=r"optimizer must be .* simulated; got 'adamw-8bit'"):
        simulate("gpt2-124m", batch_size=1, context=8, optimizer="adamw-8bit")
    with pytest.raises(ValueError, match="context must be at most the model's 1,024; got 2,048"):
        simulate("gpt2-124m", batch_size=1, context=2048)


def test_the_precision_of_new_tensors_is_left_alone():
    simulate(FEW["gpt2"], batch_size=1, context=8)
    assert torch.get_default_dtype() == torch.float32
