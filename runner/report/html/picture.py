"""Pictures of graphs. They become images and not elements: what stands in a file of a run cannot act in the page."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path

from runner.errors import DataError, StorageError
from runner.host import files
from runner.report.html.markup import Markup, tag

MOST_BYTES = 90_000  # of one picture, as it is in the page
MOST_IN_ALL = 130_000
_WANTED = ("_parse_", "_lower_", "_grad_")  # the network first: it is the smallest, and what users think of


def pictures(folder: Path) -> Iterator[tuple[str, Markup]]:
    """Name and image of the pictures in a folder that fit into the page."""
    left = MOST_IN_ALL
    for path in _chosen(folder):
        try:
            content = _slim(files.read_bytes(path, 4 * MOST_BYTES))
        except (DataError, StorageError):
            continue
        coded = base64.b64encode(content).decode()
        if b"<svg" in content[:2000] and len(coded) <= min(left, MOST_BYTES):
            left -= len(coded)
            yield path.name, tag("img", src=f"data:image/svg+xml;base64,{coded}", alt=f"graph {path.stem}")


def _chosen(folder: Path) -> list[Path]:
    """One of each stage that is wanted; of several programs the first, which is the training step."""
    found = sorted(folder.glob("*.svg"), key=lambda path: (path.stem.rpartition("_")[2], path.name))
    firsts = (next((path for path in found if word in path.name), None) for word in _WANTED)
    return [path for path in firsts if path is not None]


def _slim(content: bytes) -> bytes:
    """Without comments, titles (which nobody sees in an image) and space between elements."""
    content = re.sub(rb"<!--.*?-->|<title>.*?</title>", b"", content, flags=re.DOTALL)
    content = re.sub(rb"<!DOCTYPE[^>]*>", b"", content)
    return re.sub(rb">\s+<", b"><", content)
