import dataclasses
import math

import pytest

from helpers.footprint import Breakdown, activations_by_kind, estimate, gib
from helpers.memory import simulate
from helpers.shapes import SHAPES, Shape

GIB = 2**30
SMALL = Shape(11, 8, 16, 2, 2)
# By hand: two tables, a norm, and in each block four matrices with biases and two norms.
P = 11 * 16 + 8 * 16 + 32 + 2 * (48 * 17 + 16 * 17 + 64 * 17 + 16 * 65 + 4 * 16)
TENSORS = 2 + 2 + 2 * (2 * 4 + 2 * 2)


def small(**changes):
    return estimate(SMALL, **{"batch_size": 2, "context": 8} | changes)


# --- Breakdown -----------------------------------------------------------------------------------

TWO = Breakdown(
    {
        "forward": {"parameters": 10, "activations": 30},
        "backward": {"parameters": 10, "activations": 20, "temporary": 5, "gradients": 4},
        "update": {"parameters": 10, "states": 20, "gradients": 10},
    }
)


def test_the_peak_is_the_fullest_moment_and_not_the_sum_of_the_largest_parts():
    assert (TWO.peak, TWO.when) == (40, "forward")
    parts = (TWO.parameters, TWO.gradients, TWO.states, TWO.activations, TWO.temporary)
    assert parts == (10, 10, 20, 30, 5)


def test_the_parts_that_are_shown_add_up_to_the_peak():
    assert sum(TWO.at_peak.values()) == TWO.peak
    assert TWO.at_peak["activations"] == 30
    assert "states 0 B" in repr(TWO)  # they are there in the update, which is not the fullest


def test_they_add_moment_by_moment():
    late = Breakdown({"update": {"states": 11}})
    both = TWO + late
    assert (both.peak, both.when) == (51, "update")
    assert both.states == 31
    assert late + TWO == both


def test_they_compare_by_peak():
    less = Breakdown({"forward": {"parameters": 39}})
    assert less < TWO
    assert less <= TWO
    assert max(less, TWO) is TWO
    assert Breakdown(TWO.moments) == TWO
    assert less.against(TWO)["peak"] == pytest.approx(-1 / 40)
    assert less.against(TWO)["parameters"] == pytest.approx(29 / 40)


def test_it_prints_units_and_draws_a_bar_for_each_moment():
    big = Breakdown({"forward": {"parameters": 3 * GIB, "activations": 2**20}})
    assert "peak 3.00 GiB in the forward" in repr(big)
    assert "activations 1.00 MiB" in repr(big)
    assert "gradients 0 B" in repr(big)
    drawn = big._repr_html_()
    assert drawn.count("<tr>") == 2
    assert 'title="parameters" style="display:inline-block;height:1em;background:#0072B2' in drawn
    widths = [float(part.split("px")[0]) for part in drawn.split("width:")[1:]]
    assert sum(widths) == pytest.approx(300, abs=0.5)


def test_a_gib_is_not_a_gb():
    assert gib(11600 * 248320 * 4) == "10.73 GiB"  # 11.52 GB
    assert gib(7e9 * 16) == "104.31 GiB"  # 112 GB
    assert [gib(size) for size in (0, 100, 2**10, 3 * 2**19)] == [
        "0 B",
        "100 B",
        "1.00 KiB",
        "1.50 MiB",
    ]


@pytest.mark.parametrize(
    ("moments", "words"),
    [
        ({}, "at least one moment"),
        ({"sleep": {}}, "moments must be one of 'forward', 'backward', 'update'; got 'sleep'"),
        ({"forward": {"weights": 1}}, "moments must be one of 'parameters'.*got 'weights'"),
        ({"forward": {"states": -1}}, "states must be a whole number of at least 0; got -1"),
    ],
)
def test_bad_breakdowns_are_refused(moments, words):
    with pytest.raises(ValueError, match=words):
        Breakdown(moments)


# --- what is there whatever the batch -------------------------------------------------------------


def fixed(breakdown):
    return breakdown.parameters, breakdown.gradients, breakdown.states


