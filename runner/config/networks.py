"""Networks by name: exactly the classes listed in `models/__init__.py`, loaded from their files.

A config never names a module or a path, so it cannot cause other imports.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from runner.errors import ConfigError, InternalError, nearest
from runner.host import resources


def names() -> tuple[str, ...]:
    """The names that `network.name` may have."""
    return tuple(_table())


def network(name: str) -> type[Any]:
    """The class of a network.

    Raises ConfigError for an unknown name.
    """
    table = _table()
    if name not in table:
        raise ConfigError(
            "unknown network", key="network.name", value=name, allowed=", ".join(table), nearest=nearest(name, table)
        )
    file, kind = table[name]
    return cast(type[Any], getattr(importlib.import_module(f"{_package().__name__}.{file}"), kind))


def parameters(name: str) -> Mapping[str, inspect.Parameter]:
    """The keyword arguments of a network's constructor, with their annotations evaluated."""
    return inspect.signature(network(name), eval_str=True).parameters


def _table() -> dict[str, tuple[str, str]]:
    table: dict[str, tuple[str, str]] = _package().NETWORKS
    return table


def _package() -> ModuleType:
    """The package `models`; under another name if the user's program has a package of that name."""
    folder = resources.folder("models")
    for name in ("models", "runner_models"):
        existing = sys.modules.get(name)
        if existing is None:
            return _load(name, folder)
        if getattr(existing, "__file__", None) == str(folder / "__init__.py"):
            return existing
    raise InternalError("the module names of the networks are taken", names="models, runner_models")


def _load(name: str, folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise InternalError("the table of networks cannot be loaded", folder=folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
