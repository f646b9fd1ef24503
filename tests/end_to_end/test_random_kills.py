"""Runs, sweeps and ranks that are killed (-9) at random moments, and resumed: their bytes are those of whole ones.

Each kind has two runs here, and fifty in `make soak`: 300. The moments are shares of the time that a whole run takes,
from fixed seeds; a kill that comes too late has done nothing.
"""

import hashlib
import json
import random
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from patience import wait_until
from processes import called, kill_group, plain_error, started
from soak import SOAK

KILLS = 50 if SOAK else 2
SMALL = (
    *(
        "dataset=synthetic",
        "dataset.num_samples=128",
        "callbacks=quiet",
        "device.threads=1",
        "checkpoint.every_steps=3",
    ),
    *("optimizer.learning_rate=0.05", "epochs=12"),
)
MPIRUN = (str(Path(sys.executable).parent / "mpirun"), "-n", "2")
RANKS = ("parallel=data_parallel", "parallel.gradients_mean=true")
KINDS: Mapping[str, tuple[str, ...]] = {
    "graph": ("mode=graph", "dataset_sink_mode=false"),
    "sunk": ("mode=graph", "sink_size=7"),
    "pynative": ("mode=pynative", "dataset_sink_mode=false"),
    "augmented": ("mode=graph", "dataset.augment=true", "dataset.image_size=32", "dataset.num_parallel_workers=2"),
    "sweep": ("-m", "mode=graph", "seed=1,2,3", "hydra/launcher=pool"),
    "ranks": ("mode=graph", *RANKS),
}
NOT_COMPARED = (
    *(".hydra", ".lock", ".runner_owner.json", "status.json", "manifest.json", "summary.json"),
    *("multirun.yaml", "sweep.jsonl", "console.log"),
)
LAST = "CKP-12_4"  # a signal saves one more checkpoint, which may displace the oldest of the others
TIMES = {"init_seconds", "compile_seconds", "first_loss_seconds", "train_seconds", "steps_per_second", "peak_rss_mb"}
OF_THE_PROCESS = TIMES | {"run_dir", "host_interactions"}


def traces(folder: Path) -> dict[str, object]:
    """What must not depend on kills: the bytes of files, and summaries without the figures of processes."""
    found: dict[str, object] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if path.name == "summary.json":
            found[name] = {k: v for k, v in json.loads(path.read_text()).items() if k not in OF_THE_PROCESS}
        elif "checkpoints" in path.parts and LAST not in path.parts:
            continue
        elif not any(part in NOT_COMPARED for part in Path(name).parts):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def words_of(kind: str, folder: str) -> tuple[str, ...]:
    place = f"hydra.sweep.dir={folder}" if kind == "sweep" else f"hydra.run.dir={folder}"
    return (*KINDS[kind], *SMALL, place)


def has_begun(folder: Path) -> bool:
    """Whether there is something to resume."""
    journal, status = folder / "sweep.jsonl", folder / "status.json"
    if journal.exists():
        return b"\n" in journal.read_bytes()
    return status.exists() and (folder / "config.json").exists()


def remove(folder: Path) -> None:
    """Remove the folder; ranks that mpirun has just killed may still write into it."""

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    wait_until(is_gone)


def is_done(folder: Path) -> bool:
    status = folder / "status.json"
    return status.exists() and json.loads(status.read_text())["status"] == "ok"


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_and_resumed_to_the_same_bytes(tmp_path, kind, record_property):
    if kind == "ranks":
        pytest.importorskip("mpi4py")
    launcher = MPIRUN if kind == "ranks" else ()
    start = time.monotonic()
    code, _, err = called(words_of(kind, "whole"), tmp_path, launcher)
    seconds = time.monotonic() - start
    assert code == 0, err
    expected, rng, effective = traces(tmp_path / "whole"), random.Random(kind), 0
    for number in range(KILLS):
        folder = tmp_path / str(number)
        words = words_of(kind, str(number))
        for _ in range(rng.choice((1, 1, 2, 3))):
            process = started(words, tmp_path, launcher)
            time.sleep(rng.random() * seconds)  # not a wait: where it falls decides nothing about the result
            effective += process.poll() is None
            kill_group(process)
            if has_begun(folder):
                words = ("resume", str(number))
            else:
                remove(folder)
        if not is_done(folder):
            for attempt in range(100):
                code, _, err = called(words, tmp_path, launcher)
                if code != 4 or attempt == 99:  # the lock of a killed rank is released a moment later
                    break
            if code == 2 and "is finished" in err:
                code = 0
            assert code == 0, (number, err)
            assert plain_error(code, err)
        found = traces(folder)
        assert any(LAST in name for name in found)
        assert found == expected, number
        remove(folder)
    record_property("kills", effective)
    print(f"{kind}: {effective} effective kills")
