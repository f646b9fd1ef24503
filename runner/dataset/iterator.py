"""Iterators over epochs."""

from collections.abc import Callable, Generator, Iterator
from typing import Generic, Self, TypeVar

from runner.validation.arguments import flag, whole_number

T = TypeVar("T")


def epoch_limit(num_epochs: int, output_numpy: bool) -> int:
    """The number of epochs of an iterator, -1 for no limit. Raises ConfigError for invalid arguments."""
    flag({}, output_numpy=output_numpy)
    return -1 if num_epochs == -1 else whole_number("num_epochs", num_epochs, 1)


class EpochIterator(Generic[T]):
    """Each `for` loop over it iterates over the next epoch, up to `num_epochs`; -1 is no limit.

    After a `break`, the next loop continues the same epoch, as in the reference.
    """

    def __init__(self, start: Callable[[int], Iterator[T]], num_epochs: int) -> None:
        self._start = start
        self._num_epochs = num_epochs
        self._items: Iterator[T] | None = None
        self.epoch = 0

    def __iter__(self) -> Self:
        return self

    def stop(self) -> None:
        """End the iteration: threads that prepare items end, and later loops have no items."""
        items, self._items = self._items, None
        if isinstance(items, Generator):
            items.close()
        self.epoch = self._num_epochs = max(self.epoch, self._num_epochs)

    def __next__(self) -> T:
        if self._items is None:
            if self.epoch == self._num_epochs:
                raise StopIteration
            self._items = self._start(self.epoch)
        try:
            return next(self._items)
        except StopIteration:
            self._items = None
            self.epoch += 1
            raise
