"""Text to tokens to batches: what goes into the model, and in which order."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from helpers._checks import whole
from helpers.model import IGNORED
from helpers.world import WORDS, tell

SHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def load_text(name: str | Path = "harbour") -> str:
    """Return a text to train on.

    "harbour" is told by rule (see ``helpers.world``): 4.2 million characters, the same on every
    machine, and there without a network. "python-docs" is the help text that comes with Python,
    about half a million characters, and differs from one Python to the next. "tiny-shakespeare" is
    fetched once and kept (1.1 MB). Anything else is the path of a text file in UTF-8.

    Raises ``ValueError`` for an unknown name, an empty file, one that is not UTF-8, and a download
    with the wrong checksum; ``ConnectionError`` if the download fails.
    """
    if name == "harbour":
        return tell().text
    if name == "python-docs":
        from pydoc_data.topics import topics

        return "\n".join(topics[topic] for topic in sorted(topics))
    if name == "tiny-shakespeare":
        return _read(_fetch_shakespeare())
    if not isinstance(name, (str, Path)) or not Path(name).is_file():
        raise ValueError(
            f"name must be 'harbour', 'python-docs', 'tiny-shakespeare' or the path of a text "
            f"file; got {name!r}, and there is no such file"
        )
    return _read(Path(name))


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"name must lead to a text in UTF-8; {path} is none: its byte {error.start} cannot be "
            f"read. Save it as UTF-8 first"
        ) from None
    if not text:
        raise ValueError(f"name must lead to a text; {path} is empty")
    return text


def _fetch_shakespeare() -> Path:
    try:
        import pooch
    except ImportError:
        raise ImportError(
            "'tiny-shakespeare' is fetched by the package pooch, which is not installed here. "
            "Install it, or use load_text('harbour'), which needs no network"
        ) from None
    pooch.get_logger().setLevel("WARNING")
    try:
        return Path(
            pooch.retrieve(
                SHAKESPEARE_URL,
                known_hash=f"sha256:{SHAKESPEARE_SHA256}",
                fname="tiny-shakespeare.txt",
                path=pooch.os_cache("batch-notebooks"),
            )
        )
    except ValueError:
        raise ValueError(
            f"what came from {SHAKESPEARE_URL} is not Tiny Shakespeare: its checksum differs. "
            f"load_text('harbour') needs no network"
        ) from None
    except OSError as error:
        raise ConnectionError(
            f"'tiny-shakespeare' could not be fetched from {SHAKESPEARE_URL} "
            f"({type(error).__name__}). load_text('harbour') needs no network"
        ) from None


def _code_points(text: str) -> Tensor:
    """Return the number that Unicode gives to each character, int64 of shape (length,)."""
    coded = bytearray(text, "utf-32-le")
    return torch.frombuffer(coded, dtype=torch.int32).long() if coded else torch.empty(0).long()


class CharTokenizer:
    """One token for each character of ``text``, in alphabetical order.

    >>> tokenizer = CharTokenizer("hello")
    >>> tokenizer.vocab_size, tokenizer.encode("hole").tolist()
    (4, [1, 3, 2, 0])
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text:
            raise ValueError(f"text must be a string of at least one character; got {text!r}")
        self.characters = sorted(set(text))
        # The id of each code point up to the last that is known, -1 where there is none.
        self._ids = torch.full((ord(self.characters[-1]) + 1,), -1)
        self._ids[_code_points("".join(self.characters))] = torch.arange(len(self.characters))

    @property
    def vocab_size(self) -> int:
        """The number of different tokens."""
        return len(self.characters)

    def encode(self, text: str) -> Tensor:
        """Return the token ids, int64 of shape (length,); ``ValueError`` for a new character."""
        points = _code_points(text)
        known = points < len(self._ids)
        ids = self._ids[points.where(known, 0)].where(known, -1)
        if (ids < 0).any():
            position = int((ids < 0).nonzero()[0])
            raise ValueError(
                f"text must hold only characters that the tokenizer was made from; got "
                f"{text[position]!r} at position {position}"
            )
        return ids

    def decode(self, tokens: Tensor | Sequence[int]) -> str:
        """Return the text of the token ids; ``ValueError`` for an id that does not exist."""
        ids = [int(token) for token in tokens]
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise ValueError(f"tokens must be from 0 to {self.vocab_size - 1}; got {token}")
        return "".join(self.characters[token] for token in ids)


