"""Checkpoints come back bit by bit, damage is found and named, and a kill at any moment leaves a good one."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from runner import dtype, files
from runner.checkpoint import state
from runner.errors import ConfigError, DataError, StorageError

ROOT = Path(__file__).parents[2]
ARRAYS = {
    "fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "learning_rate": np.array(0.1),
    "mask": np.array([True, False]),
    "none": np.zeros((0, 3), np.float16),
}
PROGRESS = {"global_step": 7, "epoch": 2, "step": 3, "loss": 0.1}
IDENTITY = {"config": "ab12", "data": ["cd", 34]}


def saved(folder: Path, step: int = 7, prefix: str = "CKP") -> Path:
    return state.save(folder / f"{prefix}-1_{step}", ARRAYS, {**PROGRESS, "global_step": step}, IDENTITY)


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    """Equal to the last bit, NaNs included."""

    def facts(arrays):
        return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}

    return facts(found) == facts(expected)


def is_what_was_saved(checkpoint: state.Checkpoint) -> bool:
    return same(checkpoint.arrays, ARRAYS) and (checkpoint.progress, checkpoint.identity) == (PROGRESS, IDENTITY)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def text(error: pytest.ExceptionInfo, folder: Path) -> str:
    return str(error.value).replace(str(folder), "FOLDER")


# Round trips


def test_what_was_saved_comes_back(tmp_path):
    path = saved(tmp_path / "run" / "checkpoints")
    assert names(path.parent) == ["CKP-1_7"]
    assert names(path) == ["MANIFEST.json", "state.safetensors"]
    checkpoint = state.load(path)
    assert is_what_was_saved(checkpoint)
    assert checkpoint.folder == path
    assert state.load(str(path)).progress == PROGRESS
    checkpoint.arrays["fc.weight"][0, 0] = 5  # they belong to the caller


def test_equal_checkpoints_have_equal_bytes(tmp_path):
    first = saved(tmp_path / "a")
    arrays = {name: np.array(ARRAYS[name], order="F") for name in sorted(ARRAYS, reverse=True)}
    second = state.save(tmp_path / "b", arrays, dict(reversed(PROGRESS.items())), dict(reversed(IDENTITY.items())))
    for name in names(first):
        assert (first / name).read_bytes() == (second / name).read_bytes()


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)
ANY_ARRAY = st.sampled_from(dtype.ALL).flatmap(
    lambda kind: hnp.arrays(kind.numpy, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, ANY_ARRAY, max_size=4), st.booleans())
def test_any_arrays_come_back(arrays, transposed):
    if transposed:
        arrays = {name: array.T for name, array in arrays.items()}
    with tempfile.TemporaryDirectory() as folder:
        found = state.load(state.save(Path(folder) / "CKP-1_1", arrays, {}, {}))
    assert same(found.arrays, arrays)


def test_arrays_of_any_layout_come_back(tmp_path):
    """safetensors alone would write the memory of these as it lies."""
    whole = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    arrays = {
        "a": whole[:, ::2],
        "b": whole.transpose(2, 0, 1),
        "c": whole[::-1],
        "d": np.broadcast_to(whole[0], (2, 3, 4)),
    }
    assert same(state.load(state.save(tmp_path / "x", arrays, {}, {})).arrays, arrays)
    swapped = {"a": whole.astype(">f4")}
    assert same(state.load(state.save(tmp_path / "y", swapped, {}, {})).arrays, {"a": whole})


@pytest.mark.parametrize(
    ("arrays", "progress", "message"),
    [
        ({"": np.zeros(1)}, {}, "ConfigError: not a name for an array of a checkpoint\n  name  ''"),
        ({"a\n": np.zeros(1)}, {}, "ConfigError: not a name for an array of a checkpoint\n  name  'a\\n'"),
        ({"\ud800": np.zeros(1)}, {}, "ConfigError: not a name for an array of a checkpoint\n  name  '\\ud800'"),
        (
            {"__metadata__": np.zeros(1)},
            {},
            "ConfigError: not a name for an array of a checkpoint\n  name  '__metadata__'",
        ),
        (
            {"a": np.zeros(1, complex)},
            {},
            "ConfigError: not an element type of tensors\n  value    complex128\n"
            "  allowed  bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, float64\n"
            "  array    a",
        ),
        (
            {},
            {"loss": float("nan")},
            "ConfigError: progress and identity of a checkpoint must be JSON\n"
            "  reason  Out of range float values are not JSON compliant",
        ),
        (
            {},
            {"loss": np.float32(1)},
            "ConfigError: progress and identity of a checkpoint must be JSON\n"
            "  reason  Object of type float32 is not JSON serializable",
        ),
        ({}, {"global_step": -1}, "ConfigError: global_step must be a whole number of at least 0\n  given  -1"),
        ({}, {"global_step": True}, "ConfigError: global_step must be a whole number of at least 0\n  given  True"),
        (
            {},
            {"x": "y" * (16 << 20)},
            "ConfigError: progress and identity of a checkpoint are too long\n  bytes    16777552\n  allowed  16777216",
        ),
    ],
)
def test_what_cannot_be_saved(tmp_path, arrays, progress, message):
    with pytest.raises(ConfigError) as error:
        state.save(tmp_path / "CKP-1_1", arrays, progress, {})
    assert str(error.value).split(": nan")[0] == message
    assert names(tmp_path) == []


def test_a_directory_that_is_no_checkpoint_is_not_replaced(tmp_path):
    (tmp_path / "thesis").write_text("years")
    with pytest.raises(ConfigError) as error:
        state.save(tmp_path, ARRAYS, {}, {})
    assert text(error, tmp_path) == (
        "ConfigError: a checkpoint would replace a directory that is none\n  directory  FOLDER\n  has        thesis"
    )
    assert names(tmp_path) == ["thesis"]


# Damage


def refusal(path: Path) -> DataError | None:
    try:
        state.load(path)
    except DataError as error:
        return error
    return None


def test_every_flipped_bit_is_found(tmp_path):
    path = saved(tmp_path)
    flips = 0
    for part in path.iterdir():
        whole = part.read_bytes()
        for bit in range(8 * len(whole)):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            part.write_bytes(flipped)
            error = refusal(path)
            if error is None:  # blanks between values do not count
                assert part.name == "MANIFEST.json"
                assert is_what_was_saved(state.load(path))
            else:
                assert {"file", "repair"} <= set(error.rows)
            flips += 1
        part.write_bytes(whole)
    assert flips > 5000
    assert is_what_was_saved(state.load(path))


def test_every_cut_is_found(tmp_path):
    path = saved(tmp_path)
    for part in path.iterdir():
        whole = part.read_bytes()
        for size in range(len(whole)):
            part.write_bytes(whole[:size])
            if whole[size:] == b"\n":
                assert is_what_was_saved(state.load(path))
                continue
            with pytest.raises(DataError):
                state.load(path)
        part.write_bytes(whole)


def replace_in_manifest(path: Path, old: str, new: str) -> None:
    manifest = path / "MANIFEST.json"
    assert old in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(old, new))


DAMAGES = {
    "flipped": (
        lambda path: (path / "state.safetensors").write_bytes(b"x" + (path / "state.safetensors").read_bytes()[1:]),
        "a file is not what was written\n  file      FOLDER/state.safetensors\n"
        "  expected  sha256 SHA\n  found     sha256 SHA",
    ),
    "cut": (
        lambda path: (path / "state.safetensors").write_bytes(b"half"),
        "a file is not what was written\n  file      FOLDER/state.safetensors\n"
        "  expected  SIZE bytes\n  found     4 bytes",
    ),
    "longer": (
        lambda path: (path / "state.safetensors").write_bytes(b"x" * 1000),
        "a file is too long\n  file      FOLDER/state.safetensors\n  expected  at most SIZE bytes\n  found     1000",
    ),
    "missing": (
        lambda path: (path / "state.safetensors").unlink(),
        "a checkpoint misses parts or has surplus ones\n  file      FOLDER\n"
        "  expected  MANIFEST.json, state.safetensors\n  found     MANIFEST.json",
    ),
    "surplus": (
        lambda path: (path / "notes.txt").write_text("x"),
        "a checkpoint misses parts or has surplus ones\n  file      FOLDER\n"
        "  expected  MANIFEST.json, state.safetensors\n  found     MANIFEST.json, notes.txt, state.safetensors",
    ),
    "no manifest": (
        lambda path: (path / "MANIFEST.json").unlink(),
        "a file is missing\n  file    FOLDER/MANIFEST.json",
    ),
    "a directory in its place": (
        lambda path: ((path / "MANIFEST.json").unlink(), (path / "MANIFEST.json").mkdir()),
        "not a regular file\n  file    FOLDER/MANIFEST.json",
    ),
    "a pipe in its place": (
        lambda path: ((path / "MANIFEST.json").unlink(), os.mkfifo(path / "MANIFEST.json")),
        "not a regular file\n  file    FOLDER/MANIFEST.json",
    ),
    "no JSON": (
        lambda path: (path / "MANIFEST.json").write_text("{"),
        "a manifest is not JSON\n  file    FOLDER/MANIFEST.json\n"
        "  found   Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    "no UTF-8": (
        lambda path: (path / "MANIFEST.json").write_bytes(b"\xff{}"),
        "a manifest is not JSON\n  file    FOLDER/MANIFEST.json\n"
        "  found   'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    ),
    "NaN": (
        lambda path: replace_in_manifest(path, "0.1", "NaN"),
        "a manifest is not JSON\n  file    FOLDER/MANIFEST.json\n  found   NaN is not JSON",
    ),
    "deep": (
        lambda path: (path / "MANIFEST.json").write_text("[" * 100_000),
        "a manifest is not JSON\n  file    FOLDER/MANIFEST.json\n  found   it is nested too deeply",
    ),
    "another file": (
        lambda path: (path / "MANIFEST.json").write_text("[]"),
        'not the manifest of a checkpoint\n  file      FOLDER/MANIFEST.json\n  expected  "format": "runner checkpoint"',
    ),
    "other progress": (
        lambda path: replace_in_manifest(path, '"global_step": 7', '"global_step": 8'),
        "a file is not what was written\n  file      FOLDER/MANIFEST.json\n"
        "  expected  sha256 SHA\n  found     sha256 SHA",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named(tmp_path, damage):
    path = saved(tmp_path)
    size = (path / "state.safetensors").stat().st_size
    spoil, message = DAMAGES[damage]
    spoil(path)
    with pytest.raises(DataError) as error:
        state.load(path)
    found = text(error, path).replace(f"{size} bytes", "SIZE bytes")
    for digest in {word for word in found.split() if len(word) == 64}:
        found = found.replace(digest, "SHA")
    head, _, repair = found.removeprefix("DataError: ").rpartition("\n")
    assert head == message
    assert repair.split(maxsplit=1) == ["repair", "restore it from a copy, or delete this checkpoint"]
    assert error.value.exit_code == 7


def forged(path: Path, **changes: object) -> None:
    """Write a manifest whose hash is right, but nothing else."""
    values = json.loads((path / "MANIFEST.json").read_text())
    del values["sha256"]
    values.update(changes)
    values = {key: value for key, value in values.items() if value is not None}
    digest = state.manifest._digest(values)
    (path / "MANIFEST.json").write_text(json.dumps({**values, "sha256": digest}))


@pytest.mark.parametrize(
    "changes",
    [
        {"files": None},
        {"files": []},
        {"files": {"state.safetensors": 1}},
        {"files": {"state.safetensors": {"bytes": -1, "sha256": ""}}},
        {"files": {"state.safetensors": {"bytes": 1 << 62, "sha256": ""}}},
        {"files": {"state.safetensors": {"bytes": 1.5, "sha256": ""}}},
        {"files": {"../state.safetensors": {"bytes": 1, "sha256": ""}}},
        {"files": {}},
        {"progress": None},
        {"progress": 1},
        {"progress": {"global_step": "1"}},
        {"identity": []},
        {"version": 2},
        {"version": None},
    ],
    ids=str,
)
def test_forged_manifests(tmp_path, changes):
    path = saved(tmp_path)
    forged(path, **changes)
    with pytest.raises(DataError):
        state.load(path)
    assert state.newest(tmp_path, "CKP")[0] is None


def test_a_newer_version(tmp_path):
    path = saved(tmp_path)
    forged(path, version=2)
    with pytest.raises(DataError) as error:
        state.load(path)
    assert text(error, path) == (
        "DataError: unknown version of checkpoints\n  file      FOLDER/MANIFEST.json\n  expected  1\n  found     2\n"
        "  repair    read it with the version of runner that wrote it"
    )


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\xff" * 8 + b"{}", b"\x02" + b"\0" * 7 + b"[]"])
def test_arrays_that_are_none(tmp_path, content):
    path = saved(tmp_path)
    (path / "state.safetensors").write_bytes(content)
    part = state.Part.of(content)
    forged(path, files={"state.safetensors": {"bytes": part.size, "sha256": part.sha256}})
    with pytest.raises(DataError, match="not a file of arrays"):
        state.load(path)


def test_no_such_checkpoint(tmp_path):
    with pytest.raises(DataError) as error:
        state.load(tmp_path / "CKP-1_1")
    assert text(error, tmp_path) == "DataError: there is no such checkpoint\n  file  FOLDER/CKP-1_1"


# Which one


def test_the_newest_is_the_one_of_the_highest_step(tmp_path):
    assert state.newest(tmp_path / "nowhere", "CKP") == (None, [])
    for folder, step in (("CKP-1_9", 9), ("CKP-1_10", 10), ("CKP-2_1", 8), ("OTHER-9_9", 99), ("CKP-1_x", 99)):
        state.save(tmp_path / folder, {}, {"global_step": step}, {})
    found, lines = state.newest(tmp_path, "CKP")
    assert (found.folder.name, lines) == ("CKP-1_10", [])


def test_damaged_newer_ones_are_skipped_and_told(tmp_path):
    for step in range(1, 6):
        saved(tmp_path, step)
    (tmp_path / "CKP-1_5" / "state.safetensors").write_bytes(b"x")
    (tmp_path / "CKP-1_4" / "MANIFEST.json").write_bytes(b"{}")
    (tmp_path / "CKP-1_2" / "MANIFEST.json").unlink()  # older than the good one: nobody needs to know
    found, lines = state.newest(tmp_path, "CKP")
    size = (tmp_path / "CKP-1_3" / "state.safetensors").stat().st_size
    assert found.folder.name == "CKP-1_3"
    assert lines == [
        f"CKP-1_5: a file is not what was written (state.safetensors); expected {size} bytes; found 1 bytes",
        'CKP-1_4: not the manifest of a checkpoint (MANIFEST.json); expected "format": "runner checkpoint"',
    ]


def test_pruning(tmp_path):
    for step in range(8, 13):
        saved(tmp_path, step)
    saved(tmp_path, 1, prefix="OTHER")
    assert [path.name for path in state.prune(tmp_path, "CKP", 5)] == []
    assert [path.name for path in state.prune(tmp_path, "CKP", 3)] == ["CKP-1_8", "CKP-1_9"]
    assert names(tmp_path) == ["CKP-1_10", "CKP-1_11", "CKP-1_12", "OTHER-1_1"]


def test_pruning_never_takes_the_newest_good_one(tmp_path):
    for step in range(1, 6):
        saved(tmp_path, step)
    for step in (3, 4, 5):
        (tmp_path / f"CKP-1_{step}" / "state.safetensors").write_bytes(b"x")
    assert [path.name for path in state.prune(tmp_path, "CKP", 2)] == ["CKP-1_1", "CKP-1_3"]
    assert state.newest(tmp_path, "CKP")[0].folder.name == "CKP-1_2"


def test_pruning_takes_those_without_a_manifest_first(tmp_path):
    for step in (1, 2, 3):
        saved(tmp_path, step)
    (tmp_path / "CKP-1_3" / "MANIFEST.json").unlink()
    assert [path.name for path in state.prune(tmp_path, "CKP", 2)] == ["CKP-1_3"]


@pytest.mark.parametrize("keep_max", [0, -1, 1.0, True, None])
def test_pruning_needs_a_number(tmp_path, keep_max):
    with pytest.raises(ConfigError) as error:
        state.prune(tmp_path, "CKP", keep_max)
    assert str(error.value) == f"ConfigError: keep_max must be a whole number of at least 1\n  given  {keep_max!r}"


# What killed processes leave


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
from runner import files
from runner.checkpoint import state
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
    if not n:
        time.sleep(random.uniform(0.001, 0.04))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    told = b""
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
        timeout=100,
    )
    assert running.returncode == 0, running.stderr
    swept, last = map(int, running.stdout.split())
    assert swept > 10  # the kills met writers at work
    assert last > 10
