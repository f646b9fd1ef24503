"""The destination of prints: the screen, or a file while `print_file_path` is set."""

from collections.abc import Sequence
from pathlib import Path

from runner.ops.print.file import PrintFile
from runner.ops.print.screen import Part, text

_files: dict[str, PrintFile] = {}  # all files of this process, so that it can continue them
_current = [""]  # the path of the current file, or "" for the screen


def write(parts: Sequence[Part]) -> None:
    """Print strings and tensors, each on its own line. Raises StorageError when a file cannot be written."""
    if _current[0]:
        _files[_current[0]].append(parts)
    elif parts:
        print(text(parts), flush=True)  # noqa: T201  the operator's purpose


def is_unused() -> bool:
    """Whether a file is selected, and no operator has printed to it."""
    return bool(_current[0]) and _files[_current[0]].is_empty


def print_to(path: str) -> None:
    """Print to a file from now on, or to the screen when the path is empty.

    The previous file is closed, and continued when it is selected again.
    """
    if path == _current[0]:
        return
    if _current[0]:
        _files[_current[0]].close()
    if path:
        _files.setdefault(path, PrintFile(Path(path)))
    _current[0] = path