@pytest.mark.parametrize(
    ("precision", "optimizer", "expected"),
    [
        ("float32", "adamw", (4 * P, 4 * P, 8 * P + 4 * TENSORS)),
        ("float32", "momentum", (4 * P, 4 * P, 4 * P)),
        ("float32", "sgd", (4 * P, 4 * P, 0)),
        ("bfloat16", "adamw", (2 * P, 2 * P, 4 * P + 4 * TENSORS)),
        ("mixed", "adamw", (2 * P, 2 * P, 12 * P + 4 * TENSORS)),  # 16 bytes a parameter
        ("mixed", "sgd", (2 * P, 2 * P, 4 * P)),
    ],
)
def test_bytes_of_a_parameter(precision, optimizer, expected):
    assert fixed(small(precision=precision, optimizer=optimizer)) == expected


def test_gpt2_small_in_gib():
    def total(optimizer):
        return (
            sum(
                fixed(
                    estimate(
                        "gpt2-124m",
                        batch_size=1,
                        context=8,
                        precision="float32",
                        optimizer=optimizer,
                    )
                )
            )
            / GIB
        )

    assert total("adamw") == pytest.approx(1.854, abs=1e-3)
    assert total("momentum") == pytest.approx(1.391, abs=1e-3)
    assert total("sgd") == pytest.approx(0.927, abs=1e-3)


def test_seven_billion_in_bfloat16():
    found = [size / GIB for size in fixed(estimate("llama-7b", batch_size=1, context=2048))]
    assert found == pytest.approx([12.55, 12.55, 25.10], abs=0.01)


def test_thirteen_billion_do_not_fit_40_gb_at_any_batch_size_but_with_adapters_they_do():
    full = estimate("llama-13b", batch_size=1, context=512, precision="mixed")
    assert sum(fixed(full)) > 4 * 40e9
    adapted = estimate(
        "llama-13b", batch_size=4, context=512, trainable="lora", rank=8, checkpointing=True
    )
    assert adapted.peak < 40 * GIB


