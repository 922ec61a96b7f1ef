import dataclasses

import pytest

from helpers.model import ModelConfig, SmallLM
from helpers.shapes import SHAPES, Shape, find_shape, shape_from_config

SMALL = {"vocab_size": 11, "context": 8, "width": 16, "layers": 2, "heads": 2}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # as counted in the released weights
        ("gpt2-124m", 124_439_808),
        ("gpt2-1.5b", 1_557_611_200),
        ("llama-7b", 6_738_415_616),
        ("llama-13b", 13_015_864_320),
        ("llama-70b", 68_976_648_192),
        ("llama3-8b", 8_030_261_248),
    ],
)
def test_parameters_of_the_released_models(name, parameters):
    assert SHAPES[name].parameters == parameters
    assert SHAPES[name].source


def test_a_shape_of_ones_own_has_the_parameters_of_the_small_model():
    model = SmallLM(ModelConfig(**SMALL))
    assert Shape(**SMALL).parameters == sum(part.numel() for part in model.parameters())


def test_llama_by_hand():
    # tables 2·11·16, last norm 16, and in each of 2 blocks: norms 2·16, queries and output 2·16²,
    # keys and values of one of two heads 2·8·16, three feed-forward matrices 3·16·24
    expected = 2 * 11 * 16 + 16 + 2 * (2 * 16 + 2 * 16**2 + 2 * 8 * 16 + 3 * 16 * 24)
    assert Shape(**SMALL, kv_heads=1, feed=24, family="llama").parameters == expected


def test_a_tied_table_counts_once():
    untied = Shape(**SMALL, family="llama")
    assert untied.parameters - dataclasses.replace(untied, tied=True).parameters == 11 * 16


def test_names_are_found_and_shapes_pass():
    assert find_shape("llama3-8b") is SHAPES["llama3-8b"]
    assert find_shape(Shape(**SMALL)) == Shape(**SMALL)


@pytest.mark.parametrize(
    ("name", "near"), [("llama-8b", "llama-7b"), ("GPT2-124M", "gpt2-124m"), ("nothing", "gpt2")]
)
def test_an_unknown_name_gets_those_near_it(name, near):
    with pytest.raises(ValueError, match=f"{near}.*got '{name}'"):
        find_shape(name)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"layers": 0}, ValueError, "layers must be .* at least 1; got 0"),
        ({"width": 1.5}, TypeError, "width must be a whole number"),
        ({"heads": 3}, ValueError, "heads must divide the width of 16; got 3"),
        ({"kv_heads": 3, "heads": 4}, ValueError, "kv_heads must divide the 4 heads; got 3"),
        ({"family": "lama"}, ValueError, "family must be one of 'gpt2', 'llama'; got 'lama'"),
        ({"heads": 16, "family": "llama"}, ValueError, "width ÷ heads must be even"),
    ],
)
def test_bad_sizes_are_named(change, error, words):
    with pytest.raises(error, match=words):
        Shape(**SMALL | change)


def test_what_is_no_shape_is_refused():
    with pytest.raises(TypeError, match="shape must be a Shape or the name of one; got 7"):
        find_shape(7)


# --- from a configuration -------------------------------------------------------------------------

LLAMA3 = {
    "model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 8192,
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False, "rope_theta": 500000.0, "torch_dtype": "bfloat16",
}  # fmt: skip


def llama(**changes):
    return LLAMA3 | changes


GPT2 = {
    "model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_ctx": 1024, "n_embd": 768,
    "n_layer": 12, "n_head": 12, "n_inner": None,
}  # fmt: skip


def test_configurations_of_the_released_models_are_their_shapes():
    for config, name in ((LLAMA3, "llama3-8b"), (GPT2, "gpt2-124m")):
        shape = shape_from_config(config)
        assert dataclasses.replace(shape, source=SHAPES[name].source) == SHAPES[name]
        assert find_shape(config) == shape


# Parameters as released; what is left out are biases of queries, keys and values, or their norms.
@pytest.mark.parametrize(
    ("config", "parameters", "left_out"),
    [
        (
            llama(model_type="mistral", vocab_size=32000, max_position_embeddings=32768),
            7_241_732_096,
            0,
        ),
        (
            llama(
                model_type="qwen2", vocab_size=152064, hidden_size=3584, num_hidden_layers=28,
                num_attention_heads=28, num_key_value_heads=4, intermediate_size=18944,
            ),
            7_615_616_512,
            28 * (3584 + 2 * 512),
        ),
        (
            llama(
                model_type="qwen3", vocab_size=151936, hidden_size=1024, num_hidden_layers=28,
                num_attention_heads=16, num_key_value_heads=8, intermediate_size=3072,
                head_dim=128, tie_word_embeddings=True,
            ),
            596_049_920,
            28 * 2 * 128,
        ),
        (
            {
                "model_type": "gemma", "vocab_size": 256000, "max_position_embeddings": 8192,
                "hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 8,
                "num_key_value_heads": 1, "intermediate_size": 16384, "head_dim": 256,
                "rms_norm_eps": 1e-6,
            },
            2_506_172_416,
            0,
        ),
    ],
)  # fmt: skip
def test_other_models_from_their_configurations(config, parameters, left_out):
    assert shape_from_config(config).parameters == parameters - left_out
    within = shape_from_config({"model_type": "with_pictures", "text_config": config})
    assert within == shape_from_config(config)


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        (
            llama(num_local_experts=8, model_type="mixtral"),
            ValueError,
            "'mixtral', where num_local",
        ),
        (llama(kv_lora_rank=512), ValueError, "kv_lora_rank is set"),
        ({"model_type": "t5", "d_model": 512}, ValueError, "dense decoder .* got 't5', where d_mo"),
        ({"model_type": "bert", "hidden_size": 768}, ValueError, "got 'bert', where neither"),
        ({"rms_norm_eps": 1e-6}, ValueError, "config must hold vocab_size, max_position_embed"),
        (llama(num_attention_heads=0), ValueError, "heads must be a whole number of at least 1"),
        (llama(hidden_size="4096"), TypeError, "width must be a whole number"),
        ("config.json", TypeError, "config must be the dict of a config.json; got 'config.json'"),
    ],
)
def test_a_configuration_that_is_no_shape_is_refused(config, error, words):
    with pytest.raises(error, match=words):
        shape_from_config(config)
