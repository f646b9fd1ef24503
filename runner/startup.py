"""What keeps the start short: libraries that are loaded when they are first used, and no collections meanwhile."""

import gc
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


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
    spec.loader.exec_module(module)
    return module


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection while modules are loaded or a config is composed.

    They leave little to collect, and looking for it takes 40 ms of a start.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
