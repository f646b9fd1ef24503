"""A kill or a failing disk at any moment leaves a good checkpoint, and what else it leaves is swept."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint_sample import is_what_was_saved, names, saved
from patience import PATIENCE

from runner.errors import StorageError
from runner.host import files
from runner.train.checkpoint import state

ROOT = Path(__file__).parents[3]


def test_sweeping_takes_what_killed_writers_left_and_nothing_else(tmp_path):
    kept = ["CKP-1_1", ".notes.tmp", "a.tmp", ".x.0123456789ab.tmpx", ".x.0123456789AB.tmp", "0123456789ab.tmp"]
    for name in (*kept, ".CKP-1_2.0123456789ab.tmp", ".CKP-1_1.0123456789ab.old"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "file").write_text("x")
    (tmp_path / ".summary.json.0123456789ab.tmp").write_text("half")
    (tmp_path / ".link.0123456789ab.tmp").symlink_to(tmp_path / "CKP-1_1")
    assert state.sweep_temporaries(tmp_path) == [
        ".CKP-1_1.0123456789ab.old: removed",
        ".CKP-1_2.0123456789ab.tmp: removed",
        ".link.0123456789ab.tmp: removed",
        ".summary.json.0123456789ab.tmp: removed",
    ]
    assert names(tmp_path) == sorted(kept)
    assert names(tmp_path / "CKP-1_1") == ["file", "inner"]
    assert state.sweep_temporaries(tmp_path) == state.sweep_temporaries(tmp_path / "nowhere") == []


def test_a_checkpoint_that_was_set_aside_is_found_and_put_back(tmp_path):
    path = saved(tmp_path)
    path.rename(tmp_path / ".CKP-1_7.0123456789ab.old")
    found, lines = state.newest(tmp_path, "CKP")
    assert is_what_was_saved(found)
    assert lines == []
    assert state.sweep_temporaries(tmp_path) == ["CKP-1_7: put back"]
    assert is_what_was_saved(state.load(path))


class Failing:
    """Lets the n-th operation on files fail, and counts them."""

    def __init__(self, n: int, number: int = errno.EIO) -> None:
        self.n, self.number, self.seen = n, number, []

    def __call__(self, operation: str, path: Path) -> None:
        self.seen.append(operation)
        if len(self.seen) == self.n:
            raise OSError(self.number, os.strerror(self.number))


def test_the_operations_of_a_save(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "before_operation", first := Failing(0))
    saved(tmp_path)
    whole = ["mkdir", *["open", "write", "fsync"] * 2, "fsync", "rename", "fsync"]
    assert first.seen == whole
    monkeypatch.setattr(files, "before_operation", second := Failing(0))
    saved(tmp_path)
    assert second.seen == [*whole[:-2], "rename", "rename", "fsync", "unlink", "unlink", "unlink"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("replaces", [False, True])
def test_any_failing_operation_leaves_the_old_one_or_the_new_one(tmp_path, monkeypatch, number, replaces):
    n, error = 0, None
    while n == 0 or error:
        n += 1
        folder = tmp_path / str(n)
        saved(folder, 7)
        name = "CKP-1_7" if replaces else "CKP-1_8"
        monkeypatch.setattr(files, "before_operation", Failing(n, number))
        error = None
        try:
            state.save(folder / name, {}, {"global_step": 8}, {})
        except StorageError as raised:
            error = raised
        monkeypatch.undo()
        assert error is None or error.rows["reason"] == os.strerror(number)
        found, lines = state.newest(folder, "CKP")
        assert lines == []
        assert is_what_was_saved(found) or found.progress == {"global_step": 8}
        assert error or found.progress == {"global_step": 8}
        state.sweep_temporaries(folder)
        assert set(names(folder)) <= {"CKP-1_7", "CKP-1_8"}
        assert state.newest(folder, "CKP")[0].progress == found.progress
    assert n > 10


# A process that forks children, so that none of them has to start Python: they save in a loop and are killed. A number
# in the pipe says that the save of this step returned.
NURSERY = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
from runner.host import files
from runner.train.checkpoint import state
root, kind = Path(sys.argv[1]), sys.argv[2]
def arrays(step):
    return {"w": np.full((64, 256), step, np.float32), "v.w": np.arange(step, step + 9)}
def work(folder, start, pipe, replaces):
    for step in range(start + 1, 10**6):
        name = "CKP-1_1" if replaces else f"CKP-1_{step}"
        state.save(folder / name, arrays(step), {"global_step": step}, {})
        os.write(pipe, step.to_bytes(4, "big"))
        state.prune(folder, "CKP", 2)
def die_at(n):
    seen = iter(range(1, n + 1))
    def before(operation, path):
        if next(seen, None) == n:
            os._exit(9)
    files.before_operation = before
def trial(folder, start, replaces, n):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        if n:
            die_at(n)
        work(folder, start, write, replaces)
    os.close(write)
    told = b""
    if not n:
        told = os.read(read, 4)  # the first save has returned: from then on it is always saving
        time.sleep(random.uniform(0, 0.04))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(read, 1 << 16):
        told += more
    os.close(read)
    last = int.from_bytes(told[-4:], "big") if told else start
    found, lines = state.newest(folder, "CKP")
    assert not lines, lines
    step = found.progress["global_step"] if found else 0
    assert last <= step <= last + 1, (last, step)
    left = state.sweep_temporaries(folder)
    assert not [name for name in os.listdir(folder) if name.startswith(".")]
    again, _ = state.newest(folder, "CKP")
    for checkpoint in (found, again) if found else ():
        expected = arrays(step)
        assert checkpoint.arrays.keys() == expected.keys()
        assert all((checkpoint.arrays[k] == v).all() for k, v in expected.items())
    return step, len(left)
random.seed(int(sys.argv[3]))
results = []
for k in range(int(sys.argv[4])):
    replaces = k % 2 == 1
    folder = root / kind / str(replaces)
    folder.mkdir(parents=True, exist_ok=True)
    start, _ = state.newest(folder, "CKP")
    step = start.progress["global_step"] if start else 0
    results.append(trial(folder, step, replaces, k // 2 + 1 if kind == "every" else 0))
print(sum(left for _, left in results), max(step for step, _ in results))
"""


@pytest.mark.parametrize(("kind", "trials"), [("random", 60), ("every", 90)])
def test_a_kill_at_any_moment_leaves_the_last_saved_one(tmp_path, kind, trials):
    """60 at random moments, and 45 at each operation of the first saves: with new names, and replacing one name."""
    running = subprocess.run(
        [sys.executable, "-c", NURSERY, str(tmp_path), kind, "1", str(trials)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert running.returncode == 0, running.stderr
    swept, last = map(int, running.stdout.split())
    assert swept > 10  # the kills met writers at work
    assert last > 10