def sequences(tokens: Tensor, context: int) -> Tensor:
    """Cut a text into training examples: windows of shape (count, context + 1).

    The first ``context`` tokens of a window are inputs and the last ``context`` are targets. A
    window starts with the last token of the one before, so that each token of the text but the
    first is a target once; a rest too short for a window is left out. The windows share memory
    with ``tokens``.

    Raises ``ValueError`` if the text is too short for one window.
    """
    whole("context", context)
    if tokens.dim() != 1:
        raise ValueError(f"tokens must have one axis; got a tensor of shape {tuple(tokens.shape)}")
    if len(tokens) < context + 1:
        raise ValueError(
            f"context must be below the length of the text, {len(tokens)} tokens; got {context}"
        )
    return tokens.unfold(0, context + 1, context)


def split(windows: Tensor, *, held_out: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return (training examples, held-out examples), drawn at random and without overlap.

    Raises ``ValueError`` if nothing would be left to train on.
    """
    if whole("held_out", held_out) >= len(windows):
        raise ValueError(f"held_out must be below the {len(windows)} examples; got {held_out}")
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(seed))
    return windows[order[held_out:]], windows[order[:held_out]]


def shuffled_batches(
    examples: int,
    batch_size: int,
    *,
    seed: int,
    epoch: int = 0,
    drop_last: bool = False,
    rank: int = 0,
    devices: int = 1,
) -> list[Tensor]:
    """Return the batches of one epoch, each an int64 tensor of positions in the data set.

    Each epoch has an order of its own, and it can be drawn without those before it. With several
    ``devices`` these are the batches of the one numbered ``rank``, from 0. All get as many
    examples; torch's ``DistributedSampler`` repeats the few that are short.
    """
    sampler = DistributedSampler(
        range(examples), num_replicas=devices, rank=rank, seed=seed * 1_000_003
    )
    sampler.set_epoch(epoch)
    batches = list(torch.tensor(list(sampler)).split(batch_size))
    return batches[:-1] if drop_last and len(batches[-1]) < batch_size else batches


@dataclass(frozen=True)
class Record:
    """One training example made of pieces of text, each with whether it is to be predicted.

    >>> Record.of("2 + 2 =", " 4").target_text
    ' 4'
    """

    pieces: tuple[tuple[str, bool], ...]

    @classmethod
    def of(cls, prompt: str, answer: str) -> "Record":
        """Return the record of a given prompt and an answer to be predicted."""
        return cls(((prompt, False), (answer, True)))

    @property
    def text(self) -> str:
        """All pieces, in order."""
        return "".join(text for text, _ in self.pieces)

    @property
    def target_text(self) -> str:
        """The pieces to be predicted, in order."""
        return "".join(text for text, predicted in self.pieces if predicted)


def make_records(count: int, *, seed: int = 0) -> list[Record]:
    """Return ``count`` different questions with answers of 2 to 31 characters, from one seed.

    Raises ``ValueError`` or ``TypeError`` for a count or seed that is no whole number.
    """
    whole("count", count)
    draw = random.Random(whole("seed", seed, at_least=0))
    records: dict[Record, None] = {}
    while len(records) < count:
        records[_question(draw)] = None
    return list(records)


def _question(draw: random.Random) -> Record:
    word = "".join(
        draw.choice("bdfgklmnprstv") + draw.choice("aeiou") for _ in range(draw.randint(1, 4))
    )
    times = draw.randint(2, 3)
    first, second = draw.randint(1, 49), draw.randint(1, 49)
    return draw.choice(
        (
            Record.of(f"Add {first} and {second}:", f" {first + second}\n"),
            Record.of(f"Turn {word} around:", f" {word[::-1]}\n"),
            Record.of(f"Spell {word}:", "".join(f" {letter}" for letter in word) + "\n"),
            Record.of(f"Say {word} {times} times:", f" {word}" * times + "\n"),
        )
    )


# What each list of the default text's words holds.
KINDS = {
    "woman": "a woman",
    "man": "a man",
    "town": "a town",
    "trade": "a trade",
    "animals": "animals",
    "goods": "goods",
    "building": "a building",
    "quality": "a quality",
    "thing": "a thing",
    "manner": "a manner",
    "repair": "a deed",
    "feeling": "a feeling",
}


def kind_records(*, seed: int = 0) -> list[Record]:
    """Return records that ask what kind a word of the default text is: 901 of them, 12 kinds.

    Each word of at most 9 letters is asked for once, in an order that the seed decides; one that
    is of two kinds is left out. Who has read the text knows the words, but was never asked.

    >>> kind_records()[0].text
    'Sigsa: a woman\\n'
    """
    whole("seed", seed, at_least=0)
    times = Counter(word for kind in KINDS for word in WORDS[kind])
    records = [
        Record.of(f"{word}:", f" {name}\n")
        for kind, name in KINDS.items()
        for word in WORDS[kind]
        if times[word] == 1 and len(word) <= 9
    ]
    random.Random(seed).shuffle(records)
    return records


def records_from_conversation(
    messages: Sequence[dict[str, str]], *, per_target: bool = False
) -> list[Record]:
    """Turn a conversation into training records.

    ``messages`` are dicts with "role" ("system", "user" or "assistant") and "content". What the
    assistant says is to be predicted, the rest is given. The conversation is one record with
    several targets; with ``per_target`` each assistant message makes a record of its own, with all
    that came before it as given text.

    Raises ``ValueError`` for an unknown role and for a conversation without an assistant message.
    """
    pieces: list[tuple[str, bool]] = []
    records = []
    for position, message in enumerate(messages):
        if message.get("role") not in ("system", "user", "assistant") or "content" not in message:
            raise ValueError(
                f"messages must hold a role of system, user or assistant, and a content; got "
                f"{message!r} at position {position}"
            )
        pieces.append((f"<{message['role']}>", False))
        if message["role"] == "assistant":
            records.append(Record((*pieces, (message["content"] + "\n", True))))
        pieces.append(
            (message["content"] + "\n", not per_target and message["role"] == "assistant")
        )
    if not records:
        raise ValueError("messages must hold one of the assistant: there is nothing to predict")
    return records if per_target else [Record(tuple(pieces))]


def collate(records: Sequence[Record], tokenizer: CharTokenizer) -> tuple[Tensor, Tensor]:
    """Stack records of different lengths into padded inputs and targets.

    Both are int64 of shape (records, longest − 1). A target is −100 where the next token is given
    or where there is none; inputs are padded with token 0, which no target can see.

    Raises ``ValueError`` if there are no records or one is too short to have a target.
    """
    if not records:
        raise ValueError("records must hold at least one record; got none")
    lengths = [len(record.text) for record in records]
    if min(lengths) < 2:
        shortest = records[lengths.index(min(lengths))]
        raise ValueError(f"records must hold two characters or more each; got {shortest!r}")
    inputs = torch.zeros(len(records), max(lengths) - 1, dtype=torch.int64)
    targets = torch.full_like(inputs, IGNORED)
    for row, record in enumerate(records):
        tokens = tokenizer.encode(record.text)
        predicted = torch.tensor([flag for text, flag in record.pieces for _ in text])
        inputs[row, : len(tokens) - 1] = tokens[:-1]
        targets[row, : len(tokens) - 1] = tokens[1:].where(predicted[1:], IGNORED)
    return inputs, targets
