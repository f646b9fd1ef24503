"""The progress that a checkpoint of a run records: its fields, and that neither they nor the journal contradict it.

A correct hash proves only that a manifest is the one that was written last. So a resumed run checks every field, and
compares the last step with the row of that step: the journal has to begin with the bytes of which the checkpoint has
the hash. What follows them is the work of a killed process, and is cut.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from runner.errors import DataError
from runner.host.files import open_regular
from runner.host.json import fits, parse_data
from runner.train.checkpoint.state import MANIFEST, SavedCheckpoint

CALLBACKS, ENDED, LOSSES = "callbacks", "has_ended", "losses"  # names in the progress of a checkpoint, of its arrays
PRINTS = "prints"  # the position of the print file
BYTES, SHA256 = "journal_bytes", "journal_sha256"  # of the journal when the checkpoint was saved
STEP = b'{"event": "step"'  # the beginning of a row
MAX_LINE = 4 << 20  # bytes


def _is_count(value: object) -> bool:
    return fits(value, int) and 0 < value < 1 << 62


def _is_digest(value: object) -> bool:
    return fits(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _is_position(value: Any) -> bool:
    is_one = fits(value, {"file": str, "bytes": int, "sha256": str}) and len(value) == 3
    return is_one and _is_digest(value["sha256"]) and 0 <= value["bytes"] < 1 << 62


def _number_in(text: object) -> float | None:
    """The finite number in a text; None if it has none."""
    try:
        value = parse_data(text.encode()) if fits(text, str) else None
    except DataError:
        return None
    return float(value) if fits(value, float) else None


FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("global_step", "epoch", "step", BYTES), (_is_count, "a whole number of at least 1")),
    SHA256: (_is_digest, "64 hexadecimal digits, which earlier versions of runner did not write"),
    "loss": (lambda value: _number_in(value) is not None, "a finite number as text"),
    "providers": (lambda value: fits(value, [str]) and all(value) and value != [], "a list of names"),
    CALLBACKS: (lambda value: fits(value, dict), "a group of states, or none"),
    ENDED: (lambda value: value is True, "true, or none"),
    PRINTS: (_is_position, "name, bytes and sha256 of the print file, or none"),
}


def check_progress(found: SavedCheckpoint, journal: Path) -> None:
    """Raise DataError unless the progress of a checkpoint is complete and fits the journal; StorageError."""
    progress, file = found.progress, found.folder / MANIFEST
    for name in {**FIELDS, **progress}:
        is_valid, expected = FIELDS.get(name, (lambda _: False, "not there: no such name"))
        if (name in progress or name not in (CALLBACKS, ENDED, PRINTS)) and not is_valid(progress.get(name)):
            _refuse("the progress of the checkpoint is not valid", file, name, expected, progress.get(name))
    last = _last_step(progress, journal)
    for name, value in {**progress, "loss": _number_in(progress["loss"])}.items():
        if name in ("global_step", "epoch", "step", "loss") and last.get(name) != value:
            _refuse("the progress of the checkpoint contradicts the journal", file, name, last.get(name), value)
    _check_losses(found, file)


def _last_step(progress: Mapping[str, Any], journal: Path) -> dict[str, Any]:
    """The row of the last step before a checkpoint. Raises DataError when the journal is not that of the checkpoint."""
    digest, left, last = hashlib.sha256(), progress[BYTES], b"{}"
    with open_regular(journal, 1 << 62) as file:
        while line := file.readline(min(left, MAX_LINE)):
            digest.update(line)
            left -= len(line)
            last = line if line.startswith(STEP) else last
    if left:
        short = progress[BYTES] - left
        _refuse("the journal is shorter than the checkpoint says", journal, BYTES, progress[BYTES], short)
    if digest.hexdigest() != progress[SHA256]:
        what = "the journal has changed since the checkpoint was saved"
        _refuse(what, journal, SHA256, progress[SHA256], digest.hexdigest())
    row = parse_data(last)
    return row if isinstance(row, dict) else {}


def _check_losses(found: SavedCheckpoint, file: Path) -> None:
    """Raise DataError unless the losses of an unfinished sink can be those of steps of this epoch."""
    losses = found.callbacks.get(LOSSES)
    if losses is None:
        return
    most = found.progress["step"]
    is_valid = losses.dtype.kind == "f" and 0 < losses.size == len(losses) <= most and np.isfinite(losses).all()
    if not is_valid or float(str(losses.flat[-1])) != _number_in(found.progress["loss"]):
        expected = f"1 to {most} finite numbers, the last one {found.progress['loss']}"
        _refuse("the losses of the checkpoint contradict its progress", file, LOSSES, expected, losses)


def _refuse(what: str, file: Path, name: str, expected: object, value: object) -> NoReturn:
    raise DataError(what, file=file, expected=f"{name} {expected}", found=repr(value)[:100])
