"""Fast starts: packages whose names load at first use, libraries that load late, and a pause of garbage collection."""

import gc
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_IMPORT = re.compile(r"^from (\S+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
_NAME = re.compile(r"\w+ as (\w+)")


def lazy_import(name: str) -> ModuleType:
    """A library that is executed when one of its attributes is first used. For modules of runner, see `late_names`.

    Raises ModuleNotFoundError immediately if it is not installed.
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


def late_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package (PEP 562) whose public names its stub declares.

    `file` is the package's `__init__.py`. The stub next to it, `__init__.pyi`, is the one list of public names, for
    type checkers and for this function: `from runner.core.values import Tensor as Tensor`. A module is loaded when one
    of its names is first used; modules of the package are attributes, too. Raises AttributeError for other names.
    """
    homes = _homes(file)
    names = sorted(homes)

    def load(name: str) -> Any:
        if name not in homes:
            return reference_attribute(package, name)
        home = homes[name]
        found = importlib.import_module(home)
        if home == package or not hasattr(found, name):  # a module of a package
            return importlib.import_module(f"{home}.{name}")
        value = getattr(found, name)
        setattr(sys.modules[package], name, value)  # later uses do not call this function
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return load, listing, names


def late_function(place: str) -> Callable[..., Any]:
    """The function `module:name`, whose module is loaded when it is called. The table of commands consists of such."""
    module, _, name = place.partition(":")

    def call(*args: Any, **keywords: Any) -> Any:
        with loading():
            found = getattr(importlib.import_module(module), name)
        return found(*args, **keywords)

    return call


class ReferencePaths:
    """A finder of the module paths of MindSpore r1.2 that are no files, whose table loads when one is imported.

    `table` is the name of the module that has them: `find_spec(name)` and `attribute(module, name)`.
    """

    def __init__(self, package: str, table: str) -> None:
        self.package, self.table = package, table

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The module at this path, if the table has it."""
        if not fullname.startswith(f"{self.package}.") or fullname == self.table:
            return None
        found: ModuleSpec | None = importlib.import_module(self.table).find_spec(fullname)
        return found

    def install(self) -> None:
        """Append this finder, which also serves attributes that modules do not have."""
        sys.meta_path[:] = [*(one for one in sys.meta_path if not isinstance(one, ReferencePaths)), self]


def reference_attribute(module: str, name: str) -> Any:
    """The attribute of a module for a name that it does not have: `__getattr__` of modules that MindSpore has too.

    A module of the package comes first: `from runner.train import export` is the file, not the function of that name.
    Raises MissingName for a public name of MindSpore, and AttributeError for any other.
    """
    if PathFinder.find_spec(f"{module}.{name}", vars(sys.modules[module]).get("__path__", [])) is not None:
        return importlib.import_module(f"{module}.{name}")
    table = next((one.table for one in sys.meta_path if isinstance(one, ReferencePaths)), None)
    if table is None or name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
    return importlib.import_module(table).attribute(module, name)


def _homes(file: str) -> dict[str, str]:
    """The module of each public name that the stub of a package declares."""
    with open(f"{file}i", encoding="utf-8") as stub:
        declared = _IMPORT.findall(stub.read())
    return {name: module for module, inside, line in declared for name in _NAME.findall(inside or line)}


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection while modules are loaded, a config is composed, or many small objects are written.

    Little of it is garbage, and collections take 40 ms of a start.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def loading() -> Iterator[None]:
    """Disable garbage collection during imports, and exclude the imported objects from later collections.

    When nothing is imported any more, as in later calls in one process, what exists stays collectable.
    """
    before = len(sys.modules)
    with gc_paused():
        yield
        if len(sys.modules) > before:
            gc.freeze()
