"""Full disks, read-only disks, folders that disappear, and many starts at once, with real file systems and processes.

They need mounts, so a superuser (in a sandbox that allows them).
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from patience import wait_until
from processes import called, ended, plain_error, started
from soak import SOAK, thinned

SMALL = (
    *("dataset=synthetic", "dataset.num_samples=128", "callbacks=quiet", "device.threads=1", "eval.every=never"),
    *("network=lenet5", "optimizer.learning_rate=0.05", "epochs=3"),
)
STEPWISE = "dataset_sink_mode=false"
FEATURES = {
    "checkpoint": ("checkpoint.every_steps=1", STEPWISE),
    "graphs": ("save_graphs=true", "mode=graph", STEPWISE),
    "sync dump": ("dump=sync", "mode=graph", STEPWISE),
    "async dump": ("dump=async", "mode=graph"),
    "profile": ("profiling=trace", "mode=graph", STEPWISE),
    "tensorboard": ("tracking=tensorboard", STEPWISE),
}


def mounted(place: Path, *options: str) -> None:
    place.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", place], capture_output=True)
    if done.returncode:
        pytest.skip("cannot mount a tmpfs")


@pytest.fixture
def disk(tmp_path):
    """A file system of a given number of KiB, and how to enlarge it."""
    place = tmp_path / "disk"

    def make(kib: int) -> Path:
        mounted(place, f"size={kib}k")
        return place

    yield make
    subprocess.run(["umount", "-l", place], capture_output=True, check=False)


def resize(place: Path, *options: str) -> None:
    subprocess.run(["mount", "-o", ",".join(("remount", *options)), place], check=True, capture_output=True)


def checked(code: int, err: str) -> None:
    assert code == 5, (code, err)
    assert plain_error(code, err), err
    assert "No space left" in err or "disk" in err or "space" in err, err


@pytest.mark.parametrize("feature", [*thinned(FEATURES, every=2)])
def test_a_disk_that_is_full_in_the_middle(tmp_path, disk, feature):
    """The run ends with one error, and goes on when there is space, to the same results as on a large disk."""
    if feature == "tensorboard":
        pytest.importorskip("tensorboardX")
    code, _, err = called((*FEATURES[feature], *SMALL, "hydra.run.dir=whole"), tmp_path)
    assert code == 0, err
    size = sum(path.stat().st_size for path in (tmp_path / "whole").rglob("*") if path.is_file()) // 1024
    place = disk(max(64, size * 2 // 3))
    code, _, err = called((*FEATURES[feature], *SMALL, "hydra.run.dir=run"), place)
    checked(code, err)
    resize(place, "size=1g")
    if (place / "run/config.json").exists():
        assert json.loads((place / "run/status.json").read_text())["status"] in ("failed", "running")
        code, _, err = called(("resume", "run"), place)
        assert code == 0, err
        assert (place / "run/metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()


def test_a_report_on_a_full_disk(tmp_path, disk):
    place = disk(4096)
    assert called((*SMALL, "hydra.run.dir=run"), place)[0] == 0
    used = shutil.disk_usage(place).used // 1024
    resize(place, f"size={used + 4}k")
    (place / "filler").write_bytes(b"\0" * shutil.disk_usage(place).free)
    code, _, err = called(("report", "run"), place)
    checked(code, err)
    assert not list((place / "run").glob("*report*"))


def test_a_disk_that_becomes_read_only(tmp_path, disk):
    place = disk(100_000)
    assert called((*SMALL, "hydra.run.dir=whole"), place)[0] == 0
    resize(place, "ro")
    for words in ((*SMALL, "hydra.run.dir=run"), ("report", "whole"), ("resume", "whole", "epochs=5")):
        code, _, err = called(words, place)
        assert code == 5, (words, err)
        assert plain_error(code, err), err
    assert called(("ls", "."), place)[0] == 0


def test_a_run_directory_that_is_deleted_while_running(tmp_path):
    long = (*SMALL, STEPWISE, "epochs=100000", "mode=graph", "hydra.run.dir=run", "checkpoint.every_steps=5")
    process = started(long, tmp_path)
    rows = tmp_path / "run/metrics.jsonl"
    wait_until(lambda: rows.exists() and rows.stat().st_size > 1000, lambda: process.poll() is None)
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    code, _, err = ended(process)
    assert code == 5, (code, err)
    assert plain_error(code, err), err


@pytest.mark.skipif(not SOAK, reason="64 processes: `make soak`")
def test_64_starts_at_once(tmp_path):
    processes = [started((*SMALL, "max_steps=2", "mode=graph"), tmp_path) for _ in range(64)]
    codes = [ended(process) for process in processes]
    assert [code for code, _, _ in codes] == [0] * 64, [err for code, _, err in codes if code]
    folders = [path.parent for path in tmp_path.glob("outputs/*/*/summary.json")]
    assert len(folders) == 64
    assert len({(folder / "metrics.jsonl").read_bytes() for folder in folders}) == 1


@pytest.mark.skipif(not SOAK, reason="16 processes: `make soak`")
def test_of_16_starts_in_one_folder_one_wins(tmp_path):
    processes = [started((*SMALL, "max_steps=2", "hydra.run.dir=one"), tmp_path) for _ in range(16)]
    codes = sorted(ended(process)[0] for process in processes)
    assert codes == [0] + [4] * 15
    assert os.path.exists(tmp_path / "one/summary.json")
