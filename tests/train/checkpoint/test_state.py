"""Checkpoints come back bit by bit; the newest good one is found, the oldest are deleted."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from checkpoint_sample import ARRAYS, IDENTITY, PROGRESS, is_what_was_saved, names, same, saved, text
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from runner import dtype
from runner.errors import ConfigError, DataError
from runner.train.checkpoint import state


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


@settings(max_examples=150)
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
        "ConfigError: cannot replace a directory that is not a checkpoint\n  directory  FOLDER\n  has        thesis"
    )
    assert names(tmp_path) == ["thesis"]


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
        f"CKP-1_5: a file of the checkpoint is damaged (state.safetensors); expected {size} bytes; found 1 bytes",
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


def test_arrays_of_callbacks_have_a_file_of_their_own(tmp_path):
    """Weights are what is read from a checkpoint elsewhere: the file with them has no others."""
    losses = {"losses": np.arange(5, dtype=np.float32), "EarlyStopping/0": np.zeros((), np.int64)}
    path = state.save(tmp_path / "CKP-1_7", ARRAYS, PROGRESS, IDENTITY, losses)
    assert names(path) == ["MANIFEST.json", "callbacks.safetensors", "state.safetensors"]
    found = state.load(path)
    assert is_what_was_saved(found)
    assert same(found.callbacks, losses)
    content = (path / "callbacks.safetensors").read_bytes()
    for place in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 1
        (path / "callbacks.safetensors").write_bytes(damaged)
        with pytest.raises(DataError, match="damaged"):
            state.load(path)
    (path / "callbacks.safetensors").unlink()
    with pytest.raises(DataError, match="missing or surplus files"):
        state.load(path)
    saved(tmp_path)  # one without such arrays replaces it
    assert state.load(path).callbacks == {}
    (path / "callbacks.safetensors").write_bytes(content)
    with pytest.raises(DataError, match="missing or surplus files"):
        state.load(path)
