"""What scripts read of a dataset: iterators over its epochs, and the facts that the reference's datasets state."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from typing import Any, TypeVar

import numpy as np

from runner import ops  # noqa: F401  registers the arithmetic of the tensors that iterators return
from runner.core.values import Tensor
from runner.dataset.base_pipeline import Batch, Pipeline
from runner.dataset.iterator import EpochIterator, epoch_limit
from runner.errors import ConfigError, known_names
from runner.validation.arguments import as_list

T = TypeVar("T")


class Iterated(Pipeline):
    """A pipeline with the reference's iterators."""

    def create_tuple_iterator(
        self,
        columns: str | Sequence[str] | None = None,
        num_epochs: int = -1,
        output_numpy: bool = False,
        do_copy: bool = True,
    ) -> EpochIterator[list[Any]]:
        """Items as lists of Tensors, or of arrays; each `for` loop over the iterator is one epoch, from epoch 0 on.

        `columns` selects some. Element types are those of the source and of the functions of the script, such as Int64
        and Float64; text stays an array. `do_copy` has no effect: values are never shared. Raises ConfigError.
        """
        names = self.get_col_names()
        chosen = names if columns is None else [str(name) for name in as_list(columns)]
        for name in chosen:
            if name not in names:
                raise ConfigError("no such column", argument="columns", value=name, **known_names(name, names))
        places = [names.index(name) for name in chosen]
        limit = epoch_limit(num_epochs, output_numpy)
        convert = _unchanged if output_numpy else _as_tensor
        return EpochIterator(self._epochs(lambda item: [convert(item[place]) for place in places]), limit)

    def create_dict_iterator(self, num_epochs: int = -1, output_numpy: bool = False) -> EpochIterator[dict[str, Any]]:
        """Items as dicts by column name; otherwise as `create_tuple_iterator`."""
        names = self.get_col_names()
        limit = epoch_limit(num_epochs, output_numpy)
        convert = _unchanged if output_numpy else _as_tensor
        made = self._epochs(lambda item: {name: convert(value) for name, value in zip(names, item, strict=True)})
        return EpochIterator(made, limit)

    def _epochs(self, form: Callable[[Batch], T]) -> Callable[[int], Iterator[T]]:
        def start(epoch: int) -> Iterator[T]:
            if self._order.is_endless:
                return (form(item) for item in chain.from_iterable(self.read_exact(k) for k in count(epoch)))
            return (form(item) for item in self.read_exact(epoch))

        return start

    def __iter__(self) -> Iterator[list[Any]]:
        """The items of epoch 0, as Tensors; the iterators of `create_tuple_iterator` continue with later epochs."""
        return self.create_tuple_iterator(num_epochs=1)

    def __len__(self) -> int:
        return self.get_dataset_size()

    def output_shapes(self) -> list[list[int]]:
        """Shape of each column of the first item."""
        rows = self._rows_of_first()
        return [[*rows, *column.exact[1]] for column in self._columns]

    def output_types(self) -> list[np.dtype]:
        """numpy element type of each column, as iterators return it."""
        return [column.exact[0] for column in self._columns]

    def get_class_indexing(self) -> dict[str, int]:
        """The number of each class by its name, for datasets that have names of classes; otherwise empty."""
        if self._indexing is not None:
            return dict(self._indexing)
        return {name: number for number, name in enumerate(self.class_names or ())}

    def send(self, num_epochs: int = -1) -> None:
        """Nothing: `Model.train` requests batches itself. So are `stop_send`, `continue_send` and `release`."""

    stop_send = continue_send = release = lambda self: None

    def close_pool(self) -> None:
        """Nothing: threads end with the iterators that started them."""

    def reset(self) -> None:
        """Nothing: every iterator starts with the first epoch."""


def _unchanged(array: np.ndarray) -> np.ndarray:
    return array


def _as_tensor(array: np.ndarray) -> Any:
    return array if array.dtype.kind in "USO" else Tensor(array)
