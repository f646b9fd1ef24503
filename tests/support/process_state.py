"""What belongs to the whole process and a test may change: registries, settings and caches in `runner`'s modules, the
environment, and the random generators of test files.
"""

import importlib
import os
import pkgutil
import sys
from collections import deque
from operator import is_
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np

import models as models  # first: runner has its networks from this package then, and their classes are those of tests
import runner
from runner import register, types
from runner.core import current

INTERNED = (types._INSTANCES,)  # one object for each value, compared by identity: tests hold some of them


CONTAINERS = dict, list, set, deque, WeakSet, WeakKeyDictionary, WeakValueDictionary


class ModuleState:
    """The members of every container that a module of `runner` holds.

    All modules are loaded first: what a module registers when it is loaded is no leak of the test that loads it.
    The networks, datasets and other kinds by name are containers as well.
    """

    def __init__(self) -> None:
        for module in pkgutil.walk_packages(runner.__path__, "runner."):
            importlib.import_module(module.name)
        modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "runner"]
        named = [(n, v) for module in modules for n, v in vars(module).items() if type(v) in CONTAINERS]
        found = {id(value): value for name, value in named if not name.startswith("__")}
        found |= {id(x.of_process): x.of_process for x in current.PIECES if type(x.of_process) in CONTAINERS}
        for table in INTERNED:
            found.pop(id(table))
        for kind in register.KINDS.values():
            list(kind.values())  # loads the late ones
            found[id(kind._entries)] = kind._entries
        self._kept = [(value, type(value)(value)) for value in found.values()]
        self._pieces = [(piece, piece.of_process) for piece in current.PIECES]

    def restore(self) -> None:
        """Give every container, in place, the members that it had at first, and the process its state."""
        for piece, value in self._pieces:
            piece.of_process = value
        for container, members in self._kept:
            if not _has_members(container, members):
                container.clear()
                getattr(container, "extend" if isinstance(container, list | deque) else "update")(members)


def _has_members(container: Any, members: Any) -> bool:
    """Whether these are its members, in this order. They may be equal and yet others, and arrays do not compare."""
    if isinstance(container, set | WeakSet):
        return set(map(id, container)) == set(map(id, members))
    if len(container) != len(members) or not all(map(is_, container, members)):
        return False
    return isinstance(container, list | deque) or all(map(is_, container.values(), members.values()))


KEPT = sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])  # folders whose modules stay loaded


class Environment:
    """The environment variables, the folder and the recursion limit of the process, and its modules of a user."""

    def __init__(self) -> None:
        self._variables, self._folder, self._depth = _variables(), os.getcwd(), sys.getrecursionlimit()
        self._modules = {*sys.modules}

    def restore(self) -> None:
        """Make them what they were."""
        for name in sys.modules.keys() - self._modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and not file.startswith(KEPT):
                del sys.modules[name]
        os.chdir(self._folder)
        sys.setrecursionlimit(self._depth)
        if _variables() != self._variables:
            for name in _variables().keys() - self._variables.keys():
                del os.environ[name]
            os.environ.update(self._variables)


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


class Generators:
    """The random generators at the top of some modules, each of which all tests that use it would share."""

    def __init__(self, *modules: ModuleType) -> None:
        found = [value for module in modules for value in vars(module).values() if type(value) is np.random.Generator]
        self._kept = [(generator, generator.bit_generator.state) for generator in found]

    def restore(self) -> None:
        """Let each begin again where it was at first."""
        for generator, state in self._kept:
            generator.bit_generator.state = state
