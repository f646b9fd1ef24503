"""`ms_function`: functions that are compiled in PyNative mode too."""

from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any

from runner import context
from runner.core.operators import is_nested
from runner.core.structure import flatten
from runner.errors import ConfigError, ShapeError
from runner.nn.cell import Cell
from runner.nn.function_cell import call_function
from runner.types import TensorType


class StagedFunction:
    """A function or method that is compiled as one graph, also in PyNative mode: see `ms_function`."""

    def __init__(self, function: Callable[..., Any], signature: tuple[TensorType, ...] | None) -> None:
        update_wrapper(self, function)
        self.function, self.signature = function, signature

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_nested():
            return self.function(*args, **kwargs)
        method = args[:1] if args and isinstance(args[0], Cell) and self._is_method else ()
        inputs = args[len(method) :]
        self._check(inputs, kwargs)
        key = "ms_function", self.__name__  # type: ignore[attr-defined]

        def run(positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
            return self.function(*method, *positional, **named)

        owner = method[0] if method else self
        return call_function(run, owner, key, (inputs, kwargs), context.GRAPH_MODE)

    @property
    def _is_method(self) -> bool:
        return "." in self.__qualname__.rpartition("<locals>.")[2]  # type: ignore[attr-defined]

    def _check(self, *inputs: Any) -> None:
        given = tuple([x.type for x in flatten(inputs).values])
        if self.signature is not None and given != self.signature:
            texts = {"given": ", ".join(map(str, given)), "input_signature": ", ".join(map(str, self.signature))}
            raise ShapeError(f"{self.__name__}: the inputs do not fit input_signature", **texts)  # type: ignore[attr-defined]


def is_staged(function: Any) -> bool:
    """Whether a function, method or the `construct` of a cell is compiled in PyNative mode too."""
    if isinstance(function, Cell):
        function = type(function).construct
    return isinstance(getattr(function, "__func__", function), StagedFunction)


def ms_function(fn: Callable[..., Any] | None = None, obj: Any = None, input_signature: Any = None) -> Any:
    """Decorator: a function, a method or `construct` of a cell is compiled as one graph and cached, in PyNative mode
    too.

    `input_signature`: a tensor, or a tuple of them, whose shapes and element types a call must have. In PyNative mode
    a cell that another one calls is still executed operator by operator, so that gradients pass through it. `obj` has
    no effect. A call raises ShapeError when its inputs do not fit the signature.
    """
    if fn is None:
        return lambda function: ms_function(function, obj, input_signature)
    if not callable(fn):
        raise ConfigError("ms_function decorates a function or a method", given=type(fn).__name__)
    types = tuple([x.type for x in flatten(input_signature).values])
    return StagedFunction(fn, None if input_signature is None else types)
