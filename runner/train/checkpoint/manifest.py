"""`MANIFEST.json`: the files of a checkpoint, the progress of its run, and a sha256 of these values.

The hash is over the values, so it is independent of the layout and detects a flipped bit in a number of steps.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from runner.errors import ConfigError, DataError
from runner.host import files, json as json_data
from runner.validation.rules import Frozen

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
        return json_data.parse_data(content)
    except DataError as error:
        raise DataError("a manifest is not JSON", file=path, found=error.rows["reason"]) from None


def damaged(path: Path, expected: object, found: object) -> NoReturn:
    """Raise DataError for a changed file of a checkpoint."""
    raise DataError("a file of the checkpoint is damaged", file=path, expected=expected, found=found, repair=REPAIR)


def _checked(values: dict[str, Any], path: Path) -> Manifest:
    """The manifest from valid values: a correct hash proves only that they were not changed."""
    try:
        parts = {name: CheckpointFile(part["bytes"], part["sha256"]) for name, part in values["files"].items()}
        manifest = Manifest(parts, values["progress"], values["identity"])
        counts = [*(part.size for part in parts.values()), manifest.progress.get("global_step", 0)]
        is_valid = isinstance(manifest.identity, dict) and all(map(_is_count, counts))
    except (KeyError, TypeError, AttributeError):
        is_valid = False
    if not is_valid:
        raise DataError("a manifest lacks required values", file=path, repair=REPAIR)
    return manifest


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
