"""Pictures of graphs, embedded as images and not as elements, so that files of a run cannot run scripts in the page."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path

from runner.errors import DataError, StorageError
from runner.host import files
from runner.report.html.markup import Markup, tag

MAX_BYTES = 90_000  # of one picture, in base64
MAX_TOTAL_BYTES = 130_000
_STAGES = ("_parse_", "_lower_", "_grad_")  # the network first: it is the smallest and the one that users know


def pictures(folder: Path) -> Iterator[tuple[str, Markup]]:
    """File name and image of the pictures in a folder that fit into the page."""
    remaining = MAX_TOTAL_BYTES
    for path in _select(folder):
        try:
            content = _minify(files.read_bytes(path, 4 * MAX_BYTES))
        except (DataError, StorageError):
            continue
        encoded = base64.b64encode(content).decode()
        if b"<svg" in content[:2000] and len(encoded) <= min(remaining, MAX_BYTES):
            remaining -= len(encoded)
            yield path.name, tag("img", src=f"data:image/svg+xml;base64,{encoded}", alt=f"graph {path.stem}")


def _select(folder: Path) -> list[Path]:
    """One picture of each stage in _STAGES; with several programs that of the first, which is the training step."""
    found = sorted(folder.glob("*.svg"), key=lambda path: (path.stem.rpartition("_")[2], path.name))
    firsts = (next((path for path in found if stage in path.name), None) for stage in _STAGES)
    return [path for path in firsts if path is not None]


def _minify(content: bytes) -> bytes:
    """Remove comments, titles (tooltips do not work in an image) and space between elements."""
    content = re.sub(rb"<!--.*?-->|<title>.*?</title>", b"", content, flags=re.DOTALL)
    content = re.sub(rb"<!DOCTYPE[^>]*>", b"", content)
    return re.sub(rb">\s+<", b"><", content)
