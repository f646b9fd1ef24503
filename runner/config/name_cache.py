"""The names and keys of the user's code, as the last run in a directory found them, for shell completion.

Completion never loads the user's code: a key press must not execute it.
"""

from pathlib import Path
from typing import Any

from runner import register
from runner.config.project import OUTPUTS, project
from runner.host import json
from runner.host.files import make_directory, write_json
from runner.register import NAME, Entry, Key, Kind

FILE = ".registered_names.json"


class CachedEntry(Entry):
    """An entry of which only the name, and the names and defaults of the keys, are known."""

    def __init__(self, kind: Kind, name: str, defaults: dict[str, Any]) -> None:
        super().__init__(kind, name, dict)
        self.__dict__["keys"] = {key: Key(object, default=default) for key, default in defaults.items()}

    def check(self) -> None:
        """Nothing: its parameters are not known, and were checked when the code was loaded."""


def write() -> None:
    """Write the names that the user's code has registered, if there is a project. Raises StorageError."""
    here = project()
    if here.file is None:
        return
    found: dict[str, dict[str, Any]] = {}
    for entry in register.registered():
        if not entry.is_own:
            defaults = {name: key.default for name, key in entry.keys.items()}
            found.setdefault(entry.kind.name, {})[entry.name] = defaults
    path = _path(here.outputs)
    if json.read_optional(path) != found:
        make_directory(path.parent)
        write_json(path, found)


def declare() -> None:
    """Declare the names of the cache in the registry; a damaged cache has none. Raises ConfigError."""
    for kind, entries in json.read_optional(_path(project().outputs)).items():
        for name, defaults in entries.items() if kind in register.KINDS and isinstance(entries, dict) else ():
            if NAME.fullmatch(name) and isinstance(defaults, dict):
                register.KINDS[kind].add(CachedEntry(register.KINDS[kind], name, defaults))


def _path(outputs: str | None) -> Path:
    return Path(outputs or OUTPUTS, FILE)