def test_eight_bit_states_by_hand():
    shape = Shape(64, 64, 64, 1, 1)
    # of 16 tensors six hold 4,096 numbers or more: two tables of 64², 3·64², 64², and two of 4·64²
    large = [64**2, 64**2, 3 * 64**2, 64**2, 4 * 64**2, 4 * 64**2]
    few = shape.parameters - sum(large)
    expected = 8 * few + sum(2 * size + 2 * 4 * size // 256 for size in large)
    assert estimate(shape, batch_size=1, context=8, optimizer="adamw-8bit").states == expected


def test_quantized_bases_by_hand():
    def base(bits):
        how = {"batch_size": 1, "context": 8, "trainable": "lora", "rank": 1, "base_bits": bits}
        return estimate("llama-7b", **how).parameters / 6_738_415_616

    in_blocks = (6_738_415_616 - 2 * 32000 * 4096) / 6_738_415_616
    assert base(16) == pytest.approx(2, rel=2e-3)
    assert base(8) == pytest.approx(2 - in_blocks, rel=3e-3)
    # 4 bits, and 0.127 bits of scales (Dettmers et al. 2023, section 3)
    assert base(4) == pytest.approx(2 - (2 - 4.127 / 8) * in_blocks, rel=3e-3)


def test_adapters_by_hand():
    found = small(trainable="lora", rank=4)
    adapters = 2 * 4 * ((48 + 16) + (16 + 16) + 2 * (64 + 16))
    assert fixed(found) == (2 * (P + adapters), 2 * adapters, 4 * adapters + 4 * 2 * 2 * 4)


@pytest.mark.parametrize("devices", [2, 7])
def test_zero_divides_states_then_gradients_then_parameters(devices):
    """The table of ZeRO (Rajbhandari et al. 2019, figure 1), with 16 bytes a parameter."""
    whole = fixed(small(precision="mixed"))
    for stage in range(4):
        divided = fixed(small(precision="mixed", devices=devices, shard=stage))
        for part, least in zip(range(3), (3, 2, 1)):
            share = math.ceil(whole[part] / devices) if stage >= least else whole[part]
            assert divided[part] == share


# --- what grows with the batch --------------------------------------------------------------------


def kept_by_a_block(shape, batch_size, context, attention):
    def activations(layers):
        some = dataclasses.replace(shape, layers=layers)
        found = estimate(some, batch_size=batch_size, context=context, attention=attention)
        return found.moments["forward"]["activations"]

    return activations(3) - activations(2)


@pytest.mark.parametrize("attention", ["fused", "matrix"])
def test_korthikanti_under_their_assumptions(attention):
    """s·b·h·(34 + 5·a·s/h) bytes, and 34 without the matrix; arXiv 2205.05198, equation 2."""
    s, b, h, a = 128, 4, 1024, 16
    shape = Shape(1000, s, h, 4, a)
    kept = kept_by_a_block(shape, b, s, attention)
    # Their dropouts, which modern recipes leave out: a mask of one byte behind attention and
    # feed-forward, and behind the softmax a mask and its product in 16 bits.
    kept += 2 * s * b * h
    expected = 34 * s * b * h
    if attention == "matrix":
        kept += (1 + 2) * a * s * s * b
        expected += 5 * a * s * s * b
    # the rest is one or two numbers a token of each norm, or a head
    assert kept == pytest.approx(expected, rel=3e-3)
    assert kept >= expected


def test_checkpointing_keeps_two_bytes_a_number_of_the_stream():
    found = [
        estimate(dataclasses.replace(SMALL, layers=n), batch_size=4, context=8, checkpointing=True)
        for n in (2, 3)
    ]
    low, high = (one.moments["forward"]["activations"] for one in found)
    assert high - low == 2 * 4 * 8 * 16


def test_activations_are_linear_in_batch_and_context():
    one = small(batch_size=1).moments["forward"]["activations"]
    assert small(batch_size=5).moments["forward"]["activations"] == 5 * one
    assert small(batch_size=1, context=4).moments["forward"]["activations"] == one / 2


def test_logits_of_a_large_vocabulary_outweigh_the_model():
    # 8 × 1,024 tokens × 50,257 × 4 bytes are 1.534 GiB, and three such are there in the loss
    found = estimate("gpt2-124m", batch_size=8, context=1024, precision="float32")
    logits = 8 * 1024 * 50257 * 4
    assert logits / GIB == pytest.approx(1.534, abs=1e-3)
    toy = Shape(50257, 1024, 128, 2, 2)
    toys = estimate(toy, batch_size=8, context=1024)
    assert 3 * logits < toys.peak < 3.3 * logits
    assert found.moments["backward"]["temporary"] == 2 * logits


@pytest.mark.parametrize("attention", ["fused", "matrix"])
@pytest.mark.parametrize("name", ["gpt2-124m", "llama3-8b"])
def test_the_kinds_of_activations_are_all_that_a_simulation_keeps(name, attention):
    how = {"batch_size": 2, "context": 512, "attention": attention}
    kinds = activations_by_kind(name, **how)
    simulated = simulate(name, **how).moments["forward"]["activations"]
    assert sum(kinds.values()) == pytest.approx(simulated, rel=0.002)
    assert list(kinds) == ["norms", "attention", "feed-forward", "logits"]


def test_only_the_scores_of_all_pairs_grow_faster_than_the_context():
    short, long = (
        activations_by_kind("gpt2-124m", batch_size=1, context=context, attention="matrix")
        for context in (256, 512)
    )
    assert {kind: long[kind] / short[kind] for kind in short} == {
        "norms": 2, "feed-forward": 2, "logits": 2,
        # 4 · 768 numbers a token, and 12 heads × context of them
        "attention": 2 * (4 * 768 + 12 * 512) / (4 * 768 + 12 * 256),
    }  # fmt: skip


def test_grouped_attention_keeps_less():
    grouped = Shape(100, 64, 64, 2, 8, kv_heads=2, family="llama")
    plain = dataclasses.replace(grouped, kv_heads=8)
    saved = kept_by_a_block(plain, 1, 64, "fused") - kept_by_a_block(grouped, 1, 64, "fused")
    assert saved == 64 * 2 * 2 * (64 - 16)  # tokens × keys and values × two bytes × widths


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be .* at least 1; got 0"),
        ({"context": 9}, ValueError, "context must be at most the model's 8; got 9"),
        ({"precision": "fp16"}, ValueError, "precision must be one of .*'bfloat16'.*got 'fp16'"),
        ({"optimizer": "adam"}, ValueError, "optimizer must be one of .*'adamw'.*got 'adam'"),
        ({"trainable": "qlora"}, ValueError, "trainable must be one of .*'lora'; got 'qlora'"),
        ({"attention": "flash"}, ValueError, "attention must be one of 'fused'.*got 'flash'"),
        ({"checkpointing": 1}, TypeError, "checkpointing must be True or False; got 1"),
        ({"shard": 1}, ValueError, "devices must be at least 2 for shard=1; got devices=1"),
        ({"shard": 4, "devices": 2}, ValueError, "shard must be 0, 1, 2 or 3; got 4"),
        ({"devices": 0}, ValueError, "devices must be .* at least 1; got 0"),
        ({"trainable": "lora"}, ValueError, "rank must be given for trainable='lora'"),
        ({"rank": 4}, ValueError, "rank is for trainable='lora'; got rank=4"),
        ({"base_bits": 4}, ValueError, "base_bits is for trainable='lora'"),
        ({"trainable": "lora", "rank": 0}, ValueError, "rank must be .* at least 1; got 0"),
        (
            {"trainable": "lora", "rank": 1, "base_bits": 5},
            ValueError,
            "base_bits must be 16, 8 or 4; got 5",
        ),
        (
            {"trainable": "lora", "rank": 1, "precision": "float32"},
            ValueError,
            "precision must be 'bfloat16' or 'mixed' for trainable='lora'",
        ),
    ],
)
def test_bad_arguments_are_named(change, error, words):
    with pytest.raises(error, match=words):
        small(**change)


