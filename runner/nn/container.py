"""Containers of cells."""

from collections.abc import Iterable, Iterator
from typing import Any

from runner.core.value import Value
from runner.errors import ConfigError
from runner.nn.cell import Cell

__all__ = ["CellList", "SequentialCell"]


class CellContainer(Cell):
    """Base: child cells with the attribute names `0`, `1`, ..."""

    def __init__(self, *cells: Cell | Iterable[Cell]) -> None:
        super().__init__()
        single: Any = cells[0] if len(cells) == 1 else None
        for cell in cells if single is None or isinstance(single, Cell) else single:
            self._add(cell)

    def __getitem__(self, number: int) -> Cell:
        return list(self.cells())[number]

    def __len__(self) -> int:
        return len(self.name_cells())

    def _add(self, cell: Any) -> None:
        if not isinstance(cell, Cell):
            raise ConfigError(f"{type(self).__name__} takes cells", given=repr(cell), at=len(self))
        setattr(self, str(len(self)), cell)


class SequentialCell(CellContainer):
    """Applies its cells in order."""

    def construct(self, x: Value) -> Value:
        for cell in self.cells():
            x = cell(x)
        return x


class CellList(CellContainer):
    """A list of cells, which its owner applies. Raises ConfigError for elements that are not cells."""

    def __iter__(self) -> Iterator[Cell]:
        return self.cells()

    def append(self, cell: Cell) -> "CellList":
        """Add a cell at the end."""
        known = set(self.get_parameters())
        is_new = isinstance(cell, Cell) and not cell._attribute
        self._add(cell)
        if self._attribute and is_new:  # the owner of the list has named the others
            for parameter in cell.get_parameters():
                if parameter not in known:
                    parameter.name = f"{self._attribute}.{parameter.name}"
        return self

    def extend(self, cells: Iterable[Cell]) -> "CellList":
        """Add cells at the end."""
        for cell in cells:
            self.append(cell)
        return self
