import hashlib
import http.server
import pickle
import threading
from functools import partial

import pooch
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler

from helpers import data
from helpers.data import (
    CharTokenizer,
    Record,
    collate,
    load_text,
    make_records,
    records_from_conversation,
    sequences,
    shuffled_batches,
    split,
)


def test_texts_are_english_like_and_need_no_network():
    for text in (load_text(), load_text("python-docs")):
        assert len(text) > 300_000
        assert text.count(" the ") > 1000
        assert len(set(text)) < 200
    assert load_text() == load_text("harbour") != load_text("python-docs")


def test_a_file_of_the_readers_own(tmp_path):
    path = tmp_path / "own.txt"
    path.write_text("æøå\n", encoding="utf-8")
    assert load_text(path) == load_text(str(path)) == "æøå\n"


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "is empty"), (b"abc\xff", "UTF-8.*byte 3"), (None, "no such file")]
)
def test_a_file_that_will_not_do_is_named(tmp_path, content, words):
    path = tmp_path / "own.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as error:
        load_text(path)
    assert "own.txt" in str(error.value)
    assert error.value.__suppress_context__ or error.value.__context__ is None


@pytest.mark.parametrize("name", ["shakespear", 3, None])
def test_unknown_name_is_told_what_would_do(name):
    with pytest.raises(ValueError, match=r"harbour.*python-docs.*tiny-shakespeare"):
        load_text(name)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serve a small file in place of Tiny Shakespeare, with a cache of its own."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "input.txt").write_bytes(b"To be, or not to be")
    handler = partial(Quiet, directory=tmp_path / "site")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/input.txt"
    monkeypatch.setattr(data, "SHAKESPEARE_URL", url)
    monkeypatch.setattr(pooch, "os_cache", lambda _: tmp_path / "cache")
    yield tmp_path
    server.shutdown()
    server.server_close()


def test_shakespeare_is_fetched_once_and_checked(served, monkeypatch):
    checksum = hashlib.sha256(b"To be, or not to be").hexdigest()
    monkeypatch.setattr(data, "SHAKESPEARE_SHA256", checksum)
    assert load_text("tiny-shakespeare") == "To be, or not to be"
    (served / "site" / "input.txt").unlink()
    assert load_text("tiny-shakespeare") == "To be, or not to be"


def test_wrong_checksum_is_a_clear_error(served):
    with pytest.raises(ValueError, match=r"checksum differs.*harbour") as error:
        load_text("tiny-shakespeare")
    assert error.value.__suppress_context__
    assert list((served / "cache").glob("tiny*")) == []


def test_no_network_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "SHAKESPEARE_URL", "http://127.0.0.1:9/input.txt")
    monkeypatch.setattr(pooch, "os_cache", lambda _: tmp_path)
    with pytest.raises(ConnectionError, match=r"load_text\('harbour'\)") as error:
        load_text("tiny-shakespeare")
    assert error.value.__suppress_context__


@given(st.text(min_size=1))
def test_tokenizer_round_trip(text):
    tokenizer = CharTokenizer(text)
    tokens = tokenizer.encode(text)
    assert tokens.dtype == torch.int64
    assert tokenizer.decode(tokens) == text
    assert int(tokens.max()) + 1 == tokenizer.vocab_size == len(set(text))


def test_tokenizer_names_what_it_does_not_know():
    tokenizer = CharTokenizer("abc")
    with pytest.raises(ValueError, match="'x' at position 2"):
        tokenizer.encode("abxb")
    with pytest.raises(ValueError, match="from 0 to 2; got 3"):
        tokenizer.decode([0, 3])
    with pytest.raises(ValueError, match="from 0 to 2; got -100"):
        tokenizer.decode(torch.tensor([-100]))
    for bad in ("", None, 3):
        with pytest.raises(ValueError, match="text"):
            CharTokenizer(bad)


@given(st.integers(2, 60), st.integers(1, 20))
def test_every_token_but_the_first_is_a_target_once(length, context):
    tokens = torch.arange(length)
    if length <= context:
        with pytest.raises(ValueError, match=f"context .* {length} tokens; got {context}"):
            sequences(tokens, context)
        return
    windows = sequences(tokens, context)
    count = (length - 1) // context
    assert windows.shape == (count, context + 1)
    assert windows[:, 1:].flatten().tolist() == list(range(1, count * context + 1))
    assert windows.untyped_storage().data_ptr() == tokens.untyped_storage().data_ptr()


def test_windows_of_the_wrong_thing_are_named():
    with pytest.raises(ValueError, match="one axis"):
        sequences(torch.zeros(2, 3, dtype=torch.int64), 1)
    with pytest.raises(ValueError, match="context"):
        sequences(torch.arange(5), 0)


def test_split_is_disjoint_complete_and_seeded():
    windows = torch.arange(50)[:, None]
    training, held_out = split(windows, held_out=10, seed=3)
    assert (len(training), len(held_out)) == (40, 10)
    assert sorted(torch.cat([training, held_out]).flatten().tolist()) == list(range(50))
    assert torch.equal(split(windows, held_out=10, seed=3)[0], training)
    assert not torch.equal(split(windows, held_out=10, seed=4)[0], training)
    with pytest.raises(ValueError, match="held_out must be below the 50"):
        split(windows, held_out=50)


