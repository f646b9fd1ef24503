"""Runs, sweeps and ranks that are killed (-9) at random moments and resumed: their bytes are those of a whole one.

The moments are shares of the time that the whole takes, from a fixed seed; a kill that comes too late has done nothing.
"""

import hashlib
import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from patience import wait_until
from processes import called, kill_group, plain_error, started

NOT_COMPARED = (
    *(".hydra", ".lock", ".runner_owner.json", "status.json", "manifest.json", "summary.json"),
    *("multirun.yaml", "sweep.jsonl", "console.log"),
)
TIMES = {"init_seconds", "compile_seconds", "first_loss_seconds", "train_seconds", "steps_per_second", "peak_rss_mb"}
MPIRUN = (str(Path(sys.executable).parent / "mpirun"), "-n", "2")
OF_THE_PROCESS = TIMES | {"run_dir", "host_interactions"}


def traces(folder: Path, last: str) -> dict[str, object]:
    """What must not depend on kills: the bytes of files, and summaries without the figures of processes.

    Of the checkpoints only `last`: a signal saves one more, which may displace the oldest of the others.
    """
    found: dict[str, object] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if path.name == "summary.json":
            found[name] = {k: v for k, v in json.loads(path.read_text()).items() if k not in OF_THE_PROCESS}
        elif "checkpoints" in path.parts and last not in path.parts:
            continue
        elif not any(part in NOT_COMPARED for part in Path(name).parts):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


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


def finish(words: Sequence[str], place: Path, launcher: Sequence[str]) -> None:
    """Call until the lock of a killed rank is released, a moment later; a run that is finished already is fine."""
    for _ in range(100):
        code, _, err = called(words, place, launcher)
        if code != 4:
            break
    if code == 2 and "is finished" in err:
        code = 0
    assert code == 0, err
    assert plain_error(code, err)


def check_kills(
    words_of: Callable[[str], Sequence[str]],
    place: Path,
    rng: random.Random,
    kills: int,
    last: str,
    launcher: Sequence[str] = (),
) -> int:
    """Compare `kills` runs that are killed once or more with a whole one, in the folder `place`.

    `words_of` are the words of a run into a folder of this name; `last` is its last checkpoint. Returns how many kills
    hit a process that was alive.
    """
    start = time.monotonic()
    code, _, err = called(words_of("whole"), place, launcher)
    seconds = time.monotonic() - start
    assert code == 0, err
    expected, effective = traces(place / "whole", last), 0
    assert any(last in name for name in expected)
    for number in range(kills):
        folder, words = place / str(number), words_of(str(number))
        for _ in range(rng.choice((1, 1, 2, 3))):
            process = started(words, place, launcher)
            time.sleep(rng.random() * seconds)  # not a wait: where it falls decides nothing about the result
            effective += process.poll() is None
            kill_group(process)
            if has_begun(folder):
                words = ("resume", str(number))
            else:
                remove(folder)
        if not is_done(folder):
            finish(words, place, launcher)
        found = traces(folder, last)
        other = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        assert not other, f"run {number}: {other}"
        remove(folder)
    return effective
