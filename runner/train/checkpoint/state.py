"""Checkpoints in runner's format: directories of named arrays, with a manifest for verification.

`{prefix}-{epoch}_{step}/` contains `state.safetensors` and, written last, `MANIFEST.json`. The directory gets its name
after all of it is synced to the disk. Measured: without this, kills at random moments destroyed 50 of 60 files.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runner.errors import ConfigError, DataError, StorageError, some
from runner.host import files
from runner.train.checkpoint import manifest
from runner.train.checkpoint.arrays import decode, encode
from runner.train.checkpoint.folder import place_of, remove_folder, sweep_temporaries, write_folder
from runner.train.checkpoint.manifest import MANIFEST, REPAIR, CheckpointFile, Manifest
from runner.validation.arguments import whole
from runner.validation.rules import Frozen

__all__ = ["SavedCheckpoint", "load", "newest", "prune", "save", "sweep_temporaries"]

STATE = "state.safetensors"


class SavedCheckpoint(Frozen):
    """A checkpoint: arrays by name, the progress of the run, and the values that a resumed run must share with it."""

    folder: Path
    arrays: dict[str, np.ndarray]
    progress: dict[str, Any]
    identity: dict[str, Any]


def save(
    folder: Path, arrays: Mapping[str, np.ndarray], progress: Mapping[str, Any], identity: Mapping[str, Any]
) -> Path:
    """Write a checkpoint under the name `folder`; equal arguments give equal bytes.

    `progress` and `identity` are JSON; `progress["global_step"]` (0 when absent) orders checkpoints by age. An existing
    checkpoint of this name is replaced. Raises ConfigError for arrays that cannot be saved and for a directory with
    other files, StorageError when writing fails.
    """
    foreign = sorted(set(files.names(folder)) - {STATE, MANIFEST})
    if foreign:
        raise ConfigError("cannot replace a directory that is not a checkpoint", directory=folder, has=some(foreign, 5))
    content = encode(arrays)
    text = manifest.text_of({STATE: CheckpointFile.of(content)}, progress, identity)
    files.make_directory(folder.parent)
    write_folder(folder, {STATE: content, MANIFEST: text})
    return folder


def load(path: Path | str) -> SavedCheckpoint:
    """Read and verify a checkpoint.

    Raises DataError with file, expected, found and repair when it is damaged, StorageError when reading fails.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise DataError("there is no such checkpoint", file=folder)
    found = manifest.read(folder)
    try:
        arrays = decode(_content(folder, found), folder / STATE)
    except DataError as error:
        raise error.add(repair=REPAIR) from None
    return SavedCheckpoint(folder, arrays, found.progress, found.identity)


def state_file(checkpoint: Path) -> Path:
    """The file with the arrays of a checkpoint, which is a folder or such a file itself."""
    return checkpoint / STATE if checkpoint.is_dir() else checkpoint


def newest(folder: Path, prefix: str) -> tuple[SavedCheckpoint | None, list[str]]:
    """The valid checkpoint of the highest global step, and a line about each newer damaged one.

    None when there is no valid one; the lines are then about all of them. Raises StorageError when the folder cannot be
    listed.
    """
    lines = []
    readable, broken = _candidates(folder, prefix)
    for candidate in readable:
        try:
            found = load(candidate.path)
        except (DataError, StorageError) as error:
            lines.append(_line(candidate.path, error))
        else:
            return found, [*lines, *(other.line for other in broken if other.order > candidate.order)]
    return None, [*lines, *(other.line for other in broken)]


def prune(folder: Path, prefix: str, keep_max: int) -> list[Path]:
    """Delete the oldest checkpoints beyond `keep_max`, and return their paths; the newest valid one is always kept.

    Those without a readable manifest are deleted first. Raises ConfigError for an invalid `keep_max`, or StorageError.
    """
    whole({}, 1, keep_max=keep_max)
    readable, broken = _candidates(folder, prefix)
    beyond = [*readable, *broken][keep_max:]
    valid = next((one for one in readable if _is_valid(one)), None) if beyond else None
    removed = [one.path for one in reversed(beyond) if one is not valid]
    for path in removed:
        remove_folder(path)
    return removed


class _Candidate(Frozen):
    """A directory with the name of a checkpoint; without a readable manifest, `line` is the reason."""

    path: Path
    order: tuple[int, int]  # epoch and step in the name
    manifest: Manifest | None
    line: str = ""

    @property
    def age(self) -> tuple[int, tuple[int, int], bool]:
        """Sort key: the global step; a directory that was set aside is older than its replacement."""
        return self.manifest.global_step if self.manifest else -1, self.order, not self.path.name.startswith(".")


def _candidates(folder: Path, prefix: str) -> tuple[list[_Candidate], list[_Candidate]]:
    """The candidates with a readable manifest and the others, newest first."""
    name = re.compile(re.escape(prefix) + "-([0-9]{1,18})_([0-9]{1,18})")
    found = []
    for entry in files.names(folder):
        if not (numbers := name.fullmatch(place_of(entry))):
            continue
        path, order = folder / entry, (int(numbers[1]), int(numbers[2]))
        try:
            found.append(_Candidate(path, order, manifest.read(path)))
        except (DataError, StorageError) as error:
            found.append(_Candidate(path, order, None, _line(path, error)))
    found.sort(key=lambda one: one.age, reverse=True)
    return [one for one in found if one.manifest], [one for one in found if not one.manifest]


def _is_valid(candidate: _Candidate) -> bool:
    try:
        load(candidate.path)
    except (DataError, StorageError):
        return False
    return True


def _content(folder: Path, known: Manifest) -> bytes:
    """The verified bytes of the arrays. Raises DataError."""
    expected, found = {STATE, MANIFEST}, set(files.names(folder))
    if found != expected or set(known.files) != {STATE}:
        rows = {"file": folder, "expected": some(sorted(expected), 5), "found": some(sorted(found), 5)}
        raise DataError("a checkpoint has missing or surplus files", **rows)
    path, part = folder / STATE, known.files[STATE]
    content = files.read_bytes(path, part.size)
    if len(content) != part.size:
        manifest.damaged(path, f"{part.size} bytes", f"{len(content)} bytes")
    if (now := CheckpointFile.of(content)) != part:
        manifest.damaged(path, f"sha256 {part.sha256}", f"sha256 {now.sha256}")
    return content


def _line(path: Path, error: DataError | StorageError) -> str:
    """One line about a checkpoint that cannot be used."""
    file = Path(error.rows.get("file", error.rows.get("path", path))).name
    rows = (f"{label} {error.rows[label]}" for label in ("expected", "found", "reason") if label in error.rows)
    return f"{path.name}: {'; '.join([f'{error.what} ({file})', *rows])}".replace("\n", " ")