@given(st.integers(1, 50), st.integers(1, 9), st.booleans(), st.integers(0, 3))
def test_batches_of_an_epoch_are_those_of_a_loader(examples, batch_size, drop_last, seed):
    batches = shuffled_batches(examples, batch_size, seed=seed, epoch=1, drop_last=drop_last)
    loader = DataLoader(range(examples), batch_size=batch_size, drop_last=drop_last)
    assert [len(batch) for batch in batches] == [len(batch) for batch in loader]
    seen = [int(example) for batch in batches for example in batch]
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(range(examples))


def test_order_is_new_in_each_epoch_and_seed_and_can_be_drawn_again():
    def order(seed, epoch):
        return torch.cat(shuffled_batches(100, 7, seed=seed, epoch=epoch)).tolist()

    orders = [order(seed, epoch) for seed in range(3) for epoch in range(3)]
    assert len({tuple(one) for one in orders}) == 9
    assert order(2, 2) == orders[-1]


@pytest.mark.parametrize("examples", [3, 10, 12])
def test_devices_share_an_epoch_as_distributed_sampler_deals_it(examples):
    whole = [torch.cat(shuffled_batches(examples, 2, seed=1, epoch=2)).tolist()][0]
    shares = [
        torch.cat(shuffled_batches(examples, 2, seed=1, epoch=2, rank=rank, devices=4)).tolist()
        for rank in range(4)
    ]
    for rank, share in enumerate(shares):
        dealt = list(DistributedSampler(whole, 4, rank, shuffle=False))
        assert share == [whole[position] for position in dealt]


def test_records_are_seeded_different_and_ragged():
    records = make_records(400, seed=5)
    assert records == make_records(400, seed=5)
    assert records != make_records(400, seed=6)
    assert len(set(records)) == 400
    lengths = {len(record.target_text) for record in make_records(3000)}
    assert min(lengths) >= 2
    assert max(lengths) <= 31
    assert len(lengths) > 10
    for record in records:
        assert record.target_text.endswith("\n")
        assert record.text.endswith(record.target_text)


SOLVE = {
    "Add": lambda first, _, second: str(int(first) + int(second)),
    "Turn": lambda word, _: word[::-1],
    "Spell": lambda word: " ".join(word),
    "Say": lambda word, times, _: " ".join([word] * int(times)),
}


def test_answers_of_records_are_right():
    kinds = set()
    for record in make_records(500):
        question, answer = (piece for piece, _ in record.pieces)
        verb, *words = question.rstrip(":").split()
        kinds.add(verb)
        assert answer == f" {SOLVE[verb](*words)}\n"
    assert kinds == set(SOLVE)


@pytest.mark.parametrize(("count", "seed"), [(0, 0), (2.5, 0), (3, -1), (3, 0.5)])
def test_bad_records_are_named(count, seed):
    with pytest.raises((ValueError, TypeError), match=r"count|seed"):
        make_records(count, seed=seed)


def test_examples_survive_being_sent_to_a_worker():
    records = make_records(5)
    assert pickle.loads(pickle.dumps(records)) == records
    tokenizer = CharTokenizer("".join(record.text for record in records))
    again = pickle.loads(pickle.dumps(tokenizer))
    assert torch.equal(again.encode("Add"), tokenizer.encode("Add")) or "A" not in again.characters


CONVERSATION = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "See you"},
]


def test_a_conversation_is_one_record_or_one_for_each_target():
    (together,) = records_from_conversation(CONVERSATION)
    first, second = records_from_conversation(CONVERSATION, per_target=True)
    assert together.target_text == "Hello\nSee you\n"
    assert (first.target_text, second.target_text) == ("Hello\n", "See you\n")
    assert second.text == together.text
    assert together.text.startswith(first.text)
    assert together.text == (
        "<system>Be kind.\n<user>Hi\n<assistant>Hello\n<user>Bye\n<assistant>See you\n"
    )


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "one of the assistant"),
        (CONVERSATION[:2], "one of the assistant"),
        ([{"role": "robot", "content": "x"}], "position 0"),
        ([*CONVERSATION, {"role": "user"}], "position 5"),
    ],
)
def test_bad_conversation_is_named(messages, words):
    with pytest.raises(ValueError, match=words):
        records_from_conversation(messages)


def test_collate_by_hand():
    tokenizer = CharTokenizer("abcd")
    records = [Record.of("ab", "cd"), Record((("a", False), ("b", True), ("c", False)))]
    inputs, targets = collate(records, tokenizer)
    assert inputs.tolist() == [[0, 1, 2], [0, 1, 0]]
    assert targets.tolist() == [[-100, 2, 3], [1, -100, -100]]


@pytest.mark.parametrize(
    ("records", "words"),
    [([], "got none"), ([Record.of("a", "b"), Record.of("", "b")], "two char")],
)
def test_bad_records_to_collate_are_named(records, words):
    with pytest.raises(ValueError, match=words):
        collate(records, CharTokenizer("ab"))
