"""Functions that are executed like cells when they are called outside of networks."""

from collections.abc import Callable, Iterator
from types import CellType, MethodType
from typing import Any

from runner.nn.cell import EXECUTORS, Cell


class FunctionCell(Cell):
    """A function as a cell: `function` computes, with the parameters of the cells that `uses` uses."""

    def __init__(self, function: Callable[..., Any], uses: Callable[..., Any]) -> None:
        super().__init__(auto_prefix=False)
        self.__dict__.update(construct=function, uses=uses)

    @property
    def label(self) -> str:
        """The name of the function, or of the cell that is differentiated."""
        return getattr(self.uses, "__name__", type(self.uses).__name__)

    def cells_and_names(self, cells: set[Cell] | None = None, name_prefix: str = "") -> Iterator[tuple[str, Cell]]:
        """This cell, and those that the function uses."""
        yield name_prefix, self
        for cell in used_cells(self.uses):
            yield from cell.cells_and_names(cells, name_prefix)


def used_cells(function: Any) -> list[Cell]:
    """The cells that a function uses: itself, that of a method, and those in variables of its body."""
    if isinstance(function, Cell):
        return [function]
    while not hasattr(function, "__code__") and hasattr(function, "function"):  # a decorated or differentiated one
        function = function.function
    found = [getattr(function, "__self__", None)]
    code = getattr(function, "__code__", None)
    if code is not None:
        inner = zip(code.co_freevars, function.__closure__ or (), strict=True)
        found += [cell.cell_contents for _, cell in inner if cell != CellType()]
        found += [function.__globals__.get(name) for name in code.co_names]
    return list(dict.fromkeys(x for x in found if isinstance(x, Cell)))


def call_function(function: Callable[..., Any], owner: Any, key: object, inputs: tuple[Any, ...], mode: int) -> Any:
    """Execute a function that belongs to `owner`, a function or cell, which keeps its programs under `key`."""
    if isinstance(owner, MethodType):
        key, owner = (owner.__name__, key), owner.__self__
    cells: dict[object, FunctionCell] = getattr(owner, "__dict__", {}).setdefault("_functions", {})
    if key not in cells:
        cells[key] = FunctionCell(function, owner)
    return EXECUTORS[mode](cells[key], inputs)
