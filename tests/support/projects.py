"""Projects of users in the process of a test: made by `runner new`, and unloaded after the test."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.config import code
from runner.config.new_project import create
from runner.register import KINDS


@contextmanager
def project(folder: Path, name: str) -> Iterator[Path]:
    """A new project as the working directory; its modules are forgotten at the end."""
    create(folder, name)
    path = list(sys.path)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            yield folder
    finally:
        sys.path[:] = path
        forget(name)


def forget(name: str) -> None:
    """Unload the modules of a project and what they have registered, so that its code is read again."""
    code._LOADED.clear()
    for kind in KINDS.values():
        for entry in [entry.name for entry in kind.loaded() if not entry.is_own]:
            kind.discard(entry)
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]
