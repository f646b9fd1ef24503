"""The state of callbacks in checkpoints: JSON values in the progress of a run, and arrays, which have a file.

A state is what `Callback.state_dict` returns. Values that JSON does not have are groups with one name: `{"$array": n}`
and `{"$number": n}` are array number n and its only element, `{"$float": "inf"}` is a number that is not finite.
"""

import hashlib
import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from runner import dtype as dt
from runner.core.values import Parameter, Tensor
from runner.errors import ConfigError, DataError, some
from runner.host.console import LOG
from runner.train.callback.base import Callback

MAX_VALUES, MAX_DEPTH = 100_000, 16  # of the JSON of a callback; measurements of a step each would fill checkpoints
MAX_BYTES = 1 << 30  # of its arrays
ALLOWED = "None, bool, int of 64 bits, float, text, lists and dicts of these by name, arrays and numbers of numpy"
ARRAY, NUMBER, FLOAT = "$array", "$number", "$float"


class CallbackStates:
    """The states of callbacks, which have the names of their classes; the second one of a class is `Name 2`."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._callbacks: dict[str, Callback] = {}
        numbers: defaultdict[str, int] = defaultdict(int)
        for callback in callbacks:
            kind = type(callback).__qualname__
            numbers[kind] += 1
            self._callbacks[kind if numbers[kind] == 1 else f"{kind} {numbers[kind]}"] = callback
        self._before: dict[str, dict[str, Any]] = {}

    def begin(self) -> None:
        """Note the attributes of callbacks without a state, which `saved` warns about once they have changed."""
        without = {name: x for name, x in self._callbacks.items() if not _overrides(x, "state_dict")}
        self._before = {name: _attributes(callback) for name, callback in without.items()}

    def saved(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The states that are not empty, by name, and their arrays. Raises ConfigError for what cannot be saved."""
        self._warn()
        states: dict[str, Any] = {}
        arrays: dict[str, np.ndarray] = {}
        for name, callback in self._callbacks.items():
            if state := callback.state_dict():
                if not _overrides(callback, "load_state_dict"):
                    hint = "def load_state_dict(self, state): ..."
                    raise ConfigError("a callback with a state that it cannot load", callback=name, hint=hint)
                writer = _Writer(name)
                states[name] = writer.json(state, ())
                arrays |= writer.arrays
        return states, arrays

    def load(self, states: object, arrays: Mapping[str, np.ndarray]) -> None:
        """Give the callbacks what `saved` returned. Raises DataError for a damaged state."""
        if not isinstance(states, dict):
            raise DataError("the states of callbacks are damaged", found=type(states).__name__)
        left = dict(arrays)
        values = {name: _value(saved, name, left) for name, saved in states.items()}
        if wrong := [name for name, value in values.items() if not isinstance(value, dict)]:
            raise DataError("the states of callbacks are damaged", expected="a group for each", found=some(wrong, 5))
        if unknown := sorted(set(states) - set(self._callbacks)):
            LOG.warning("the checkpoint has the state of %s, which this run does not have", some(unknown, 5))
        for name, callback in self._callbacks.items():
            if name in states:
                callback.load_state_dict(values[name])
        if left:
            raise DataError("the states of callbacks are damaged", expected="no other arrays", found=some([*left], 5))

    def _warn(self) -> None:
        for name, before in [*self._before.items()]:
            now = _attributes(self._callbacks[name])
            if changed := sorted(key for key in {**before, **now} if before.get(key) != now.get(key)):
                del self._before[name]
                hint = "docs/how-to/own/callback.md has an example"
                what = "callback %s has changed %s and has no state_dict: a resumed run will have lost that; %s"
                LOG.warning(what, name, some(changed, 5), hint)


def require_state(callback: Callback, is_valid: bool, state: Mapping[str, Any]) -> None:
    """Raise DataError, for a callback that loads a state, unless it is valid."""
    if not is_valid:
        kind = type(callback).__qualname__
        raise DataError("not the state of such a callback", callback=kind, found=repr(dict(state))[:200])


def _overrides(callback: Callback, method: str) -> bool:
    return getattr(getattr(callback, method), "__func__", None) is not getattr(Callback, method)


