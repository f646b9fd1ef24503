"""The user's code of a run: copies in its folder, and hashes by which a resumed run notices a change."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from runner.errors import ConfigError
from runner.host.files import make_directory, read_bytes, write_atomically
from runner.train.checkpoint.folder import sweep_temporaries

FOLDER = "code"  # in the run directory
MAX_BYTES = 16 << 20  # of one file


def hashes(files: Mapping[str, Path]) -> dict[str, str]:
    """sha256 (hex) of each file."""
    return {name: hashlib.sha256(_content(path)).hexdigest() for name, path in files.items()}


def write_copies(folder: Path, files: Mapping[str, Path]) -> None:
    """Copy files into `code/` of a run directory, and remove what a killed process left there. Raises StorageError."""
    copies = {folder / FOLDER / name: path for name, path in files.items()}
    for place in {copy.parent: None for copy in copies}:
        sweep_temporaries(make_directory(place))
    for copy, path in copies.items():
        write_atomically(copy, _content(path))


def _content(path: Path) -> bytes:
    content = read_bytes(path, MAX_BYTES)
    if content is None:
        raise ConfigError("a file with code has disappeared", path=path)
    return content
