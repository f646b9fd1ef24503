"""Where graphs are saved: the names of the files, and the checks of the folder in `save_graphs_path`."""

import os
from pathlib import Path

from runner.errors import ConfigError, StorageError
from runner.host.files import make_directory

FAILED = "analyze_fail.ir"
FILES = (  # patterns of what is written
    *(f"[0-9][0-9]_*_[0-9][0-9][0-9][0-9].{suffix}" for suffix in ("ir", "dot", "svg")),
    *("trace_code_graph_*.ir", "ms_output_trace_code_graph_*.pb", "execution_order/ms_execution_order_graph_*.csv"),
    FAILED,
)


def check_folder(folder: Path) -> None:
    """Raise ConfigError if a folder cannot be created because it, or one above it, is a file."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise ConfigError("save_graphs_path is a file", value=folder, file=place, allowed="a folder")


def writable_folder(folder: Path) -> Path:
    """A writable folder, created if necessary. Raises ConfigError for a file and StorageError."""
    check_folder(folder)
    make_directory(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError("save_graphs_path is not writable", path=folder)
    return folder
