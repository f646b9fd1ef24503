"""Locations of the folders that are distributed with runner."""

from pathlib import Path

from runner.errors import StorageError


def folder(name: str) -> Path:
    """The folder `conf` or `models`: inside an installed package, or beside `runner/` in a checkout.

    Raises StorageError when it is in neither location.
    """
    package = Path(__file__).resolve().parents[1]
    for path in (package / name, package.parent / name):
        if path.is_dir():
            return path
    raise StorageError("a folder of runner is missing", folder=name, looked_in=f"{package} and {package.parent}")
