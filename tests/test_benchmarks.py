import json
import subprocess
import sys


def test_gpu_check_runs_every_part_on_a_cpu():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_check", "--device", "cpu", "--no-notebooks"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["failed"]
    parts = found["parts"]
    assert {"throughput", "noise_slope", "optimizers", "float64_update"} <= set(parts)
    assert parts["float64_update"]["relative_difference"] < 1e-12
    assert -0.75 < parts["noise_slope"]["slope"] < -0.25
