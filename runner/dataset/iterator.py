"""Walking over epochs."""

from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar

from runner.validation.arguments import flag, whole_number

T = TypeVar("T")


def epochs_asked(num_epochs: int, output_numpy: bool) -> int:
    """How many epochs an iterator goes through, -1 for any number. Raises ConfigError for impossible arguments."""
    flag({}, output_numpy=output_numpy)
    return -1 if num_epochs == -1 else whole_number("num_epochs", num_epochs, 1)


class EpochIterator(Generic[T]):
    """Each `for` over it gives the next epoch, until `num_epochs` are over; -1 never ends.

    A `for` that was left early is continued by the next one, as in the reference.
    """

    def __init__(self, start: Callable[[int], Iterator[T]], num_epochs: int) -> None:
        self._start = start
        self._num_epochs = num_epochs
        self._items: Iterator[T] | None = None
        self.epoch = 0

    def __iter__(self) -> Self:
        return self

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
