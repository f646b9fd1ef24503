"""Functions composed of operators."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from runner.core.primitive import current
from runner.core.structure import flatten, map_values, values_of
from runner.core.value import OPERATORS, Operand, Symbol, Tensor, Value
from runner.errors import ConfigError
from runner.ops.compare import Maximum, Minimum
from runner.ops.elementwise import Sqrt
from runner.ops.reduce import ReduceSum

__all__ = ["add_flags", "clip_by_global_norm", "clip_by_value", "constexpr", "core", "ones_like", "zeros_like"]


def clip_by_value(x: Value, clip_value_min: Operand, clip_value_max: Operand) -> Value:
    """x limited to the range of the two bounds (numbers, or tensors that broadcast against x).

    Where x equals a bound the gradient goes to x. If `clip_value_min` is larger than `clip_value_max`, it takes
    precedence.
    """
    clipped: Value = Maximum()(Minimum()(x, clip_value_max), clip_value_min)
    return clipped


def clip_by_global_norm(x: Sequence[Value], clip_norm: float = 1.0, use_norm: None = None) -> Any:
    """The tensors of a tuple or list, times clip_norm / max(norm, clip_norm): their norm as one vector is at most
    `clip_norm`.

    Norm and factor are Float32, results have the types of the tensors. Raises ConfigError for a `clip_norm` that is not
    above 0, for `use_norm`, which r1.2 does not accept either, and without tensors.
    """
    flat = flatten(x)
    if use_norm is not None:
        raise ConfigError("clip_by_global_norm computes the norm itself", use_norm=use_norm, allowed=None)
    if not isinstance(clip_norm, int | float) or not clip_norm > 0.0:
        raise ConfigError("clip_norm must be a number above 0", clip_norm=clip_norm)
    if not flat.values:
        raise ConfigError("clip_by_global_norm needs tensors", given=type(x).__name__)
    with current().use_precision(None):
        single = Tensor(np.zeros((), np.float32)).dtype
        squares = [ReduceSum()(y * y) for y in (current().with_dtype(value, single) for value in flat.values)]
        norm = Sqrt()(reduce(OPERATORS["Add"], squares))
        factor = float(clip_norm) / Maximum()(norm, float(clip_norm))
        clipped = [value * current().with_dtype(factor, value.dtype) for value in flat.values]
    return flat.rebuild(clipped)


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
    called = name or getattr(fn, "__name__", "constexpr")

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
