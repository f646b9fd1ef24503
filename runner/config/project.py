"""The table [tool.runner] of the user's `pyproject.toml`, and the variable that adds to it.

Only `writable` so far: folders outside of the working directory that config files may write to.
"""

import os
from pathlib import Path
from typing import Any

from runner.errors import ConfigError
from runner.host import json_file
from runner.validation.validate import show

FILE = "pyproject.toml"
KEY = "tool.runner.writable"
VARIABLE = "RUNNER_WRITABLE"


def writable() -> list[Path]:
    """The folders that the user allows config files to write to. Raises ConfigError for an invalid list.

    Those of `RUNNER_WRITABLE` are relative to the working directory, those of the project file to its folder.
    """
    names = os.environ.get(VARIABLE, "").split(os.pathsep)
    return [Path(name).expanduser().absolute() for name in names if name] + _of_project()


def _of_project() -> list[Path]:
    file = _nearest()
    if file is None:
        return []
    try:
        roots = _table(file).get("writable", [])
        if not isinstance(roots, list) or not all(
            isinstance(root, str) and root and "\0" not in root for root in roots
        ):
            raise ConfigError("not a list of folders", key=KEY, value=show(roots), allowed='such as ["/data/runs"]')
    except ConfigError as error:
        raise error.add(**{"from": file}) from None
    return [file.parent / Path(root).expanduser() for root in roots]


def _nearest() -> Path | None:
    """The project file of the working directory or of the closest folder above it that has one."""
    here = Path.cwd()
    return next((folder / FILE for folder in (here, *here.parents) if os.path.lexists(folder / FILE)), None)


def _table(file: Path) -> dict[str, Any]:
    import tomllib  # late: only a path outside of the working directory needs it

    try:
        values: Any = tomllib.loads(json_file.text(json_file.content(file)))
    except (tomllib.TOMLDecodeError, RecursionError) as reason:
        raise ConfigError("not TOML", reason=reason) from None
    for name in ("tool", "runner"):
        values = values.get(name, {})
        if not isinstance(values, dict):
            raise ConfigError("not a table", key=name)
    return dict(values)
