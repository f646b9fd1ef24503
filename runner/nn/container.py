"""Containers of cells, `SequentialCell` and `CellList`: places of a list, whose numbers are names of parameters."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from runner.core.values import Parameter, Value
from runner.errors import ConfigError
from runner.nn.cell import Cell


class CellContainer(Cell):
    """Base: child cells with the attribute names `0`, `1`, ..., and the operations of a list.

    Numbers out of range raise IndexError, as for a list. When a cell moves to another place, its parameters are
    renamed.
    """

    def __init__(self, *cells: Cell | Iterable[Cell] | Mapping[str, Cell], auto_prefix: bool = True) -> None:
        super().__init__(auto_prefix)
        single: Any = cells[0] if len(cells) == 1 else None
        several: Any = cells if single is None or isinstance(single, Cell) else single
        if isinstance(single, dict):
            for name, cell in single.items():
                self._add(cell, str(name))
        else:
            self.extend(several)

    def __getitem__(self, number: int | slice) -> Any:
        if isinstance(number, slice):
            return self._part(list(self.name_cells().items())[number])
        return list(self.cells())[number]

    def __setitem__(self, number: int, cell: Cell) -> None:
        names, cells = list(self.name_cells()), list(self.cells())
        cells[number] = self._checked(cell, number)
        self._place(names, cells)

    def __delitem__(self, number: int | slice) -> None:
        names, cells = list(self.name_cells()), list(self.cells())
        numbered = [name == str(k) for k, name in enumerate(names)]
        for items in (names, cells, numbered):
            del items[number]
        self._place([str(k) if counts else names[k] for k, counts in enumerate(numbered)], cells)

    def __len__(self) -> int:
        return len(self.name_cells())

    def __iter__(self) -> Iterator[Cell]:
        return self.cells()

    def __iadd__(self, cells: Iterable[Cell]) -> Self:
        return self.extend(cells)

    def set_grad(self, flag: bool = True) -> Self:
        """As for every cell; the argument has the reference's name for containers."""
        return super().set_grad(flag)

    def append(self, cell: Cell) -> Self:
        """Add a cell at the end."""
        self._add(cell, str(len(self)))
        return self

    def extend(self, cells: Iterable[Cell]) -> Self:
        """Add cells at the end."""
        for cell in cells:
            self.append(cell)
        return self

    def insert(self, index: int, cell: Cell) -> None:
        """Add a cell before the one of this number. Raises ConfigError if the cells have names of their own."""
        cells, numbers = list(self.cells()), list(map(str, range(len(self) + 1)))
        if list(self.name_cells()) != numbers[:-1]:
            names = ", ".join(self.name_cells())
            raise ConfigError("a cell is inserted between numbered ones", cells=names, repair="append")
        cells.insert(index, self._checked(cell, index))
        self._place(numbers, cells)

    def _part(self, items: list[tuple[str, Cell]]) -> Cell:
        """A container of the same class with some of the cells, which keep the names of their parameters."""
        return type(self)(*[cell for _, cell in items])

    def _checked(self, cell: Any, at: int) -> Cell:
        if not isinstance(cell, Cell):
            raise ConfigError(f"{type(self).__name__} takes cells", given=repr(cell), at=at)
        return cell

    def _add(self, cell: Any, name: str) -> None:
        self._adopt_after(self._prefix(), cell, name)

    def _adopt_after(self, prefix: str, cell: Any, name: str) -> None:
        known = set(self.get_parameters())
        is_new = isinstance(cell, Cell) and not cell._attribute
        setattr(self, name, self._checked(cell, len(self)))
        if is_new and self._auto_prefix:
            for parameter in cell.get_parameters():
                if parameter not in known:
                    parameter.name = prefix + parameter.name

    def _prefix(self) -> str:
        """What the owners of the container have put before the names of its parameters."""
        for name, cell in self._cells.items():
            for parts, place, _ in _places(name, cell):
                return "".join(f"{part}." for part in parts[:place])
        return f"{self._attribute}." if self._attribute else ""

    def _place(self, names: list[str], cells: list[Cell]) -> None:
        """Set the children; those that get another name rename their parameters."""
        before, prefix = {cell: name for name, cell in self._cells.items()}, self._prefix()
        for name in before.values():
            object.__delattr__(self, name)
        self._cells.clear()
        for name, cell in zip(names, cells, strict=True):
            old = before.get(cell)
            if old is None:
                self._adopt_after(prefix, cell, name)
                continue
            if old != name and self._auto_prefix:
                for parts, place, parameter in list(_places(old, cell)):
                    parameter.name = ".".join([*parts[:place], name, *parts[place + 1 :]])
            if cell._attribute == old:
                cell.__dict__["_attribute"] = name
            self._cells[name] = cell
            object.__setattr__(self, name, cell)


def _places(name: str, cell: Cell) -> Iterator[tuple[list[str], int, Parameter]]:
    """The parameters of a child, each once, with the parts of their names and the place of the child's name there.

    Without those that are named after another place, as in a cell that belongs to two containers.
    """
    seen: set[Parameter] = set()
    for path, inner in cell.cells_and_names():
        sought = [name, *path.split(".")] if path else [name]
        for parameter in inner.get_parameters(False):
            parts = parameter.name.split(".")
            starts = [k for k in range(len(parts) - len(sought)) if parts[k : k + len(sought)] == sought]
            if starts and parameter not in seen:
                seen.add(parameter)
                yield parts, starts[-1], parameter


class SequentialCell(CellContainer):
    """Applies its cells in order. Takes cells, a list of cells, or a dict of cells by name."""

    def construct(self, x: Value) -> Value:
        for cell in self.cells():
            x = cell(x)
        return x

    def _part(self, items: list[tuple[str, Cell]]) -> Cell:
        return type(self)(dict(items))


class CellList(CellContainer):
    """A list of cells, which its owner applies. Raises ConfigError for elements that are not cells.

    With `auto_prefix=False` the numbers of the cells are not part of the names of their parameters.
    """
