import dataclasses

import pytest

from helpers.model import ModelConfig, SmallLM
from helpers.shapes import SHAPES, Shape, find_shape

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
