"""Functions of what is known while a network is built: constants like a tensor, and functions of constants."""

from collections.abc import Callable
from typing import Any

import numpy as np

from runner.core.structure import map_values, values_of
from runner.core.value import Symbol, Tensor
from runner.errors import ConfigError

__all__ = ["add_flags", "constexpr", "core", "ones_like", "zeros_like"]


def zeros_like(x: Any) -> Any:
    """Zeros in the shape and type of a tensor, or of each tensor of a tuple or list; 0 for a number."""
    return _filled(x, 0)


def ones_like(x: Any) -> Any:
    """Ones in the shape and type of a tensor, or of each tensor of a tuple or list; 1 for a number."""
    return _filled(x, 1)


def _filled(x: Any, number: int) -> Any:
    if isinstance(x, bool | int | float):
        return type(x)(number)
    return map_values(lambda value: Tensor(np.full(value.shape, number, value.dtype.numpy)), x)


def constexpr(
    fn: Callable[..., Any] | None = None, get_instance: bool = True, name: str | None = None
) -> Callable[..., Any]:
    """Decorator of a function of constants, which is computed while a network is built: a plain call of `fn`.

    With `get_instance=False` the result is a function without arguments that returns the decorated one, as the class of
    an operator. `name` is its name in errors. A call raises ConfigError for a tensor that has numbers only when the
    graph runs.
    """
    if fn is None:
        return lambda function: constexpr(function, get_instance, name)
    called = name or str(getattr(fn, "__name__", "constexpr"))

    def computed(*args: Any, **kwargs: Any) -> Any:
        unknown = [value for value in values_of((args, kwargs)) if isinstance(value, Symbol)]
        if unknown:
            repair = "pass its shape or another constant, or use operators"
            raise ConfigError(f"{called} takes constants, not the values of a graph", given=unknown[0], repair=repair)
        return fn(*args, **kwargs)

    computed.__name__, computed.__doc__ = called, fn.__doc__
    return computed if get_instance else lambda: computed


def core(fn: Callable[..., Any] | None = None, **flags: Any) -> Any:
    """Decorator `core(loop_can_uroll=True)`: notes flags of the reference's compiler, which have no effect here."""
    return add_flags(fn, core=True, **flags)


def add_flags(fn: Callable[..., Any] | None = None, **flags: Any) -> Any:
    """Decorator that notes flags of the reference's compiler at a function, which have no effect here."""

    def noting(function: Any) -> Any:
        noted = {**getattr(function, "_mindspore_flags", {}), **flags}
        function._mindspore_flags = noted
        return function

    return noting if fn is None else noting(fn)
