"""What is known of a dataset beside its values."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from runner.dataset.row_events import RowEvents
from runner.errors import ConfigError
from runner.validation.arguments import whole_number
from runner.validation.keywords import KeywordNames


class ClassCount(int):
    """A number of classes, which scripts of the reference call: `dataset.num_classes()`."""

    def __call__(self) -> int:
        """The number."""
        return int(self)


class Described(KeywordNames):
    """Attributes of a dataset that may be assigned; datasets derived from it keep them."""

    row_names: Sequence[str] | None = None  # of the rows of the source: where each was read, such as its file
    preprocessing: Any = None  # `Preprocessing`: reads new files as the inputs of this dataset
    row_events: tuple[RowEvents, ...] = ()  # of the callbacks of `map`
    _indexing: dict[str, int] | None = None  # numbers of classes by name, where they are not those of `class_names`
    conditions: Mapping[str, Any] = MappingProxyType({})  # of `sync_wait`: functions by name
    _class_names: tuple[str, ...] | None = None
    _num_classes: int | None = None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the target's classes, in the order of their numbers."""
        return self._class_names

    @class_names.setter
    def class_names(self, names: Sequence[str] | None) -> None:
        if names is None:
            self._class_names = None
        elif isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
            self._class_names = tuple(names)
        else:
            raise ConfigError("not a list of names", argument="class_names", value=repr(names), allowed="texts")

    @property
    def num_classes(self) -> ClassCount | None:
        """Number of classes of the target; by default that of `class_names`."""
        count = len(self.class_names) if self._num_classes is None and self.class_names else self._num_classes
        return None if count is None else ClassCount(count)

    @num_classes.setter
    def num_classes(self, count: int | None) -> None:
        self._num_classes = None if count is None else whole_number("num_classes", count, 1)

    def described_as(self, other: "Described") -> Self:
        """This dataset, with the description of another one."""
        self._class_names, self.row_names, self._num_classes = other.class_names, other.row_names, other._num_classes
        self.preprocessing, self.conditions = other.preprocessing, other.conditions
        self.row_events, self._indexing = other.row_events, other._indexing
        return self
