"""Checkpoints in runner's format: directories of named arrays, with a manifest for verification.

`{prefix}-{epoch}_{step}/` contains `state.safetensors`, `callbacks.safetensors` where callbacks have arrays, and,
written last, `MANIFEST.json`. The directory gets its name after all of it is synced to the disk. Measured: without
this, kills at random moments destroyed 50 of 60 files.

How a resumed run finds its place: `newest` is the valid checkpoint of the highest `progress["global_step"]`, the number
of steps that were executed. Its arrays are all parameters of the training cell, among them the state of the optimizer,
its `global_step`, and the loss scale. `runner/experiment/callbacks.py` writes and restores it, and `Model.train`
continues with `first_step=global_step`: the place in the epoch follows from this number alone, and nothing about
a dataset is stored. What callbacks hold is in `progress`, its arrays apart (`runner/train/callback/state.py`).

Below: the manifest, directories that appear at once, arrays in safetensors, and last `save`, `load`, `newest`, `prune`.
"""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import safetensors
import safetensors.numpy

from runner import dtype as dt, rundir
from runner.errors import ConfigError, DataError, StorageError, some
from runner.host import files
from runner.host.json import fits, parse_data
from runner.validation.arguments import whole
from runner.validation.rules import Frozen

# `MANIFEST.json`: the files of a checkpoint, the progress of its run, and a sha256 of these values. The hash is over
# the values, so it is independent of the layout and detects a flipped bit in a number of steps.

MANIFEST = "MANIFEST.json"
FORMAT, VERSION = "runner checkpoint", 1
LIMIT = 16 << 20  # bytes
REPAIR = "restore it from a copy, or delete this checkpoint"
NEWER = "read it with the version of runner that wrote it"


class CheckpointFile(Frozen):
    """Size and hash of a file of a checkpoint."""

    size: int  # in bytes
    sha256: str

    @classmethod
    def of(cls, content: bytes) -> "CheckpointFile":
        """The size and hash of this content."""
        return cls(len(content), hashlib.sha256(content).hexdigest())


class Manifest(Frozen):
    """The files of a checkpoint by name, the progress of its run, and the identity for resuming."""

    files: dict[str, CheckpointFile]
    progress: dict[str, Any]
    identity: dict[str, Any]

    @property
    def global_step(self) -> int:
        """Steps executed before the checkpoint."""
        return int(self.progress.get("global_step", 0))


def text_of(parts: Mapping[str, CheckpointFile], progress: Mapping[str, Any], identity: Mapping[str, Any]) -> str:
    """The text of a manifest; equal values give equal texts. Raises ConfigError for values that are not JSON."""
    said = {"progress": {**progress}, "identity": {**identity}}
    try:
        said = json.loads(json.dumps(said, allow_nan=False, sort_keys=True))
    except (TypeError, ValueError, RecursionError) as reason:
        raise ConfigError("progress and identity of a checkpoint must be JSON", reason=reason) from None
    if not _is_count(step := said["progress"].get("global_step", 0)):
        raise ConfigError("global_step must be a whole number of at least 0", given=repr(step))
    sizes = {name: {"bytes": part.size, "sha256": part.sha256} for name, part in parts.items()}
    values = {"format": FORMAT, "version": VERSION, "files": sizes, **said}
    text = json.dumps({**values, "sha256": _digest(values)}, indent=2) + "\n"
    if len(text) > LIMIT:
        raise ConfigError("progress and identity of a checkpoint are too long", bytes=len(text), allowed=LIMIT)
    return text


def read(folder: Path) -> Manifest:
    """Read and verify the manifest of a checkpoint. Raises DataError with repair, or StorageError."""
    path = folder / MANIFEST
    try:
        values = _values(path)
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise DataError("not the manifest of a checkpoint", file=path, expected=f'"format": "{FORMAT}"')
        if (version := values.get("version")) != VERSION:
            rows = {"file": path, "expected": VERSION, "found": version, "repair": NEWER}
            raise DataError("unknown version of checkpoints", **rows)
        claimed = values.pop("sha256", None)
        found = _digest(values)
    except DataError as error:
        raise error.add(repair=REPAIR) from None
    if claimed != found:
        damaged(path, f"sha256 {claimed}", f"sha256 {found}")
    return _checked(values, path)


