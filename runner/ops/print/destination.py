"""Where prints go: to the screen, or to a file while `print_file_path` is set."""

from collections.abc import Sequence
from pathlib import Path

from runner.ops.print.file import PrintFile
from runner.ops.print.screen import Part, text

_files: dict[str, PrintFile] = {}  # all that this process has printed to, so that it can go on with them
_chosen = [""]  # the path of the one in use, or nothing for the screen


def write(parts: Sequence[Part]) -> None:
    """Print strings and tensors, each on a line of its own. Raises StorageError when a file cannot take them."""
    if _chosen[0]:
        _files[_chosen[0]].append(parts)
    elif parts:
        print(text(parts), flush=True)  # noqa: T201  the operator's purpose


def print_to(path: str) -> None:
    """Let all that follows go to a file, or to the screen when the path is empty.

    The file that was used before is closed, and continued when it is chosen again.
    """
    if path == _chosen[0]:
        return
    if _chosen[0]:
        _files[_chosen[0]].close()
    if path:
        _files.setdefault(path, PrintFile(Path(path)))
    _chosen[0] = path
