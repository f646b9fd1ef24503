"""The program as files: text (`.ir`), pictures (`.dot`) and the reference's protobuf (`.pb`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runner.host.lazy import lazy_import

if TYPE_CHECKING:
    from runner.observe.graph.listing import Listing

_reader = lazy_import("runner.observe.graph.reader")  # runs only write


def read(path: str | Path) -> Listing:
    """The listing in a `.ir` file. Raises DataError with the line when it is damaged or something else."""
    listing: Listing = _reader.read(path)
    return listing