def _values(path: Path) -> Any:
    content = files.read_bytes(path, LIMIT)
    try:
        return parse_data(content)
    except DataError as error:
        raise DataError("a manifest is not JSON", file=path, found=error.rows["reason"]) from None


def damaged(path: Path, expected: object, found: object) -> NoReturn:
    """Raise DataError for a changed file of a checkpoint."""
    raise DataError("a file of the checkpoint is damaged", file=path, expected=expected, found=found, repair=REPAIR)


def _checked(values: dict[str, Any], path: Path) -> Manifest:
    """The manifest from valid values: a correct hash proves only that they were not changed."""
    is_valid = fits(values, {"files": dict, "progress": dict, "identity": dict})
    is_valid = is_valid and fits([*values["files"].values()], [{"bytes": int, "sha256": object}])
    if is_valid:
        parts = {name: CheckpointFile(part["bytes"], part["sha256"]) for name, part in values["files"].items()}
        if not _is_count(step := values["progress"].get("global_step", 0)):
            rows = {"expected": "global_step a whole number of at least 0", "found": repr(step)[:100]}
            raise DataError("a manifest has a wrong value", file=path, **rows, repair=REPAIR)
        if all(_is_count(part.size) for part in parts.values()):
            return Manifest(parts, values["progress"], values["identity"])
    raise DataError("a manifest lacks required values", file=path, repair=REPAIR)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# Atomic creation and removal of directories, and the clean-up after a killed process.

ASIDE_SUFFIX = ".old"
_LEFT = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}(?P<suffix>\.tmp|\.old)|\.[0-9a-f]{16}\.tmp", re.DOTALL)


def write_folder(path: Path, contents: Mapping[str, files.Content]) -> None:
    """Write a directory of files, in the given order, or leave an existing one untouched.

    A directory cannot be renamed onto another one, so an existing one is first renamed to a hidden name, which
    `place_of` and `sweep_temporaries` recognise. Raises StorageError with the path and the system's reason.
    """
    temporary, aside = files.hidden(path, files.TEMPORARY_SUFFIX), files.hidden(path, ASIDE_SUFFIX)
    replaces = path.is_dir()
    try:
        with files.storage_errors("cannot write a directory", path):
            files.make_new(temporary)
            for name, content in contents.items():
                files.write_new(temporary / name, content)
            files.sync_folder(temporary)
            if replaces:
                _exchange(path, temporary, aside)
            else:
                files.rename(temporary, path)
            files.sync_folder(path.parent)
            if replaces:
                files.remove(aside)
        files.remove_leftovers(path)
    except BaseException:
        _discard(temporary)
        raise


def _exchange(path: Path, temporary: Path, aside: Path) -> None:
    """Rename a finished directory to its name; on failure rename the previous one back."""
    try:
        files.rename(path, aside)
        files.rename(temporary, path)
    except BaseException:
        if aside.exists() and not path.exists():
            files.rename(aside, path)
        raise


def _discard(temporary: Path) -> None:
    """Remove an unfinished directory; a failure is left to `sweep_temporaries`."""
    with suppress(OSError):  # the original error is raised
        if temporary.is_dir():
            files.remove(temporary)


def remove_folder(path: Path) -> None:
    """Remove a directory recursively: a kill in between leaves it complete or under a hidden name.

    Raises StorageError.
    """
    hidden = files.hidden(path, files.TEMPORARY_SUFFIX)
    with files.storage_errors("cannot remove a directory", path):
        files.rename(path, hidden)
        files.sync_folder(path.parent)
        files.remove(hidden)


def place_of(name: str) -> str:
    """The name that a directory had before it was set aside; any other name unchanged.

    >>> place_of(".CKP-1_9.0123456789ab.old"), place_of("CKP-1_9")
    ('CKP-1_9', 'CKP-1_9')
    """
    left = _LEFT.fullmatch(name)
    return left["name"] if left and left["suffix"] == ASIDE_SUFFIX else name


