"""What belongs to the whole process and a test may change: registries, settings and caches in `runner`'s modules."""

import importlib
import pkgutil
import sys
from collections import deque
from typing import Any

import runner


class ModuleState:
    """The members of every dict, list, set and deque that a module of `runner` holds.

    All modules are loaded first: what a module registers when it is loaded is no leak of the test that loads it.
    """

    def __init__(self) -> None:
        for module in pkgutil.walk_packages(runner.__path__, "runner."):
            importlib.import_module(module.name)
        modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "runner"]
        named = [(n, v) for module in modules for n, v in vars(module).items() if type(v) in (dict, list, set, deque)]
        found = {id(value): value for name, value in named if not name.startswith("__")}
        self._kept = [(value, type(value)(value)) for value in found.values()]

    def restore(self) -> None:
        """Give every container, in place, the members that it had at first."""
        for container, members in self._kept:
            if _identities(container) != _identities(members):
                container.clear()
                getattr(container, "update" if isinstance(container, dict | set) else "extend")(members)


def _identities(container: Any) -> list[int]:
    """Members may be equal and yet others, and arrays do not compare."""
    if isinstance(container, set):
        return sorted(map(id, container))
    values = [*container.values()] if isinstance(container, dict) else []
    return [id(member) for member in (*container, *values)]
