import os
import random
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from helpers.checkpoint import fingerprint, load_state, save_state
from helpers.model import ModelConfig, SmallLM
from helpers.parallel import launch
from helpers.schedule import batch_ramp, lr_factors
from helpers.train import train
from tests.parallel_workers import stop_and_resume

WINDOWS = torch.randint(11, (45, 9), generator=torch.Generator().manual_seed(0))
CONFIG = ModelConfig(11, 8, 8, 1, 2)
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


def same(a, b):
    """Whether two states are the same to the last bit, in kind too."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


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


class CrashError(RuntimeError):
    pass


class Dropping(SmallLM):
    """Drops out at random, counts in a buffer, and crashes at a micro-batch if told to."""

    def __init__(self, config=CONFIG, *, crash_at=None, seed=0):
        super().__init__(config, seed=seed)
        self.register_buffer("micro_batches", torch.tensor(0))
        self.crash_at = crash_at

    def forward(self, tokens):
        logits = super().forward(tokens)
        if self.training:
            if self.micro_batches == self.crash_at:
                raise CrashError
            self.micro_batches += 1
        return F.dropout(logits, 0.3, self.training)


def run(model, path, *, windows=WINDOWS, **changes):
    """Make 12 updates: 4, 4, 4, 8, 8, 16, 1 examples; then 16, 16, 13; then 16, 16."""
    how = {
        "batch_size": 2, "accumulation": 2, "steps": 12, "lr": 0.01, "clip": 1.0, "seed": 4,
        "ramp": batch_ramp(4, {3: 8, 5: 16}), "schedule": lr_factors(12, 4, "cosine"),
        "eval_data": WINDOWS[:5], "eval_every": 5, "checkpoint": path, "save_every": 1,
    }  # fmt: skip
    return train(model, windows, **(how | changes))


def outcome(model, history, path):
    """Return all that a run leaves behind, but for the time that it took."""
    kept = load_state(path)
    assert len(kept["history"].pop("seconds")) == history.steps
    happened = {name: value for name, value in vars(history).items() if name != "seconds"}
    return {
        "weights": model.state_dict(),
        "checkpoint": kept,
        "plan": repr(happened.pop("plan")),
        "history": happened,
        "random": (random.getstate(), torch.get_rng_state()),
    }


# What is trained, and at which of its micro-batches it crashes: one of so many.
RESUMED = [
    ("ramp", 1, {}),
    ("micro-batch", 3, {"grow": "batch_size"}),
    ("momentum", 5, {"optimizer": "momentum", "save_every": 3}),
    ("amsgrad", 7, {"optimizer": lambda groups, lr: torch.optim.Adam(groups, lr, amsgrad=True)}),
    ("short window", 5, {"ramp": None, "batch_size": 3, "accumulation": 4, "drop_last": True}),
]


@pytest.mark.parametrize(("name", "apart", "how"), RESUMED, ids=[name for name, *_ in RESUMED])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(
    tmp_path, monkeypatch, name, apart, how
):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # hundreds of saves; no power cut is tested
    model = Dropping()
    expected = outcome(model, run(model, tmp_path / "whole", **how), tmp_path / "whole")
    for crash_at in range(1, int(model.micro_batches), apart):
        path = tmp_path / f"crash {crash_at}"
        with pytest.raises(CrashError):
            run(Dropping(crash_at=crash_at), path, **how)
        if not path.exists():
            assert crash_at < 3 * 2  # before the first save
            continue
        random.seed(99)
        torch.manual_seed(99)
        again = Dropping(seed=1)
        found = outcome(again, run(again, path, resume=True, **how), path)
        for part, value in expected.items():
            assert same(found[part], value), (name, crash_at, part)


def test_two_processes_resume_from_the_file_of_the_first(tmp_path, capsys):
    ramp = batch_ramp(4, {3: 8})
    how = {"batch_size": 2, "steps": 9, "lr": 0.01, "ramp": ramp, "eval_data": WINDOWS[:5]}
    both = launch(stop_and_resume, Dropping, WINDOWS, str(tmp_path / "run"), how, backend="gloo")
    for whole, resumed in both:
        assert same(resumed, whole)
    assert same(both[0], both[1])
    # of 45 examples and one repeated: 3 × 4, 4 × 8 and the 2 that are left; then 8 again
    assert both[0][0]["examples"] == [4, 8, 12, 20, 28, 36, 44, 46, 54]
    assert capsys.readouterr().out.count("stopped") == 1  # only the first is heard


def test_resuming_a_run_that_is_over_brings_it_back_and_makes_no_update(tmp_path):
    model, again = Dropping(), Dropping(seed=1)
    whole = run(model, tmp_path / "run")
    back = run(again, tmp_path / "run", resume=True)
    assert back == whole
    assert same(again.state_dict(), model.state_dict())


def test_saving_does_not_change_the_run(tmp_path):
    saved, plain = Dropping(), Dropping()
    run(saved, tmp_path / "run")
    run(plain, None, save_every=None)
    assert same(saved.state_dict(), plain.state_dict())


def test_it_saves_when_it_was_asked_to(tmp_path, monkeypatch):
    steps = []
    whole = os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (steps.append(1), whole(*names)))
    path = tmp_path / "run"
    run(Dropping(), path, save_every=5)
    assert len(steps) == 3  # after 5, 10 and 12 updates
    run(Dropping(), path, save_every=None)
    assert len(steps) == 4


OTHER_OPTIMIZER = {"optimizer": lambda groups, lr: torch.optim.AdamW(groups, lr=lr, eps=1e-6)}
OTHER_SCHEDULE = [*lr_factors(12, 4, "cosine")[:-1], 0.5]
ANOTHER = [
    ({"steps": 10, "schedule": None}, "max_steps was 12 and is 10"),
    ({"steps": None, "epochs": 3, "schedule": None}, "max_steps was 12 and is None"),
    ({"batch_size": 4, "accumulation": 1}, "batch_size was 2 and is 4; accumulation was 2 and is"),
    ({"ramp": batch_ramp(4, {3: 8})}, "ramp was "),
    ({"grow": "batch_size"}, "grow was 'accumulation' and is 'batch_size'"),
    ({"drop_last": True}, "drop_last was False and is True"),
    ({"lr": 0.02}, "lr was 0.01 and is 0.02"),
    ({"seed": 5}, "seed was 4 and is 5"),
    ({"clip": None}, "clip was 1.0 and is inf"),
    ({"normalize": "batches"}, "normalize was 'tokens' and is 'batches'"),
    ({"schedule": OTHER_SCHEDULE}, r"schedule\[11\] was 0.0\d+ and is 0.5"),
    ({"optimizer": "sgd"}, "optimizer was 'AdamW' and is 'SGD'"),
    (OTHER_OPTIMIZER, r"optimizer.groups\[0\].eps was 1e-08 and is 1e-06"),
    ({"windows": WINDOWS.flip(0)}, "data was '[0-9a-f.]+' and is '"),
    ({"windows": WINDOWS[:44]}, "examples was 45 and is 44"),
    ({"model": SmallLM(CONFIG)}, "model was 'Dropping' and is 'SmallLM'"),
    ({"model": Dropping(ModelConfig(11, 8, 8, 1, 1))}, "model.config was .*heads=2.* is .*heads=1"),
    (
        {"model": Dropping().double()},
        r"model.state.token_embedding.weight was '\(11, 8\) of torch.f",
    ),
]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept") / "run"
    run(Dropping(), path)
    return path


@pytest.mark.parametrize(("change", "words"), ANOTHER, ids=[words for _, words in ANOTHER])
def test_another_run_is_refused_and_the_difference_named(kept, change, words):
    change = dict(change)
    model = change.pop("model", Dropping(seed=1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=f"checkpoint must be of the same run; .*{words}"):
        run(model, kept, resume=True, **change)
    assert same(dict(model.state_dict()), before)


def test_measuring_and_saving_at_other_times_is_the_same_run(kept):
    run(Dropping(), kept, resume=True, eval_every=1, eval_data=None, save_every=7)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"save_every": 0}, "save_every"),
        ({"save_every": 2.5}, "save_every"),
        ({"resume": 1}, "resume must be True or False"),
        ({"checkpoint": None}, "checkpoint must be a path where save_every or resume is given"),
        ({"checkpoint": None, "save_every": None, "resume": True}, "checkpoint must be a path"),
        ({"checkpoint": 5}, "checkpoint must be a path; got 5"),
        ({"checkpoint": "no such folder/run"}, "checkpoint must be a file in a folder that exists"),
        ({"checkpoint": "."}, "checkpoint must be a file in a folder"),
        ({"checkpoint": "never saved", "resume": True}, "checkpoint must exist to resume from it"),
    ],
)
def test_bad_arguments_are_named_before_any_work(tmp_path, change, words):
    model = Dropping()
    with pytest.raises((ValueError, TypeError), match=words):
        run(model, tmp_path / "run", **change)
    assert model.micro_batches == 0
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_changes_nothing(tmp_path):
    path = tmp_path / "run"
    run(Dropping(), path)
    path.write_bytes(path.read_bytes()[:-1])
    model = Dropping()
    with pytest.raises(ValueError, match="is none, or is cut off or damaged"):
        run(model, path, resume=True)
    assert model.micro_batches == 0


def test_fingerprint_sees_values_order_kind_and_shape():
    a, b = torch.arange(6), torch.arange(6).flip(0)
    prints = {
        fingerprint(a), fingerprint(b), fingerprint(a, b), fingerprint(b, a), fingerprint(a.int()),
        fingerprint(a.view(2, 3)), fingerprint(a.view(2, 3).T), fingerprint(a.view(3, 2)),
    }  # fmt: skip
    assert len(prints) == 8
    assert fingerprint(a) == fingerprint(nn.Parameter(a.double()).detach().long())