def sweep_run(folder: Path) -> None:
    """Clean up a run directory and everything below it, as `sweep_temporaries` does.

    Folders with a record of their owner are left out: what writes them removes what a killed process left there, and
    other ranks may be writing. Raises StorageError.
    """
    sweep_temporaries(folder)
    for name in files.names(folder):
        inside = folder / name
        if inside.is_dir() and not inside.is_symlink() and not (inside / rundir.OWNER).exists():
            sweep_run(inside)


def sweep_temporaries(folder: Path) -> list[str]:
    """Clean up one folder after killed writers, and return a line about each of their entries.

    Files and directories with a temporary name are removed; a directory that was set aside is renamed back if its name
    is free. Nothing else is changed. No process may be writing to the folder. Raises StorageError.
    """
    done = []
    for name in files.names(folder):
        left = _LEFT.fullmatch(name)
        if not left:
            continue
        back = left["suffix"] == ASIDE_SUFFIX and left["name"] not in files.names(folder)
        with files.storage_errors("cannot clean up after a killed process", folder / name):
            if back:
                files.rename(folder / name, folder / left["name"])
            else:
                files.remove(folder / name)
        done.append(f"{left['name']}: put back" if back else f"{name}: removed")
    return done


# Named arrays in the safetensors format, which cannot contain code.

TYPES = {
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{f"{kind}{bits}": f"<{kind.lower()}{bits // 8}" for kind in "IU" for bits in (8, 16, 32, 64)},
    "BOOL": "?",
}


def plain_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays in the form of file formats: native byte order, C order, printable names.

    safetensors 0.8 writes the memory of an array, so it would write other values for strided arrays. Raises ConfigError
    with the name of an array that cannot be saved.
    """
    plain = {}
    for name, array in arrays.items():
        if not isinstance(name, str) or not name or not name.isprintable() or name == "__metadata__":
            raise ConfigError("not a name for an array of a checkpoint", name=ascii(name))
        value = np.asarray(array)
        try:
            plain[name] = value.astype(dt.of(value.dtype).numpy, order="C", copy=False)
        except ConfigError as error:
            raise error.add(array=name) from None
    return plain


def encode(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The content of a safetensors file; equal arrays give equal bytes. Raises ConfigError."""
    return bytes(safetensors.numpy.save(plain_arrays(arrays)))


