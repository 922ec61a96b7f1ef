import os
import random

import pytest
import torch
import torch.nn.functional as F

from helpers.checkpoint import load_state
from helpers.model import ModelConfig, SmallLM
from helpers.parallel import launch
from helpers.schedule import batch_ramp, lr_factors
from helpers.train import train
from tests.parallel_workers import stop_and_resume
from tests.same import same

WINDOWS = torch.randint(11, (45, 9), generator=torch.Generator().manual_seed(0))
CONFIG = ModelConfig(11, 8, 8, 1, 2)


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
    ("float16", 7, {"precision": "float16"}),
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