def test_every_named_shape_is_weighed():
    for name, shape in SHAPES.items():
        assert estimate(name, batch_size=1, context=512).parameters == 2 * shape.parameters


# --- beside a simulated step ----------------------------------------------------------------------

KINDS = {
    "float32": {"precision": "float32"},
    "mixed": {"precision": "mixed"},
    "momentum": {"optimizer": "momentum"},
    "sgd": {"optimizer": "sgd"},
    "matrix": {"attention": "matrix"},
    "lora": {"trainable": "lora", "rank": 4},
    "lora, checkpointing": {"trainable": "lora", "rank": 64, "checkpointing": True},
}


def assert_near(worked_out, simulated, share):
    assert fixed(worked_out) == fixed(simulated)
    assert worked_out.when == simulated.when
    for moment, theirs in simulated.moments.items():
        ours = worked_out.moments[moment]
        assert sum(ours.values()) == pytest.approx(sum(theirs.values()), rel=share)
    forward = (one.moments["forward"]["activations"] for one in (worked_out, simulated))
    assert next(forward) == pytest.approx(next(forward), rel=share)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["gpt2-124m", "llama3-8b"])
def test_estimate_agrees_with_simulate_for_each_kind_of_training(name, kind):
    how = {"batch_size": 3, "context": 512, **KINDS[kind]}
    assert_near(estimate(name, **how), simulate(name, **how), 0.01)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_estimate_agrees_with_simulate_for_every_shape(name, checkpointing):
    size = (32, SHAPES[name].context) if checkpointing else (1, 512)
    how = {"batch_size": size[0], "context": size[1], "checkpointing": checkpointing}
    assert_near(estimate(name, **how), simulate(name, **how), 0.005)


@pytest.mark.parametrize("attention", ["fused", "matrix"])
@pytest.mark.parametrize("width", [64, 512])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_estimate_agrees_where_no_vocabulary_hides_the_blocks(family, width, attention):
    shape = Shape(17, 256, width, 4, 4, family=family)
    how = {"context": 128, "attention": attention, "optimizer": "sgd", "checkpointing": True}
    for batch_size in (1, 8):
        sizes = how | {"batch_size": batch_size}
        ours, theirs = estimate(shape, **sizes), simulate(shape, **sizes)
        assert fixed(ours) == fixed(theirs)
        assert (ours.when, theirs.when) == ("backward", "backward")
        assert ours.peak == pytest.approx(theirs.peak, rel=0.02)


# --- memory that people have ----------------------------------------------------------------------


def test_a_rotary_model_may_be_run_beyond_its_context():
    found = estimate("llama-7b", batch_size=1, context=16384, checkpointing=True)
    (note,) = found.notes
    assert "16,384 is longer than the model's own 4,096" in note
    assert note in repr(found)
    assert "16,384" in found._repr_html_()
    assert (found + found).notes == (note,)
    assert estimate("llama-7b", batch_size=1, context=4096).notes == ()
    own = estimate("llama-7b", batch_size=1, context=4096, checkpointing=True)
    assert found.moments["forward"]["activations"] == 4 * own.moments["forward"]["activations"]
    shape = dataclasses.replace(FEW_LLAMA, context=64)
    how = {"batch_size": 2, "context": 256}
    assert_near(estimate(shape, **how), simulate(shape, **how), 0.05)
    assert simulate(shape, **how).notes == estimate(shape, **how).notes != ()