def decode(content: bytes, path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, those of BFloat16 as Float32; `path` is for errors. Raises DataError."""
    try:
        arrays = {name: _array(**part) for name, part in safetensors.deserialize(content)}  # type: ignore[no-untyped-call]
        for array in arrays.values():
            dt.of(array.dtype)
    except (safetensors.SafetensorError, ValueError, KeyError) as reason:
        raise DataError("not a safetensors file", file=path, found=reason) from None
    return arrays


def _array(dtype: str, shape: list[int], data: bytes) -> np.ndarray:
    """One array of a file. Raises KeyError for an unknown type."""
    if dtype == "BF16":  # the upper halves of Float32
        halves = np.frombuffer(data, "<u2").astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, TYPES[dtype]).reshape(shape)


# Checkpoints: save, load, the newest valid one, and which are deleted.

STATE, CALLBACKS = "state.safetensors", "callbacks.safetensors"
NO_ARRAYS: Mapping[str, np.ndarray] = {}


class SavedCheckpoint(Frozen):
    """A checkpoint: arrays by name, the progress of the run, and the values that a resumed run must share with it.

    `callbacks` are the arrays of callbacks; `progress` says whose they are.
    """

    folder: Path
    arrays: dict[str, np.ndarray]
    progress: dict[str, Any]
    identity: dict[str, Any]
    callbacks: dict[str, np.ndarray]


def save(
    folder: Path,
    arrays: Mapping[str, np.ndarray],
    progress: Mapping[str, Any],
    identity: Mapping[str, Any],
    callbacks: Mapping[str, np.ndarray] = NO_ARRAYS,
) -> Path:
    """Write a checkpoint under the name `folder`; equal arguments give equal bytes.

    `progress` and `identity` are JSON; `progress["global_step"]` (0 when absent) orders checkpoints by age. An existing
    checkpoint of this name is replaced. Raises ConfigError for arrays that cannot be saved and for a directory with
    other files, StorageError when writing fails.
    """
    foreign = sorted(set(files.names(folder)) - {STATE, CALLBACKS, MANIFEST})
    if foreign:
        raise ConfigError("cannot replace a directory that is not a checkpoint", directory=folder, has=some(foreign, 5))
    contents = {STATE: encode(arrays)} | ({CALLBACKS: encode(callbacks)} if callbacks else {})
    parts = {name: CheckpointFile.of(content) for name, content in contents.items()}
    text = text_of(parts, progress, identity)
    files.make_directory(folder.parent)
    write_folder(folder, {**contents, MANIFEST: text})
    return folder


def load(path: Path | str) -> SavedCheckpoint:
    """Read and verify a checkpoint.

    Raises DataError with file, expected, found and repair when it is damaged, StorageError when reading fails.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise DataError("there is no such checkpoint", file=folder)
    found = read(folder)
    try:
        arrays = {name: decode(content, folder / name) for name, content in _contents(folder, found).items()}
    except DataError as error:
        raise error.add(repair=REPAIR) from None
    return SavedCheckpoint(folder, arrays[STATE], found.progress, found.identity, arrays.get(CALLBACKS, {}))


def state_file(checkpoint: Path) -> Path:
    """The file with the arrays of a checkpoint, which is a folder or such a file itself."""
    return checkpoint / STATE if checkpoint.is_dir() else checkpoint


def newest(
    folder: Path, prefix: str, check: Callable[[SavedCheckpoint], object] = lambda found: None
) -> tuple[SavedCheckpoint | None, list[str]]:
    """The valid checkpoint of the highest global step, and a line about each newer damaged one.

    None when there is no valid one; the lines are then about all of them. `check` raises DataError for one that the
    caller cannot use. Raises StorageError when the folder cannot be listed.
    """
    lines = []
    readable, broken = _candidates(folder, prefix)
    for candidate in readable:
        try:
            check(found := load(candidate.path))
        except (DataError, StorageError) as error:
            lines.append(_line(candidate.path, error))
        else:
            return found, [*lines, *(other.line for other in broken if other.order > candidate.order)]
    return None, [*lines, *(other.line for other in broken)]


def prune(folder: Path, prefix: str, keep_max: int, last: int = sys.maxsize) -> list[Path]:
    """Delete the oldest checkpoints beyond `keep_max`, and return their paths; the newest valid one is always kept.

    Those without a readable manifest are deleted first, and those of steps after `last`, which a resumed run that could
    not use them makes again. Raises ConfigError for an invalid `keep_max`, or StorageError.
    """
    whole({}, 1, keep_max=keep_max)
    found, broken = _candidates(folder, prefix)
    later = [one for one in found if one.age[0] > last]
    readable = found[len(later) :]
    beyond = [*readable, *broken][keep_max:]
    valid = next((one for one in readable if _is_valid(one)), None) if beyond else None
    removed = [one.path for one in (*later, *reversed(beyond)) if one is not valid]
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
            found.append(_Candidate(path, order, read(path)))
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


def _contents(folder: Path, known: Manifest) -> dict[str, bytes]:
    """The verified bytes of the files with arrays. Raises DataError."""
    expected, found = {STATE, MANIFEST} | ({CALLBACKS} & set(known.files)), set(files.names(folder))
    if found != expected or {*known.files, MANIFEST} != expected:
        rows = {"file": folder, "expected": some(sorted(expected), 5), "found": some(sorted(found), 5)}
        raise DataError("a checkpoint has missing or surplus files", **rows)
    return {name: _content(folder / name, part) for name, part in known.files.items()}


def _content(path: Path, part: CheckpointFile) -> bytes:
    """The verified bytes of a file. Raises DataError."""
    content = files.read_bytes(path, part.size)
    if len(content) != part.size:
        damaged(path, f"{part.size} bytes", f"{len(content)} bytes")
    if (now := CheckpointFile.of(content)) != part:
        damaged(path, f"sha256 {part.sha256}", f"sha256 {now.sha256}")
    return content


def _line(path: Path, error: DataError | StorageError) -> str:
    """One line about a checkpoint that cannot be used."""
    file = Path(error.rows.get("file", error.rows.get("path", path))).name
    rows = (f"{label} {error.rows[label]}" for label in ("expected", "found", "reason") if label in error.rows)
    return f"{path.name}: {'; '.join([f'{error.what} ({file})', *rows])}".replace("\n", " ")
