"""`common.api._executor`: compiles networks without executing them, as tests and benchmarks of r1.2 do."""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from runner.nn.cell import Cell
from runner.nn.steps import FunctionCell


class Executor:
    """Compiles networks in graph mode, whatever mode the context has."""

    def __init__(self) -> None:
        self._phases: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    def compile(
        self,
        obj: Cell | Callable[..., Any],
        *args: Any,
        phase: str = "predict",
        do_convert: bool = True,
        auto_parallel_mode: bool = False,
    ) -> tuple[str, bool]:
        """Trace a network or function with these arguments, optimize its graph and load it into a session.

        Returns the phase, and whether this is the first time for this network and phase. `do_convert` and
        `auto_parallel_mode` have no effect. Raises what tracing and lowering raise.
        """
        cell = obj if isinstance(obj, Cell) else FunctionCell(obj, obj)
        cell.compile(*args)
        phases = self._phases.setdefault(obj, set())
        is_first = phase not in phases
        phases.add(phase)
        return phase, is_first

    def __call__(self, obj: Cell | Callable[..., Any], *args: Any, phase: str = "predict") -> Any:
        """The outputs of a network or function in graph mode. `phase` has no effect. Raises as `compile`."""
        cell = obj if isinstance(obj, Cell) else FunctionCell(obj, obj)
        return cell.compile_and_run(*args)


_executor = Executor()
