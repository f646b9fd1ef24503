"""Where the folders that travel with runner are."""

from pathlib import Path

from runner.errors import StorageError


def folder(name: str) -> Path:
    """The folder `conf` or `models`: inside an installed package, or beside `runner/` in a checkout.

    Raises StorageError when it is in neither place.
    """
    package = Path(__file__).resolve().parents[1]
    for place in (package / name, package.parent / name):
        if place.is_dir():
            return place
    raise StorageError("a folder of runner is missing", folder=name, looked_in=f"{package} and {package.parent}")
