import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

from helpers import parallel
from helpers.accumulate import gradients, relative_difference
from helpers.data import CharTokenizer, collate, make_records
from helpers.model import ModelConfig, SmallLM
from helpers.parallel import LaunchError, alone, launch, sharded_gradient
from tests import parallel_workers as workers

RECORDS = make_records(60)
TOKENIZER = CharTokenizer("".join(record.text for record in RECORDS))
DATA = collate(RECORDS, TOKENIZER)
CONFIG = ModelConfig(TOKENIZER.vocab_size, DATA[0].shape[1], 16, 1, 2)
HOW = {"lr": 3e-3, "steps": 20, "clip": 1.0}
ON_POSIX = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch, tmp_path):
    """Every launch must leave no file and no process behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    # torch makes an empty folder of its own for compiled code
    assert [path.name for path in tmp_path.iterdir() if "inductor" not in path.name] == []
    assert torch.multiprocessing.active_children() == []


def test_results_come_back_in_order_and_the_first_is_heard(capsys):
    results = launch(workers.add_ranks, 10, processes=3, backend="gloo")
    assert [result["total"].item() for result in results] == [33.0] * 3  # 0 + 1 + 2 + 3 · 10
    assert len({result["pid"] for result in results} | {os.getpid()}) == 4
    assert "process 0 has 33" in capsys.readouterr().out


def test_two_processes_make_the_run_of_one_unless_each_averages_its_own():
    whole = alone(CONFIG, DATA, torch.float64, HOW | {"batch_size": 16})
    ways = [
        HOW | {"batch_size": 8},
        HOW | {"batch_size": 4, "accumulation": 2},
        HOW | {"batch_size": 8, "normalize": "batches"},
    ]
    first, second = launch(workers.several_runs, CONFIG, DATA, ways, backend="gloo")
    for run, twin in zip(first[:2], second[:2]):
        assert relative_difference(run["weights"], whole["weights"]) < 1e-12
        assert relative_difference(twin["weights"], run["weights"]) == 0
        assert run["loss"] == pytest.approx(whole["loss"], rel=1e-12)
        assert twin["tokens"] == run["tokens"] == whole["tokens"]
        assert run["bytes_an_update"] == 8 * sum(w.numel() for w in SmallLM(CONFIG).parameters())
    assert relative_difference(first[2]["weights"], whole["weights"]) > 1e-4


def test_sharded_gradient_is_the_whole_gradient():
    batch = DATA[0][:20], DATA[1][:20]
    parts = launch(sharded_gradient, CONFIG, batch, torch.float64, backend="gloo")
    expected = gradients(SmallLM(CONFIG).double(), [batch])
    for part in parts:
        assert relative_difference(part["gradient"], expected) < 1e-12
    assert sum(part["kept"] for part in parts) == parts[0]["parameters"]


def test_nothing_can_fail_once_the_result_is_there():
    # torch's threads now and then abort a process at the interpreter's end
    assert launch(workers.abort_at_the_interpreters_end, backend="gloo") == [0, 1]


def test_an_error_is_told_with_its_last_lines():
    with pytest.raises(LaunchError) as error:
        launch(workers.fail_in_second, backend="gloo")
    text = str(error.value)
    assert "process 1 failed: ZeroDivisionError: one share has no targets" in text
    assert "about to divide" in text


@ON_POSIX
def test_a_killed_process_is_told():
    started = time.monotonic()
    with pytest.raises(
        LaunchError, match=r"process 1 failed: it was ended by SIGKILL[\s\S]*still here"
    ):
        launch(workers.die_in_second, backend="gloo", timeout=60)
    # Far below the timeout: the others, which wait for the dead one, are not waited for.
    assert time.monotonic() - started < 45


def test_a_process_that_leaves_is_told():
    with pytest.raises(LaunchError, match=r"process 0 failed: SystemExit: 7"):
        launch(workers.leave_in_first, backend="gloo")


def test_a_process_that_hangs_is_ended():
    with pytest.raises(LaunchError, match="it had not finished after 8 s"):
        launch(workers.hang_in_second, backend="gloo", timeout=8)


@ON_POSIX
def test_no_process_outlives_its_parent():
    code = (
        "from helpers.parallel import launch\nfrom tests.parallel_workers import hang_in_second\n"
        "if __name__ == '__main__': launch(hang_in_second, backend='gloo')"
    )
    parent = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    child = int(parent.stdout.readline().split()[1])
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(100):
        if not is_running(child):
            break
        time.sleep(0.1)
    assert not is_running(child)


SCRIPT = """
from helpers.parallel import launch
from tests.parallel_workers import add_ranks
{guard}launch(add_ranks, 10, backend="gloo")
"""


@pytest.mark.parametrize("guard", ["", 'if __name__ == "__main__":\n    '])
def test_a_script_without_a_guard_gets_one_clear_line(tmp_path, guard):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard=guard))
    root = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True,
    )  # fmt: skip
    script.unlink()
    if guard:
        assert (done.returncode, done.stdout) == (0, "process 0 has 21\n")
        return
    *_, last = done.stderr.strip().splitlines()
    assert last.startswith(
        "helpers.parallel.LaunchError: guard the launch in your script with if _"
    )
    assert done.stderr.count("Traceback") == 1
    assert "bootstrapping" not in done.stderr


def test_the_guard_is_shown_where_launching_is():
    root = Path(__file__).parent.parent
    guard = 'if __name__ == "__main__":'
    notebook = (root / "notebooks/08_data_parallel.ipynb").read_text("utf-8").replace("\\", "")
    for text in ((root / "README.md").read_text("utf-8"), notebook, launch.__doc__):
        assert guard in text


def is_running(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return state.stdout.strip()[:1] not in ("", "Z")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"processes": 0}, "processes"),
        ({"processes": 1.5}, "processes"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"backend": "mpi"}, "backend must be one of"),
    ],
)
def test_bad_launch_is_named(change, words):
    with pytest.raises((ValueError, TypeError), match=words):
        launch(workers.add_ranks, 1, **change)


@pytest.mark.parametrize(
    "function", [lambda: None, "workers.add_ranks", None, torch.nn.Linear(1, 1)]
)
def test_function_that_cannot_be_found_is_named(function):
    with pytest.raises(ValueError, match="function must be one that a new process can import"):
        launch(function)


def test_more_processes_than_gpus_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"at most 1 under nccl.*got 2"):
        launch(workers.add_ranks, 1, processes=2, backend="nccl")
    assert parallel.backend_for(2) == "gloo"
    assert parallel.backend_for(1) == "nccl"


CHECK = ("-m", "helpers.parallel", "--check")


def run_check(*launcher):
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *launcher, *CHECK],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_check_under_torchs_launcher():
    done = run_check("--standalone", "--nproc-per-node", "2")
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    (line,) = out.strip().splitlines()
    result = json.loads(line)
    assert result["ok"]
    assert result["updates"] == 20
    assert result["shares_without_a_target"] > 0
    assert result["relative_difference"] < 1e-12


def test_check_on_two_machines():
    meet = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
    meet += ["--rdzv-endpoint", f"localhost:{free_port()}", "--rdzv-id", "two-machines"]
    machines = [run_check(*meet) for _ in range(2)]
    outs = [machine.communicate(timeout=120)[0] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0]
    assert json.loads("".join(outs))["processes"] == 2


def free_port():
    import socket

    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def test_module_alone_says_how_it_is_started():
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    done = subprocess.run(
        [sys.executable, "-m", "helpers.parallel", "--check"],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "torch.distributed.run" in done.stderr
