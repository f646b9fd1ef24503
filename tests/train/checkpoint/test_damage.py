"""Damage of a checkpoint is found, whatever it is, and named."""

import json
import os
from pathlib import Path

import pytest
from checkpoint_sample import is_what_was_saved, saved, text
from soak import SOAK, thinned

from runner.errors import DataError
from runner.train.checkpoint import state


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
        for bit in thinned(range(8 * len(whole)), 5):
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
    assert flips > (5000 if SOAK else 1000)
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
        "a file of the checkpoint is damaged\n  file      FOLDER/state.safetensors\n"
        "  expected  sha256 SHA\n  found     sha256 SHA",
    ),
    "cut": (
        lambda path: (path / "state.safetensors").write_bytes(b"half"),
        "a file of the checkpoint is damaged\n  file      FOLDER/state.safetensors\n"
        "  expected  SIZE bytes\n  found     4 bytes",
    ),
    "longer": (
        lambda path: (path / "state.safetensors").write_bytes(b"x" * 1000),
        "a file is too long\n  file      FOLDER/state.safetensors\n  expected  at most SIZE bytes\n  found     1000",
    ),
    "missing": (
        lambda path: (path / "state.safetensors").unlink(),
        "a checkpoint has missing or surplus files\n  file      FOLDER\n"
        "  expected  MANIFEST.json, state.safetensors\n  found     MANIFEST.json",
    ),
    "surplus": (
        lambda path: (path / "notes.txt").write_text("x"),
        "a checkpoint has missing or surplus files\n  file      FOLDER\n"
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
        "a file of the checkpoint is damaged\n  file      FOLDER/MANIFEST.json\n"
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
    digest = state._digest(values)
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
    part = state.CheckpointFile.of(content)
    forged(path, files={"state.safetensors": {"bytes": part.size, "sha256": part.sha256}})
    with pytest.raises(DataError, match="not a safetensors file"):
        state.load(path)


def test_no_such_checkpoint(tmp_path):
    with pytest.raises(DataError) as error:
        state.load(tmp_path / "CKP-1_1")
    assert text(error, tmp_path) == "DataError: there is no such checkpoint\n  file  FOLDER/CKP-1_1"