def test_adapters_on_queries_and_values_alone():
    how = {"batch_size": 1, "context": 64, "trainable": "lora", "rank": 8}
    found = estimate("llama-7b", adapters=("q", "v"), **how)
    numbers = 32 * 2 * 2 * 4096 * 8
    assert numbers == 4_194_304
    assert (found.gradients, found.states) == (2 * numbers, 4 * numbers + 4 * 32 * 2 * 2)
    every = estimate("llama-7b", adapters=SHAPES["llama-7b"].matrix_names, **how)
    assert every == estimate("llama-7b", **how)
    assert estimate("llama-7b", adapters="q", **how).gradients == numbers


FEW_LLAMA = Shape(17, 512, 256, 4, 4, family="llama", kv_heads=2, feed=700, head_size=32)
FEW_GPT2 = Shape(17, 512, 256, 4, 4)


CHOSEN = [
    (FEW_LLAMA, ("q", "v")),
    (FEW_LLAMA, ("out",)),
    (FEW_LLAMA, ("down",)),
    (FEW_LLAMA, ("up", "gate")),
    (FEW_LLAMA, ("k",)),
    (FEW_GPT2, ("qkv",)),
    (FEW_GPT2, ("out", "down")),
    (FEW_GPT2, ("up",)),
    (FEW_GPT2, ("down",)),
]


@pytest.mark.parametrize("attention", ["fused", "matrix"])
@pytest.mark.parametrize(("shape", "adapters"), CHOSEN)
def test_chosen_adapters_agree_where_no_vocabulary_hides_the_blocks(shape, adapters, attention):
    shape = dataclasses.replace(shape, layers=12)
    how = {"batch_size": 4, "context": 128, "attention": attention, "adapters": adapters}
    how |= {"trainable": "lora", "rank": 8}
    assert_near(estimate(shape, **how), simulate(shape, **how), 0.05)


def test_bad_adapters_are_named():
    lora = {"trainable": "lora", "rank": 4}
    with pytest.raises(ValueError, match="adapters must be one of 'qkv', 'out', 'up', 'down'; got"):
        small(adapters=("q", "v"), **lora)
    with pytest.raises(ValueError, match="adapters must name a matrix or more"):
        small(adapters=(), **lora)
    with pytest.raises(ValueError, match="adapters are for trainable='lora'"):
        small(adapters=("qkv",))


WAYS = {
    "in the backward pass": {"in_backward": True},
    "with SGD": {"in_backward": True, "optimizer": "sgd"},
    "with master weights": {"in_backward": True, "precision": "mixed"},
    "states on the CPU": {"states_on_cpu": True},
    "masters on the CPU": {"states_on_cpu": True, "precision": "mixed"},
    "logits in pieces": {"loss_chunk": 100},
    "with adapters": {"loss_chunk": 100, "trainable": "lora", "rank": 4},
    "all of it": {"loss_chunk": 100, "in_backward": True, "checkpointing": True},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("vocab_size", [17, 20000])
@pytest.mark.parametrize("shape", [FEW_LLAMA, FEW_GPT2])
def test_ways_to_need_less_agree_with_a_simulation(shape, vocab_size, way):
    shape = dataclasses.replace(shape, vocab_size=vocab_size)
    how = {"batch_size": 4, "context": 128, **WAYS[way]}
    ours, theirs = estimate(shape, **how), simulate(shape, **how)
    assert ours.peak == pytest.approx(theirs.peak, rel=0.05)
    assert ours.states == pytest.approx(theirs.states, rel=0.001)
    assert ours.parameters == theirs.parameters


def test_what_they_save_by_hand():
    how = {"batch_size": 1, "context": 512}
    plain = estimate("llama-7b", **how)
    assert estimate("llama-7b", states_on_cpu=True, **how).states == 0
    # 6.7 thousand million gradients of two bytes, and the roots of as many second moments; but the
    # activations are still there
    at_once = estimate("llama-7b", in_backward=True, **how)
    saved = 4 * SHAPES["llama-7b"].parameters - at_once.activations
    assert plain.peak - at_once.peak == pytest.approx(saved, rel=0.05)
    assert list(at_once.moments) == ["forward", "backward"]
    sizes = {"batch_size": 8, "context": 1024, "precision": "float32"}
    whole, pieces = (estimate("gpt2-124m", loss_chunk=n, **sizes).peak for n in (None, 1024))
    # three float32 numbers a token and entry of the vocabulary, for 7 of 8 sequences
    assert whole - pieces == pytest.approx(7 * 1024 * 50257 * 3 * 4, rel=0.1)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"in_backward": 1}, TypeError, "in_backward must be True or False; got 1"),
        ({"states_on_cpu": None}, TypeError, "states_on_cpu must be True or False; got None"),
        ({"loss_chunk": 0}, ValueError, "loss_chunk must be a whole number of at least 1; got 0"),
        ({"in_backward": True, "states_on_cpu": True}, ValueError, "False with states_on_cpu"),
        ({"in_backward": True, "devices": 2, "shard": 1}, ValueError, "shard must be 0 with in_b"),
    ],
)
def test_bad_ways_are_named(change, error, words):
    with pytest.raises(error, match=words):
        small(**change)


