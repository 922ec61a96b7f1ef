"""The benchmarks run to their end and count rightly; nothing here looks at how fast they are."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
import torch

from benchmarks import (
    checkpoints,
    gpu_check,
    many_runs,
    notebook_times,
    peak,
    simulation,
    training,
)
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.start_up import plan_in_full
from benchmarks.table import Report, Row, written
from helpers.memory import Breakdown, Measurement
from helpers.model import ModelConfig, SmallLM
from helpers.shapes import SHAPES, Shape

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def checked():
    """The whole check at its tiny size, in a process of its own."""
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_check", "--device", "cpu", "--no-notebooks"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout
    return json.loads(answer.stdout)  # fails if anything else is printed


def test_gpu_check_has_every_part_and_none_failed(checked):
    assert checked["cuda"] is False
    assert checked["failed"] == []
    assert set(checked["parts"]) == {
        "machine",
        "throughput",
        "against_others",
        "noise_slope",
        "optimizers",
        "float64_update",
        "memory",
        "sweep",
    }
    assert not any("error" in part for part in checked["parts"].values())


def test_gpu_check_measures_each_batch_size_and_optimizer(checked):
    parts = checked["parts"]
    for batch_size in (1, 4, 16, 64):
        assert parts["throughput"][f"batch {batch_size}"]["examples_per_second"] > 0
    assert {"adamw", "sgd", "momentum"} < set(parts["optimizers"])
    for name in ("adamw", "sgd", "momentum"):
        # A fair guess among about 100 characters costs ln 100 = 4.6.
        run = parts["optimizers"][name]
        assert run["last"] < run["first"] < 5


def test_gpu_check_finds_the_noise_and_the_update_that_theory_gives(checked):
    noise = checked["parts"]["noise_slope"]["noise_over_gradient"]
    assert noise["1"] / noise["256"] == pytest.approx(16, rel=0.25)  # √256
    assert checked["parts"]["noise_slope"]["slope"] == pytest.approx(-0.5, abs=0.06)
    assert checked["parts"]["float64_update"]["relative_difference"] < 1e-13


def test_gpu_check_weighs_steps_as_simulated_and_finds_the_batch_of_the_line(checked):
    memory = checked["parts"]["memory"]
    for batch_size in (1, 16, 64):
        row = memory[f"small, batch {batch_size}"]
        assert row["simulated"]["ratio"] == pytest.approx(1, abs=0.002)
        assert row["estimated"]["ratio"] == pytest.approx(1, abs=0.01)
        assert "card" not in row
    largest = memory["largest batch by a limit"]
    assert largest["found"] == pytest.approx(largest["predicted"], abs=1)
    assert largest["predicted"] > 16  # the update is no longer the fullest
    assert "largest batch of the card" not in memory


def test_gpu_check_trains_many_runs_in_both_ways(checked):
    row = checked["parts"]["sweep"]["batch 16"]
    assert row["runs"] == 45
    assert row["together"].startswith("in stacks of")
    seconds = row["seconds"]["one-by-one"] / row["seconds"]["together"]
    assert row["times_as_fast"] == pytest.approx(seconds, rel=0.01)
    assert row["loss_difference"] < 1e-5


CPU = torch.device("cpu")


@pytest.fixture
def quick_search(monkeypatch):
    """Give the largest batch within the limit of the CPU without a search."""
    monkeypatch.setattr(gpu_check, "largest_batch", lambda *_, **__: 83)


@pytest.mark.parametrize("name", ["simulate", "estimate"])
@pytest.mark.usefixtures("quick_search")
def test_a_peak_that_is_told_wrong_is_found(monkeypatch, name):
    right = getattr(gpu_check, name)

    def too_much(*arguments, **how):
        told = right(*arguments, **how)
        return told + Breakdown({told.when: {"states": told.peak // 5}})

    monkeypatch.setattr(gpu_check, name, too_much)
    found = gpu_check.memory(CPU, gpu_check.TINY)
    assert found["ok"] is False
    for batch_size in (1, 16, 64):
        assert found[f"small, batch {batch_size}"]["ok"] is False
    assert found["largest batch by a limit"]["ok"] is (name == "estimate")  # the line is simulated


@pytest.mark.parametrize("wrong", [70, 97])  # of 83
def test_a_largest_batch_off_the_line_is_found(monkeypatch, wrong):
    monkeypatch.setattr(gpu_check, "largest_batch", lambda *_, **__: wrong)
    found = gpu_check.memory(CPU, gpu_check.TINY)
    failed = [name for name, row in found.items() if name != "ok" and not row["ok"]]
    assert failed == ["largest batch by a limit"]
    assert found["ok"] is False


@pytest.mark.usefixtures("quick_search")
def test_a_row_of_memory_that_fails_leaves_the_others(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no such counter")

    monkeypatch.setattr(gpu_check, "measure", broken)
    found = gpu_check.memory(CPU, gpu_check.TINY)
    assert found["small, batch 1"]["error"] == "RuntimeError: no such counter"
    assert found["largest batch by a limit"]["ok"] is True
    assert found["ok"] is False


@pytest.mark.usefixtures("quick_search")
def test_a_large_shape_is_weighed_in_16_bits(monkeypatch):
    monkeypatch.setitem(SHAPES, "tiny", Shape(97, 32, 32, 4, 4))
    found = gpu_check.memory(CPU, replace(gpu_check.TINY, shapes=("tiny",)))
    rows = [found[f"tiny, batch {batch_size}"] for batch_size in (1, 4, 16)]
    assert all(row["simulated"]["ratio"] == pytest.approx(1, abs=0.01) for row in rows)
    assert rows[0]["peak_bytes"] == pytest.approx(5 * 2 * SHAPES["tiny"].parameters, rel=0.01)


def test_the_allocator_tells_the_peak_where_it_was_asked():
    step = Breakdown({"update": {"states": 7}})
    peaks = tuple({"active": active, "allocated": 0, "reserved": 0} for active in (90, 50, 60))
    assert gpu_check._later_peak(Measurement((step,) * 3, (), peaks), before=20) == 40
    assert gpu_check._later_peak(Measurement((step,) * 3, (), ()), before=0) == 7


def test_the_card_is_given_back_after_a_failed_search(monkeypatch):
    shares = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    with pytest.raises(RuntimeError, match="unknown"), gpu_check._only(0.1):
        raise RuntimeError("unknown error")
    assert shares == [0.1, 1.0]


def test_runs_whose_losses_differ_are_found(monkeypatch):
    right = many_runs.runs

    def wrong(batch_size, updates, method, device):
        result = right(batch_size, updates, method, device)
        result.loss[1, 0, 7] += 0.002 * (method == "together")
        return result

    monkeypatch.setattr(many_runs, "runs", wrong)
    monkeypatch.setattr(many_runs, "RATES", tuple(1e-4 * 1.2**k for k in range(8)))
    monkeypatch.setattr(many_runs, "SEEDS", (0, 1))
    found = gpu_check.runs_together(CPU, gpu_check.TINY)
    assert found["batch 16"]["loss_difference"] == pytest.approx(0.002, abs=1e-5)
    assert found["ok"] is found["batch 16"]["same"] is False


def test_a_failing_part_is_reported_and_the_others_run(monkeypatch, capsys):
    def broken(*_):
        raise RuntimeError("no such kernel")

    parts = {
        "broken": broken,
        "wrong": lambda *_: {"slope": 0.0, "ok": False},
        "not a number": lambda *_: {"loss": float("nan")},
        "fine": lambda *_: {"value": 1 / 3},
    }
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    assert gpu_check.main(["--device", "cpu", "--no-notebooks"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == ["broken", "wrong", "not a number"]
    assert found["parts"]["broken"]["error"] == "RuntimeError: no such kernel"
    assert found["parts"]["fine"]["value"] == 0.3333


def test_notebooks_are_run_to_their_first_error(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_check, "NOTEBOOKS", tmp_path)
    write_notebook(tmp_path / "a_good.ipynb", "print(1)")
    write_notebook(tmp_path / "b_broken.ipynb", "1 / 0")
    found = gpu_check.notebooks(time.perf_counter() + 300)
    assert found["ok"] is False
    assert (found["a_good"]["finished"], found["a_good"]["error"]) == (True, None)
    assert found["b_broken"]["finished"] is False
    assert found["b_broken"]["error"] == "ZeroDivisionError: division by zero"


def test_a_notebook_is_stopped_when_time_is_over(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_check, "NOTEBOOKS", tmp_path)
    write_notebook(tmp_path / "endless.ipynb", "while True: pass")
    found = gpu_check.notebooks(time.perf_counter())
    assert found["endless"]["finished"] is False
    assert found["ok"] is True  # too slow is no error


def test_what_a_notebook_claims_and_takes_is_written_down(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_check, "NOTEBOOKS", tmp_path)
    path = ROOT / "notebooks" / "09_plan_a_run.ipynb"
    shutil.copy(path, tmp_path)
    found = gpu_check.notebooks(time.perf_counter() + 600)
    run = found[path.stem]
    assert found["ok"] is run["finished"] is True
    json.dumps(found, allow_nan=False)
    code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert list(run["cells"]) == [cell.id for cell in code]
    assert sum(run["cells"].values()) < run["seconds"]
    claimed = {claim["claim"]: claim for claim in run["claims"]}
    assert len(claimed) == sum(cell.source.count("claim(\n") for cell in code) + sum(
        len(re.findall(r"^claim\(\".*\)$", cell.source, re.MULTILINE)) for cell in code
    )
    time_kept = claimed["Time within a factor of two."]
    assert time_kept["cell"] == "claim-carry-out"
    assert time_kept["numbers"].startswith("taken to planned = ")


def test_a_claim_that_is_contradicted_is_a_failure_and_the_rest_is_heard(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_check, "NOTEBOOKS", tmp_path)
    write_notebook(
        tmp_path / "wrong.ipynb",
        "from helpers.claims import claim\nclaim('No.', 1 > 2, of=1)\nclaim('Yes.', 2 > 1)",
    )
    found = gpu_check.notebooks(time.perf_counter() + 300)
    assert found["ok"] is False
    assert found["wrong"]["finished"] is True
    outcomes = [(claim["claim"], claim["outcome"]) for claim in found["wrong"]["claims"]]
    assert outcomes == [("No.", "contradicted"), ("Yes.", "borne_out")]
    assert found["wrong"]["claims"][0]["numbers"] == "of = 1"


def write_notebook(path, source):
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)]), path)


def test_operations_of_a_model_counted_by_hand():
    model = SmallLM(ModelConfig(vocab_size=5, context=3, width=4, layers=2, heads=2))
    # A layer: query, key, value and output of 4² each, feed-forward of 8 × 4². Then the vocabulary.
    in_products = 2 * (4 * 16 + 8 * 16) + 5 * 4
    attention = 2 * (2 * 3 * 4)  # forward, two layers: 2 × context × width each
    assert peak.operations_per_token(model) == 6 * in_products + 3 * attention == 2568


def test_the_two_models_have_the_same_parameters():
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    size, cpu = training.SIZES["small"], torch.device("cpu")
    mine, _ = training.ours(size, cpu)
    theirs, _ = training.trainer(size, cpu, "gelu", logging_off=True)
    assert sorted(p.numel() for p in mine.parameters()) == sorted(
        p.numel() for p in theirs.parameters()
    )


def test_training_names_both_ways_of_the_trainer_and_promises_only_the_bare_loop(
    monkeypatch, capfd
):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.setattr(training, "SECONDS", 0.0)
    monkeypatch.setattr(training, "SIZES", {"tiny": training.Size(2, 8, 8, 1, 2, updates=2)})
    rows = training.report().rows
    assert {row.name.removeprefix("train, tiny, against "): row.target for row in rows} == {
        "bare loop": "at least 0.95 ×",
        "Trainer, as it comes": "",
        "Trainer, logging off": "",
        "Trainer, logging off, same activation": "",
    }
    assert capfd.readouterr().out == ""


def test_the_share_of_the_peak_is_reported_without_a_promise(monkeypatch):
    monkeypatch.setattr(peak, "SECONDS", 0.0)
    monkeypatch.setattr(peak, "MATRICES", (8,))
    monkeypatch.setattr(training, "SIZES", {"medium": training.Size(2, 8, 8, 1, 2, updates=2)})
    (row,) = peak.report().rows
    assert row.measured.endswith(" %")
    assert (row.target, row.within) == ("", None)


def test_the_plan_that_is_timed_is_right():
    # 10¹² examples on 7 devices: 142,857,142,858 each; by 8: 17,857,142,858 batches; by 3:
    # 5,952,380,953 updates an epoch; two and a half epochs, rounded up.
    assert plan_in_full().total_steps == 14_880_952_383


def test_many_runs_compares_every_way_that_has_a_target(monkeypatch):
    monkeypatch.setattr(many_runs, "ROUNDS", 1)
    monkeypatch.setattr(many_runs, "RATES", (1e-3,))
    rows = many_runs.report({16: 2, 64: 2}).rows
    names = [row.name.split(", ", 1)[1] for row in rows]
    assert names == ["batch 16, together", "batch 16, auto", "batch 64, auto", "against a pass"]
    assert all(row.target for row in rows)


def test_a_missed_target_is_said():
    rows = [
        Row.at_least("slow", [0.5, 0.9, 3.0], 0.95),
        Row.at_least("fast", [1.0, 0.96, 0.2], 0.95),
        Row.at_least("free", [2.0], None),
    ]
    lines = written([Report(rows, ["a note"])]).splitlines()
    assert lines[2].split() == [
        *("slow", "0.90", "×", "0.50", "to", "3.00,", "3", "rounds"),
        *("at", "least", "0.95", "×", "below", "target"),
    ]
    assert lines[3].endswith("at least 0.95 ×  ok")
    assert lines[4].endswith("1 rounds")
    assert lines[-1] == "- a note"


def test_unknown_benchmark_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["start-up", "speed"])
    assert f"{', '.join(BENCHMARKS)}; got 'speed'" in capsys.readouterr().err


def test_checkpoints_are_saved_while_it_is_timed(monkeypatch):
    monkeypatch.setattr(checkpoints, "ROUNDS", 1)
    (row,) = checkpoints.report(6).rows
    assert float(row.measured.removesuffix(" %")) > 0


def test_simulation_reports_time_and_memory(monkeypatch):
    monkeypatch.setattr(simulation, "ROUNDS", 1)
    report = simulation.report()
    assert [row.target for row in report.rows] == ["below 10 s", "below 1.5 GiB"]
    assert "62.8 GiB" in report.notes[0]


def test_readme_gives_a_time_for_every_notebook(monkeypatch):
    names = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert sorted(notebook_times.stated()) == names
    found = {name: {"finished": True, "error": None, "seconds": 59.0} for name in names}
    found[names[1]] = {"finished": False, "error": "ValueError: 1", "seconds": 2.0}
    monkeypatch.setattr(notebook_times, "notebooks", lambda _: found)
    monkeypatch.setattr(notebook_times, "stated", lambda: dict.fromkeys(names, 30) | {names[0]: 29})
    rows = notebook_times.report().rows
    assert [row.within for row in rows[:3]] == [False, False, True]
    assert rows[1].measured == "ValueError: 1"
