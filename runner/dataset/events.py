"""What a script observes and changes while a pipeline runs: callbacks of `map`, and conditions of `sync_wait`.

`RowEvents` calls the `DSCallback`s of one map; `Conditions` has the functions that `sync_update` calls. A pipeline with
either prepares nothing ahead, in no other thread, so that rows are computed in order, when they are requested.
Source: `mindspore.dataset.callback` and `mindspore.dataset` r1.2.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from runner.errors import ConfigError, known_names
from runner.validation.arguments import as_list, whole_number

Condition = Callable[[Any], object] | None

EVENTS = "ds_begin", "ds_epoch_begin", "ds_epoch_end", "ds_step_begin", "ds_step_end"


class DSRunContext:
    """Where a pipeline is: epoch, row of the epoch and row since the iteration began, from 1; 0 before the first."""

    def __init__(self, epoch: int = 0, step_in_epoch: int = 0, step: int = 0) -> None:
        self.cur_epoch_num, self.cur_step_num_in_epoch, self.cur_step_num = epoch, step_in_epoch, step


class DSCallback:
    """Base class of callbacks for `map(callbacks=...)`; a subclass overrides the events it needs.

    A step is a row of the map; `step_size` is the number of rows from one step event to the next.
    """

    def __init__(self, step_size: int = 1) -> None:
        self.step_size = whole_number("step_size", step_size, 1)

    def ds_begin(self, ds_run_context: DSRunContext) -> None:
        """Before the first epoch."""

    def ds_epoch_begin(self, ds_run_context: DSRunContext) -> None:
        """Before the first row of an epoch."""

    def ds_epoch_end(self, ds_run_context: DSRunContext) -> None:
        """After the last row of an epoch."""

    def ds_step_begin(self, ds_run_context: DSRunContext) -> None:
        """Before the operations of a row."""

    def ds_step_end(self, ds_run_context: DSRunContext) -> None:
        """After the operations of a row."""


class RowEvents:
    """The callbacks of one map. Rows that are computed outside of an iteration, to learn their types, are no steps."""

    def __init__(self, callbacks: Sequence[DSCallback]) -> None:
        self._callbacks = callbacks
        self._position = DSRunContext()
        self._is_active = False

    def epoch_begin(self, epoch: int) -> None:
        """An iteration enters an epoch, from 0; the first one begins anew."""
        if epoch == 0 or not self._is_active:
            self._position = DSRunContext()
            self._emit("ds_begin", self._callbacks)
        self._is_active = True
        self._position = DSRunContext(epoch + 1, 0, self._position.cur_step_num)
        self._emit("ds_epoch_begin", self._callbacks)

    def epoch_end(self) -> None:
        """All rows of the epoch are computed."""
        self._emit("ds_epoch_end", self._callbacks)

    def step_begin(self) -> None:
        """The inputs of the next row are there."""
        if self._is_active:
            at = self._position
            self._position = DSRunContext(at.cur_epoch_num, at.cur_step_num_in_epoch + 1, at.cur_step_num + 1)
            self._emit("ds_step_begin", self._due())

    def step_end(self) -> None:
        """The row is computed."""
        if self._is_active:
            self._emit("ds_step_end", self._due())

    def _due(self) -> list[DSCallback]:
        row = self._position.cur_step_num_in_epoch - 1
        return [callback for callback in self._callbacks if row % callback.step_size == 0]

    def _emit(self, event: str, callbacks: Iterable[DSCallback]) -> None:
        for callback in callbacks:
            getattr(callback, event)(self._position)


def row_events(given: Any) -> RowEvents:
    """The events for one callback or a list. Raises ConfigError for anything else, and for one without an event."""
    callbacks = as_list(given)
    for place, callback in enumerate(callbacks):
        if not isinstance(callback, DSCallback):
            rows = {"argument": f"callbacks[{place}]", "value": callback, "allowed": "a subclass of DSCallback"}
            raise ConfigError("not a callback of a dataset", **rows)
        if all(getattr(type(callback), event) is getattr(DSCallback, event) for event in EVENTS):
            rows = {"callback": type(callback).__name__, "allowed": ", ".join(EVENTS)}
            raise ConfigError("a callback that overrides no event", **rows)
    return RowEvents([callback for callback in callbacks if isinstance(callback, DSCallback)])


class Conditions:
    """The functions of a pipeline's conditions, by name; None does nothing.

    Where the reference blocks a pipeline until the script has reported back, here an item is computed when it is
    requested, so after every `sync_update` that preceded the request.
    """

    def __init__(self, functions: Mapping[str, Condition] = MappingProxyType({})) -> None:
        self._functions = functions

    def __bool__(self) -> bool:
        return bool(self._functions)

    @classmethod
    def of_all(cls, parts: "Iterable[Conditions]") -> Self:
        """Those of several pipelines. Raises ConfigError for one name of two functions."""
        found: dict[str, Condition] = {}
        for part in parts:
            for name, function in part._functions.items():
                if found.setdefault(name, function) is not function:
                    raise _in_use(name)
        return cls(found)

    def added(self, name: str, function: Condition) -> "Conditions":
        """These and another one. Raises ConfigError for what is no function, and for a name that is in use."""
        if function is not None and not callable(function):
            raise ConfigError("not a function", argument="callback", value=function, allowed="something callable")
        if name in self._functions:
            raise _in_use(name)
        return Conditions({**self._functions, name: function})

    def call(self, name: str, data: Any) -> None:
        """Call the function of a condition. Raises ConfigError for an unknown name."""
        if name not in self._functions:
            rows = known_names(name, self._functions)
            raise ConfigError("no such condition", argument="condition_name", value=name, **rows)
        function = self._functions[name]
        if function is not None:
            function(data)


def _in_use(name: str) -> ConfigError:
    return ConfigError("the name of a condition is in use", argument="condition_name", value=name)