def test_a_configuration_is_weighed_as_it_is():
    config = {
        "model_type": "qwen3", "vocab_size": 501, "max_position_embeddings": 256, "hidden_size": 96,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 200, "head_dim": 48, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    }  # fmt: skip
    for how in ({}, {"attention": "matrix"}, {"checkpointing": True}):
        how = {"batch_size": 4, "context": 128, **how}
        assert_near(estimate(config, **how), simulate(config, **how), 0.05)


FLOAT32 = {"precision": "float32"}


def few(family, width, vocab_size=17, **more):
    """Return a shape in which little but one part of the step decides."""
    layers, feed = more.pop("layers", 1), more.pop("feed", None)
    return Shape(vocab_size, 1024, width, layers, 4, family=family, feed=feed, **more)


@pytest.mark.parametrize(
    ("shape", "batch_size", "context", "how"),
    [
        # the last norm, the norm before attention, the table of the vocabulary, attention
        (few("llama", 512, kv_heads=1, feed=512), 64, 1024, {}),
        (few("llama", 2048, layers=2, feed=2048), 1, 256, {"checkpointing": True}),
        (
            few("gpt2", 2048, 1000, kv_heads=1, tied=False, feed=2048),
            8,
            256,
            {"precision": "float32"},
        ),
        (few("gpt2", 512, layers=12), 1, 1024, {"attention": "matrix", "checkpointing": True}),
    ],
)
def test_estimate_agrees_wherever_the_peak_lies(shape, batch_size, context, how):
    how = how | {"batch_size": batch_size, "context": context, "optimizer": "sgd"}
    assert estimate(shape, **how).peak == pytest.approx(simulate(shape, **how).peak, rel=0.02)


# --- what is made whole where devices share -------------------------------------------------------


def temporary(moment, **how):
    return small(optimizer="sgd", **how).moments[moment]["temporary"]


def test_a_block_is_gathered_and_its_gradients_reduced():
    block = 2 * (P - 11 * 16 - 8 * 16 - 32) // 2  # 16 bits; larger than the table
    shared = {"devices": 4}
    assert temporary("forward", **shared, shard=3) == block
    assert temporary("forward", **shared, shard=2) == 0
    alone = temporary("backward")
    found = [temporary("backward", **shared, shard=stage) - alone for stage in range(4)]
    assert found == [0, 0, block, 2 * block]


def test_a_matrix_is_dequantized_at_a_time():
    lora = {"trainable": "lora", "rank": 1}
    assert temporary("forward", **lora) == 0
    assert temporary("forward", **lora, base_bits=4) == 2 * 64 * 16


def test_an_update_works_on_the_share_of_a_device():
    def roots(**how):
        return small(**how).moments["update"]["temporary"]

    assert roots() == 2 * P
    assert roots(devices=4, shard=1) == 2 * math.ceil(P / 4)
    # with master weights tensor by tensor: a float32 gradient, a root, and that corrected
    assert roots(precision="mixed") == 12 * 64 * 16
    assert roots(precision="mixed", devices=100, shard=1) == 12 * math.ceil(P / 100)