class _Writer:
    """Makes JSON and arrays of the state of one callback."""

    def __init__(self, callback: str) -> None:
        self.callback = callback
        self.arrays: dict[str, np.ndarray] = {}
        self._count = self._bytes = 0

    def json(self, value: Any, path: tuple[str, ...]) -> Any:
        """The value as JSON. Raises ConfigError with its place."""
        self._count += 1
        if self._count > MAX_VALUES or len(path) > MAX_DEPTH:
            self._refuse(value, path, f"at most {MAX_VALUES} values in {MAX_DEPTH} levels; arrays for more")
        kind = type(value)
        if (
            value is None
            or kind is bool
            or (kind is int and -(2**63) <= value < 2**63)
            or (kind is str and _is_text(value))
        ):
            return value
        if kind is float:
            return value if math.isfinite(value) else {FLOAT: str(value)}
        if isinstance(value, np.ndarray | np.generic):
            return self._array(value, path)
        if kind in (list, tuple):
            return [self.json(one, (*path, str(place))) for place, one in enumerate(value)]
        if isinstance(value, Mapping) and all(
            type(name) is str and _is_text(name) and name[:1] != "$" for name in value
        ):
            return {name: self.json(one, (*path, name)) for name, one in value.items()}
        self._refuse(value, path, ALLOWED)

    def _array(self, value: np.ndarray | np.generic, path: tuple[str, ...]) -> dict[str, str]:
        self._bytes += value.nbytes
        if self._bytes > MAX_BYTES:
            self._refuse(value, path, f"arrays of {MAX_BYTES >> 20} MiB in all")
        try:
            dt.of(value.dtype)
        except ConfigError:
            self._refuse(value, path, ALLOWED)
        name = f"{self.callback}/{len(self.arrays)}"
        self.arrays[name] = np.asarray(value)
        return {NUMBER if isinstance(value, np.generic) else ARRAY: name}

    def _refuse(self, value: object, path: tuple[str, ...], allowed: str) -> NoReturn:
        rows = {
            "callback": self.callback,
            "at": ".".join(path) or None,
            "given": f"{type(value).__name__} {value!r}"[:200],
        }
        hint = "what a resumed run needs, and nothing that it can compute again"
        raise ConfigError("state_dict returns what a checkpoint cannot hold", **rows, allowed=allowed, hint=hint)


def _is_text(value: str) -> bool:
    """Whether it can be written: no lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _value(saved: Any, callback: str, arrays: dict[str, np.ndarray]) -> Any:
    """The value that `_Writer` has made this of; its arrays are taken out of `arrays`. Raises DataError."""
    if isinstance(saved, list):
        return [_value(one, callback, arrays) for one in saved]
    if not isinstance(saved, dict):
        return saved
    if not any(name in saved for name in (ARRAY, NUMBER, FLOAT)):
        return {name: _value(one, callback, arrays) for name, one in saved.items()}
    try:
        ((kind, named),) = saved.items()
        return float(named) if kind == FLOAT else np.array(arrays.pop(named))[() if kind == NUMBER else ...]
    except (ValueError, KeyError, TypeError) as reason:
        raise DataError("the state of a callback is damaged", callback=callback, found=repr(saved)[:200]) from reason


# What an attribute is, as far as it can be compared later: the values of numbers, text, containers and arrays, and of
# all else which object it is.

CONTAINERS = list, tuple, deque, set, frozenset
GROUPS = dict, OrderedDict, defaultdict


def _attributes(callback: Callback) -> dict[str, Any]:
    return {name: _compared(value, 0) for name, value in getattr(callback, "__dict__", {}).items()}


def _compared(value: Any, depth: int) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, complex, str, bytes):
        return kind.__name__, repr(value)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):  # a parameter is in the checkpoint itself
        value = value.asnumpy()
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return value.shape, str(value.dtype), hashlib.sha256(value.tobytes()).digest()
    if depth < MAX_DEPTH and kind in (set, frozenset):
        return kind.__name__, {_compared(one, depth + 1) for one in value}
    if depth < MAX_DEPTH and kind in CONTAINERS:
        return kind.__name__, [_compared(one, depth + 1) for one in value]
    if depth < MAX_DEPTH and kind in GROUPS:
        return kind.__name__, [(_compared(name, depth + 1), _compared(one, depth + 1)) for name, one in value.items()]
    return kind.__name__, id(value)
