"""What keeps the start short: libraries that are loaded when they are first used, and no collections meanwhile."""

import gc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

# What serves operators outside of any network. It is loaded at the first of them, by floors that may not know it.
PYNATIVE = "runner.core.eager"


K = TypeVar("K")
V = TypeVar("V")


class Filled(dict[K, V]):
    """A table that a module of a higher floor fills; that module is loaded when something is first missing."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self._module = module

    def __missing__(self, key: K) -> V:
        importlib.import_module(self._module)
        if key not in self:
            raise KeyError(key)
        return self[key]


def lazy_import(name: str) -> ModuleType:
    """A module whose code runs when one of its attributes is first asked for.

    Raises ModuleNotFoundError at once when it is not installed.
    """
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:  # as an import does
        setattr(sys.modules[parent], child, module)
    spec.loader.exec_module(module)
    return module


def late_names(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package (PEP 562): a module is loaded when one of its names is first asked for.

    `places` has the names of each module, with spaces between them. The modules themselves are attributes too. Raises
    AttributeError, as a package does, for other names.
    """
    homes = {name: module for module, names in places.items() for name in names.split()}

    def load(name: str) -> Any:
        if name in homes:
            made = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
            setattr(sys.modules[package], name, made)  # nobody asks here twice
            return made
        if name in places:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *places})

    return load, names


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection while modules are loaded, a config is composed, or files of many small parts are made.

    They leave little to collect, and looking for it takes 40 ms of a start.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
