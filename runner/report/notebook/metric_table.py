"""Columns of numbers of a run as numpy arrays."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from runner.errors import ConfigError, nearest
from runner.report.html.markup import Markup, table
from runner.report.notebook.html import fragment

MOST_ROWS = 10  # that a notebook shows, half of them from each end


class MetricTable(Mapping[str, np.ndarray]):
    """Columns of equal lengths by name, as numpy arrays that cannot be changed; `table["loss"]` is one of them.

    `to_pandas()` makes a DataFrame of it.
    """

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self._columns = dict(columns)
        for array in self._columns.values():
            array.flags.writeable = False

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._columns:
            known = f"the columns are {', '.join(self._columns)}"
            close = nearest(str(name), self._columns)
            raise KeyError(f"{name}: {known}" + (f"; nearest: {close}" if close else ""))
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return next((len(array) for array in self._columns.values()), 0)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with these columns; arrays in a cell, such as a confusion matrix, are lists.

        Raises ConfigError where pandas is not installed.
        """
        try:
            import pandas  # late: it takes a third of a second, and is no dependency
        except ImportError:
            raise ConfigError("pandas is not installed", repair="pip install pandas") from None
        return pandas.DataFrame({name: x if x.ndim == 1 else x.tolist() for name, x in self._columns.items()})

    def __repr__(self) -> str:
        return f"MetricTable({self.rows} rows: {', '.join(self._columns)})"

    def _repr_html_(self) -> str:
        return fragment(self.markup())

    def markup(self) -> Markup:
        """The columns of numbers as a table, of a long one the first and the last rows."""
        numbers = {name: array for name, array in self._columns.items() if array.ndim == 1}
        every = range(self.rows)
        half = MOST_ROWS // 2
        shown = [*every] if self.rows <= MOST_ROWS else [*every[:half], None, *every[-half:]]
        rows = [["..." if k is None else array[k].item() for array in numbers.values()] for k in shown]
        return table([*numbers], rows)
