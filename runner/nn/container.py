"""Cells that hold cells."""

from typing import Any

from runner.core.value import Value
from runner.errors import ConfigError
from runner.nn.cell import Cell


class SequentialCell(Cell):
    """Cells one after the other; their attribute names are `0`, `1`, ..."""

    def __init__(self, *cells: Cell | list[Cell]) -> None:
        super().__init__()
        flat: list[Any] = list(cells[0]) if len(cells) == 1 and isinstance(cells[0], list | tuple) else list(cells)
        for number, cell in enumerate(flat):
            if not isinstance(cell, Cell):
                raise ConfigError("SequentialCell takes cells", given=repr(cell), at=number)
            setattr(self, str(number), cell)

    def construct(self, x: Value) -> Value:
        for cell in self.cells():
            x = cell(x)
        return x

    def __getitem__(self, number: int) -> Cell:
        return list(self.cells())[number]

    def __len__(self) -> int:
        return len(self.name_cells())
