"""The project in the current directory: the table [tool.runner] of its `pyproject.toml`, or its `runner.toml`.

    [tool.runner]
    code = ["orchard"]       # modules, or paths of files and packages, that register networks, datasets and others
    conf = "conf"            # a folder with configs, searched before the built-in one
    outputs = "outputs"      # where runs go that have no `hydra.run.dir`
    writable = ["/data"]     # folders outside of the working directory that config files may write to

Only the current directory counts, not the folders above it: running `runner` in a directory trusts its project file.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, known_names
from runner.host import json
from runner.validation.paths import path_problem
from runner.validation.rules import Frozen, show

FILES = ("pyproject.toml", "runner.toml")
FILE = FILES[0]
TABLE = "tool.runner"
VARIABLE = "RUNNER_WRITABLE"
OUTPUTS, SWEEPS = "outputs", "multirun"  # where runs and sweeps go by default
KEYS = ("code", "conf", "outputs", "writable")


class Project(Frozen):
    """The settings of a project; paths are relative to its folder. `file` None: there is no project."""

    file: Path | None = None
    code: tuple[str, ...] = ()
    conf: str | None = None
    outputs: str | None = None
    writable: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the project file; the current directory without one."""
        return Path.cwd() if self.file is None else self.file.parent

    @property
    def conf_folder(self) -> Path | None:
        """The folder with configs. Raises ConfigError when it does not exist."""
        if self.conf is None:
            return None
        folder = self.folder / self.conf
        if not folder.is_dir():
            raise _error("conf", self.conf, "a folder that does not exist", f"mkdir {folder}", self.file)
        return folder


def project() -> Project:
    """The project of the current directory. Raises ConfigError for an invalid file."""
    folder = Path.cwd()
    found = [(file, table) for file in FILES if (table := _table(folder / file)) is not None]
    if not found:
        return Project()
    if len(found) > 1:
        raise ConfigError("two project files", value=" and ".join(FILES), folder=folder, hint="keep one of them")
    file, table = found[0]
    for name in table:
        if name not in KEYS:
            raise ConfigError("unknown key", key=f"{TABLE}.{name}", **known_names(name, KEYS)).add(
                **{"from": folder / file}
            )
    values: dict[str, Any] = {}
    for name, value in table.items():
        values[name] = (_list if name in ("code", "writable") else _text)(name, value, folder / file)
    return Project(folder / file, **values)


def writable() -> list[Path]:
    """The folders that the user allows config files to write to. Raises ConfigError for an invalid list.

    Those of `RUNNER_WRITABLE` are relative to the working directory, those of the project file to its folder.
    """
    names = os.environ.get(VARIABLE, "").split(os.pathsep)
    here = project()
    given = [Path(name).expanduser().absolute() for name in names if name]
    return given + [here.folder / Path(root).expanduser() for root in here.writable]


def _table(file: Path) -> Mapping[str, Any] | None:
    """The table of a project file; None when there is no file, or no table in `pyproject.toml`."""
    if not os.path.lexists(file):
        return None
    import tomllib  # late: most runs have no project file

    try:
        text = json.text(json.content(file))
        if file.name == FILE and not all(name in text for name in TABLE.split(".")):
            return None  # of another tool, and none of runner's business
        values: Any = tomllib.loads(text)
        for name in TABLE.split(".") if file.name == FILE else ():
            values = values.get(name, {})
            if not isinstance(values, dict):
                raise ConfigError("not a table", key=name)
    except (tomllib.TOMLDecodeError, RecursionError) as reason:
        raise ConfigError("not TOML", reason=reason, **{"from": file}) from None
    except ConfigError as error:
        raise error.add(**{"from": file}) from None
    return dict(values)


def _text(name: str, value: object, file: Path) -> str:
    if not isinstance(value, str) or not value or path_problem(value):
        raise _error(name, value, "not a folder", f'such as {name} = "{name}"', file)
    return value


def _list(name: str, value: object, file: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one and not path_problem(one) for one in value):
        what, example = ("not a list of folders", "/data/runs") if name == "writable" else ("not a list", "orchard")
        raise _error(name, value, what, f'such as ["{example}"]', file)
    return tuple(value)


def _error(name: str, value: object, what: str, allowed: str, file: Path | None) -> ConfigError:
    return ConfigError(what, key=f"{TABLE}.{name}", value=show(value), allowed=allowed, **{"from": file})
