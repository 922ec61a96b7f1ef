"""Answers are what the likeliest token after the likeliest token gives, one prompt at a time."""

import pytest
import torch

from helpers import base
from helpers.answers import answer
from helpers.data import CharTokenizer, collate, kind_records
from helpers.model import ModelConfig, SmallLM
from helpers.train import train


def one_by_one(model, prompt, tokenizer, most):
    tokens = tokenizer.encode(prompt).tolist()
    said = ""
    while len(said) < most and len(tokens) < model.config.context:
        token = int(model(torch.tensor([tokens]))[0, -1].argmax())
        tokens.append(token)
        said += tokenizer.decode([token])
    return said.partition("\n")[0]


def test_as_one_prompt_at_a_time():
    model, tokenizer = base.load(), base.tokenizer()
    prompts = ["Adeven was", "T", "On Monday the people of Saltha", "And so"]
    expected = [one_by_one(model, prompt, tokenizer, 12) for prompt in prompts]
    assert answer(model, prompts, tokenizer, most=12) == expected
    assert len(set(expected)) > 1


def test_it_ends_with_the_line_or_the_context():
    tokenizer = CharTokenizer("ab:\n")
    model = SmallLM(ModelConfig(4, 8, 16, 1, 2))
    inputs = torch.stack([tokenizer.encode("a:b\na:b\n"), tokenizer.encode("b:aaaaaa")])
    train(model, (inputs, inputs.roll(-1, 1)), batch_size=2, lr=0.01, steps=200)
    assert answer(model.train(), ["a:", "b:"], tokenizer, most=20) == ["b", "aaaaaa"]
    assert model.training


@pytest.mark.parametrize("prompt", ["", "a" * 64])
def test_a_prompt_that_leaves_no_room_is_refused(prompt):
    with pytest.raises(ValueError, match="prompts must have 1 to 63 tokens"):
        answer(base.load(), ["a", prompt], base.tokenizer())


def test_the_records_ask_for_words_of_the_text_once():
    records = kind_records(seed=3)
    assert len(records) == len({record.pieces[0] for record in records}) == 901
    assert records != kind_records(seed=4)
    assert set(records) == set(kind_records(seed=4))
    inputs, _ = collate(records, base.tokenizer())
    assert inputs.shape[1] < base.SIZE.context
