import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from helpers.checkpoint import fingerprint, load_state, save_state
from tests.same import same

SHARED = torch.arange(6.0)
STATE = {
    "tensors": [SHARED, SHARED, SHARED[1:3], torch.eye(3)[:, 1], torch.tensor(2.5), torch.empty(0)],
    "kinds": (torch.tensor([1.5], dtype=torch.bfloat16), torch.tensor([True]), torch.tensor(7)),
    1: {"1": "text", 1: None, "a.b": torch.ones(1), "a": {"b": torch.zeros(1)}},
    "floats": [0.1, -0.0, float("inf"), 1e-320],
    "numbers": [1, 2.0, True],
    "large": 2**70,
    "empty": [{}, [], (), "", ((),)],
}


def test_a_state_comes_back_as_it_was(tmp_path):
    save_state(tmp_path / "state", STATE)
    assert same(load_state(tmp_path / "state"), STATE)
    save_state(str(tmp_path / "state"), {"nan": [float("nan")], "one": float("nan")})
    assert repr(load_state(str(tmp_path / "state"))) == "{'nan': [nan], 'one': nan}"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"a": [1, {2, 3}]}, r"state.a\[1\] must be a tensor, number, .*; got set"),
        ({"a": {1.5: 0}}, "state.a must be .*; got dict"),
        ({"a": torch.float32}, "state.a must be .*; got dtype"),
        ({"a": 1j}, "state.a"),
    ],
)
def test_what_cannot_be_saved_is_named_before_the_old_file_is_touched(tmp_path, state, words):
    save_state(tmp_path / "state", {"old": 1})
    with pytest.raises(TypeError, match=words):
        save_state(tmp_path / "state", state)
    assert load_state(tmp_path / "state") == {"old": 1}


def test_a_changed_byte_anywhere_is_noticed(tmp_path):
    path = tmp_path / "state"
    save_state(path, {"weights": torch.arange(4.0), "loss": [0.5, 0.25], "step": 12})
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="path must lead to a"):
            load_state(path)


def test_a_cut_file_is_refused(tmp_path):
    path = tmp_path / "state"
    save_state(path, {"weights": torch.arange(4.0)})
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="is none, or is cut off or damaged"):
            load_state(path)
    path.write_bytes(content + b"!")
    with pytest.raises(ValueError, match="path must lead to a checkpoint"):
        load_state(path)


def test_other_files_are_refused(tmp_path):
    save_file({"weights": torch.ones(2)}, tmp_path / "foreign")
    with pytest.raises(ValueError, match="foreign is of the kind None"):
        load_state(tmp_path / "foreign")
    (tmp_path / "text").write_text("epoch 3, loss 0.5, and so on")
    with pytest.raises(ValueError, match="text is none"):
        load_state(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        load_state(tmp_path / "nothing")


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, broken):
    path = tmp_path / "state"
    save_state(path, {"step": 1})

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="no space left"):
        save_state(path, {"step": 2})
    assert load_state(path) == {"step": 1}
    assert [left.name for left in tmp_path.iterdir()] == ["state"]


# Saves in forked processes that kill themselves, or are killed, in the middle of a save.
KILLED = """
import os, signal, sys, time
from pathlib import Path
import torch
from helpers.checkpoint import load_state, save_state

path = Path(sys.argv[1])
state = lambda step: {"step": step, "weights": torch.full((400_000,), float(step))}
save_state(path, state(1))


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


class Half:
    def __init__(self, file):
        self.file = file
    def __enter__(self):
        return self
    def __exit__(self, *_):
        pass
    def write(self, content):
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        die()


def in_a_process(work):
    process = os.fork()
    if process == 0:
        work()
        os._exit(1)
    return process


def killed_at(point):
    def work():
        if point == "write":
            whole = Path.open
            Path.open = lambda *arguments: Half(whole(*arguments))
        else:
            setattr(os, point, die)
        save_state(path, state(2))
    return work


def forever():
    step = 1
    while True:
        step += 1
        save_state(path, state(step))


def check(least):
    found = load_state(path)
    assert found["step"] >= least, found["step"]
    assert (found["weights"] == found["step"]).all()
    return found["step"]


for point in ("write", "fsync", "replace"):
    _, status = os.waitpid(in_a_process(killed_at(point)), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, status
    assert path.with_name(path.name + ".partial").exists()
    assert check(1) == 1
reached = set()
for attempt in range(20):
    process = in_a_process(forever)
    time.sleep(0.02 + 0.003 * attempt)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    reached.add(check(1))
assert max(reached) > 1
save_state(path, state(3))
assert check(3) == 3
print([left.name for left in path.parent.iterdir()])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_kill_during_a_save_leaves_the_checkpoint_before(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "state")], capture_output=True, text=True
    )
    assert done.stdout.strip() == "['state']", done.stderr


def test_fingerprint_sees_values_order_kind_and_shape():
    a, b = torch.arange(6), torch.arange(6).flip(0)
    prints = {
        fingerprint(a), fingerprint(b), fingerprint(a, b), fingerprint(b, a), fingerprint(a.int()),
        fingerprint(a.view(2, 3)), fingerprint(a.view(2, 3).T), fingerprint(a.view(3, 2)),
    }  # fmt: skip
    assert len(prints) == 8
    assert fingerprint(a) == fingerprint(nn.Parameter(a.double()).detach().long())
