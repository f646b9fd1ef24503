"""The gradient of a function: the function is executed, and what it has recorded is differentiated."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from runner.core.assignments import Mark
from runner.core.autodiff import pull_back, versions
from runner.core.primitive import Interpreter, current
from runner.core.structure import FlatStructure, flatten
from runner.core.value import OPERATORS, Parameter, Tensor, Value
from runner.errors import ConfigError, ShapeError


class Gradients(NamedTuple):
    """Results of a function, gradients in the structure of its operands, and gradients of the parameters."""

    outputs: Any
    operands: Any
    parameters: tuple[Value, ...]


class _Executed(NamedTuple):
    """A finished call: the handles of its operands, its results, and the part of the record that it wrote."""

    handles: Sequence[Value]
    outputs: Any
    begin: Mark
    end: int


def differentiate(
    function: Callable[..., Any], operands: Sequence[Any], parameters: Sequence[Parameter] = (), sens: Any = None
) -> Gradients:
    """The gradients of the results of `function(*operands)`, each summed over its elements and times `sens`.

    `sens` has the structure and shapes of the results (default: ones). Operands and results are structures of values;
    the gradient of what is no float is 0, and numbers and other constants have none (None). A cell that this step has
    called with the same operands, without assignments in between, is not executed again: its random numbers are drawn
    and its statistics updated once. Raises ShapeError when `sens` does not fit, NotDifferentiable as `gradients`.
    """
    interpreter = current()
    flat = flatten(tuple(operands))
    with interpreter.differentiation():
        executed = _earlier_call(interpreter, function, flat) or _execute(interpreter, function, flat)
    outputs = flatten(executed.outputs)
    adjoint = _seeds(interpreter, outputs, sens)
    targets = [(handle,) for handle in executed.handles] + versions(parameters, executed.begin)
    found = pull_back(adjoint, targets, executed.begin, last=True, until=executed.end)
    own, count = [*flat.values, *parameters], len(flat.values)
    typed = [interpreter.with_dtype(value, x.dtype) for value, x in zip(found, own, strict=True)]
    return Gradients(executed.outputs, flat.rebuild(typed[:count]), tuple(typed[count:]))


def _earlier_call(interpreter: Interpreter, function: Callable[..., Any], flat: FlatStructure) -> _Executed | None:
    call = interpreter.calls.get(function)
    if call is None or call.end.assignments != interpreter.assignments:
        return None
    before = flatten(call.inputs)
    values = flat.values
    same = before.layout == flat.layout and all(x is y for x, y in zip(before.values, values, strict=True))
    changes = any(isinstance(x, Parameter) or x in interpreter.originals for x in values)
    if not same or changes or len(set(values)) < len(values):
        return None
    return _Executed([interpreter.lift(x) for x in values], call.outputs, call.begin, call.end.position)


def _execute(interpreter: Interpreter, function: Callable[..., Any], flat: FlatStructure) -> _Executed:
    begin = interpreter.mark()
    # Each operand gets a handle of its own, although the same value may be another operand, or used by the function.
    handles = [OPERATORS["Identity"](x) if x.dtype.is_float else interpreter.lift(x) for x in flat.values]
    outputs = function(*flat.rebuild(handles))
    handles = [interpreter.original(handle) for handle in handles]  # the function may assign elements of its operands
    return _Executed(handles, outputs, begin, interpreter.mark().position)


def _seeds(interpreter: Interpreter, outputs: FlatStructure, sens: Any) -> dict[Value, Value]:
    if not outputs.values:
        raise ConfigError("a function without a tensor as its result has no gradient", repair="return a tensor")
    given = _fitting(outputs, sens)
    adjoint: dict[Value, Value] = {}
    for y, seed in zip(outputs.values, given, strict=True):
        if y.dtype.is_float:
            handle, value = interpreter.lift(y), interpreter.with_dtype(interpreter.lift(seed), y.dtype)
            adjoint[handle] = OPERATORS["Add"](adjoint[handle], value) if handle in adjoint else value
    return adjoint


def _fitting(outputs: FlatStructure, sens: Any) -> Sequence[Value]:
    """One `sens` for each result, of its shape."""
    if sens is None or isinstance(sens, int | float):
        return [_filled(y, 1.0 if sens is None else sens) for y in outputs.values]
    seeds = flatten(sens).values
    if [seed.shape for seed in seeds] != [y.shape for y in outputs.values]:
        given, results = (", ".join(str(x.type) for x in values) for values in (seeds, outputs.values))
        repair = "one sens for each result, of its shape, such as ops.OnesLike()(result)"
        raise ShapeError("sens does not fit the results of the function", sens=given, results=results, repair=repair)
    return seeds


def _filled(like: Value, number: float) -> Tensor:
    return Tensor(np.full(like.shape, number, like.dtype.numpy))
