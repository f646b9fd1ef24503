"""Damaged files of every format that a command reads: an error of ours, or values; never a crash, and little memory.

For formats with a checksum, the values are those before the damage.
"""

import json
import subprocess
import sys
from pathlib import Path

import damaged_reads
import pytest
from patience import PATIENCE
from soak import SOAK

import runner
from runner import cli

COUNT = 900 if SOAK else 20  # of each sample: more than 20,000 in a soak
PEAK_MB = 300
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> dict:
    """What the reads of all damaged files gave."""
    folder = tmp_path_factory.mktemp("samples")
    run = folder / "runs" / "run"
    words = ("dataset=synthetic", "dataset.num_samples=64", "callbacks=quiet", "device.threads=1", "mode=pynative")
    runner.run([*words, f"hydra.run.dir={run}"])
    assert cli.main(["golden", "--update", str(folder / "runs/golden.json"), str(run)]) == 0
    damaged_reads.write(folder, run)
    command = [sys.executable, str(SUPPORT / "damaged_reads.py"), str(folder), str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_damage_is_an_error_or_harmless(report):
    wrong = [line for outcome in report["outcomes"].values() for line in outcome["wrong"]]
    assert not wrong, f"{len(wrong)} damaged files\n" + "\n".join(wrong[:20])


def test_each_format_was_read(report):
    counts = {name: outcome["errors"] + outcome["values"] for name, outcome in report["outcomes"].items()}
    assert len(counts) >= 25
    assert set(counts.values()) == {COUNT}
    assert sum(counts.values()) > (20_000 if SOAK else 400)


def test_reading_takes_little_memory(report):
    assert report["peak_mb"] < PEAK_MB
