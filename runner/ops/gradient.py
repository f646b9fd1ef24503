"""Operators that only change gradients, gradients that a user writes (`bprop`), and gradients as functions.

`core/gradients.py` has the walk backwards through a record; here are the operators and `GradOperation`, which use it.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from runner.core.gradients import differentiate
from runner.core.interpreter import Eager, current, execution, is_nested
from runner.core.lowering import Builder, Names
from runner.core.operators import Arrays, Gradient, Primitive, Types, primitive
from runner.core.precision import OperandPrecision
from runner.core.values import FlatStructure, Parameter, Value, flatten, map_values
from runner.errors import ConfigError, ShapeError
from runner.ops.array import Identity
from runner.types import TensorType
from runner.validation.rules import KeywordNames

Rule = Callable[[Sequence[Value], Sequence[Value], Sequence[Value]], Sequence[Gradient]]


@primitive
class StopGradient(Identity):
    """x itself, through which no gradient passes."""

    is_flat: ClassVar = True


def stop_gradient(x: Any) -> Any:
    """x, or the values of a tuple or list, through which no gradient passes."""
    return map_values(lambda value: StopGradient()(value) if value.dtype.is_float else value, x)


@primitive
class HookBackward(Identity):
    """x itself; calls `hook_fn((gradient,))` with its gradient, which the result replaces unless it is None.

    For PyNative mode: while graph mode traces, a gradient has no numbers. `cell_id` is a name for hooks of cells: with
    it, the call is `hook_fn(cell_id, (gradient,))`. Raises ConfigError when `hook_fn` is no function, and ShapeError,
    while gradients are computed, when it returns another type.
    """

    hook_fn: Callable[..., Any] = field(compare=False)
    cell_id: str = ""

    def __post_init__(self) -> None:
        if not callable(self.hook_fn):
            raise ConfigError("HookBackward needs a function", given=type(self.hook_fn).__name__, takes="f(gradients)")

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (partial(self._hooked, douts[0]),)

    def _hooked(self, dout: Value) -> Value:
        result = self.hook_fn(self.cell_id, (dout,)) if self.cell_id else self.hook_fn((dout,))
        values = flatten(result).values
        if result is None:
            return dout
        if len(values) != 1 or values[0].type != dout.type:
            rows = {"given": ", ".join(str(x.type) for x in values) or type(result).__name__, "takes": dout.type}
            raise current().add_location(ShapeError("a hook returns a gradient or None", **rows), self, (dout,))
        return values[0]


@primitive
class CustomGradient(Primitive):
    """(operands, results) to the results, whose gradients `rule` computes: `bprop` of a cell.

    The first `count` operands are those of the cell, the others its results. `rule(operands, results, gradients)`
    returns the gradients of the first `count`. Nothing else has one: those of the cell's parameters are 0, as in r1.2.
    """

    computes: ClassVar = False
    precision: ClassVar = OperandPrecision.NOTHING

    count: int
    rule: Rule = field(compare=False)

    def infer(self, *types: TensorType) -> Types:
        return types[self.count :]

    def kernel(self, *arrays: np.ndarray) -> Arrays:
        return arrays[self.count :]

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return *self.rule(inputs[: self.count], outputs, douts), *[None] * len(outputs)

    def lower(self, b: Builder, *names: str) -> Names:
        return tuple([b.node("Identity", (name,)) for name in names[self.count :]])

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return self.count if len(types) == self.count + 1 else None


def with_bprop(construct: Callable[..., Any], bprop: Callable[..., Any], *inputs: Any) -> Any:
    """`construct(*inputs)`, with the gradients that `bprop(*inputs, out, dout)` returns, one for each input.

    Raises ShapeError, while gradients are computed, when they do not fit the inputs.
    """
    operands, results = flatten(inputs), flatten(construct(*stop_gradient(inputs)))
    rule = partial(_apply_bprop, bprop, operands, results)
    made = current().bind(CustomGradient(len(operands.values), rule), (*operands.values, *results.values))
    return results.rebuild(made)


def _apply_bprop(
    bprop: Callable[..., Any],
    operands: FlatStructure,
    results: FlatStructure,
    values: Sequence[Value],
    outputs: Sequence[Value],
    douts: Sequence[Value],
) -> Sequence[Value]:
    inputs = operands.rebuild(values)
    returned = bprop(*inputs, results.rebuild(outputs), results.rebuild(douts))
    given = returned if isinstance(returned, tuple | list) else (returned,)
    rows = {"bprop": getattr(bprop, "__qualname__", bprop), "inputs": len(inputs), "given": len(given)}
    if len(given) != len(inputs):
        raise ShapeError("bprop returns one gradient for each input of construct", **rows)
    gradients = flatten(tuple(given)).values
    shapes = [x.shape for x in gradients], [x.shape for x in values]
    if shapes[0] != shapes[1]:
        rows |= {"given": shapes[0], "takes": shapes[1]}
        raise ShapeError("a gradient of bprop has the shape of its input", **rows)
    return gradients


# `GradOperation`: the gradient of a network or function, as a function of the same operands.


def _run_step(function: "GradientFunction", inputs: tuple[Any, ...], sens: dict[str, Any]) -> Any:
    with Eager() as interpreter:
        outputs = function.compute(inputs, sens)
        interpreter.commit()
    return outputs


class GradOperation(KeywordNames):
    """`GradOperation(...)(network)(*inputs)`: gradients of the results of a cell or function, summed over elements.

    By default that of the first input. `get_all`: a tuple of those of all tensors among the inputs. `get_by_list`: a
    tuple of those of the parameters in `GradOperation(...)(network, parameters)`, with `get_all` the pair of both
    tuples. `sens_param`: the last input (or the keyword `sens`) is not one of the network but the factor of its
    results, of their structure and shapes. The function that is returned can be differentiated again. Inputs that are
    no floats have gradients of 0.
    """

    def __init__(self, get_all: bool = False, get_by_list: bool = False, sens_param: bool = False) -> None:
        for name, value in (("get_all", get_all), ("get_by_list", get_by_list), ("sens_param", sens_param)):
            if not isinstance(value, bool):
                raise ConfigError("a setting of GradOperation must be true or false", **{name: repr(value)})
        self.get_all, self.get_by_list, self.sens_param = get_all, get_by_list, sens_param

    def __call__(self, fn: Callable[..., Any], weights: Any = None) -> "GradientFunction":
        """The gradient function. Raises ConfigError when `fn` is no function, or `weights` are no parameters."""
        if not callable(fn):
            raise ConfigError("GradOperation differentiates a cell or a function", given=type(fn).__name__)
        return GradientFunction(self, fn, self._parameters(fn, weights))

    def _parameters(self, fn: Any, weights: Any) -> tuple[Parameter, ...]:
        if not self.get_by_list:
            return ()
        if weights is None:
            weights = getattr(fn, "trainable_params", tuple)()
        elif hasattr(weights, "trainable_params"):
            weights = weights.trainable_params()
        given = (weights,) if isinstance(weights, Parameter) else tuple(weights)
        if not given or not all(isinstance(parameter, Parameter) for parameter in given):
            kinds = ", ".join(sorted({type(x).__name__ for x in given})) or "none"
            repair = "grad(network, ParameterTuple(network.trainable_params()))"
            raise ConfigError("get_by_list needs the parameters to differentiate", given=kinds, repair=repair)
        return given


class GradientFunction:
    """The gradients of `function`, as `operation` selects them."""

    def __init__(
        self, operation: GradOperation, function: Callable[..., Any], parameters: tuple[Parameter, ...]
    ) -> None:
        self.operation, self.function, self.parameters = operation, function, parameters

    @property
    def key(self) -> tuple[Any, ...]:
        """What distinguishes it from the other gradient functions of the same function."""
        options = self.operation
        return options.get_all, options.get_by_list, options.sens_param, *self.parameters

    def __call__(self, *inputs: Any, **sens: Any) -> Any:
        return self.compute(inputs, sens) if is_nested() else (execution.gradient or _run_step)(self, inputs, sens)

    def compute(self, inputs: Sequence[Any], sens: dict[str, Any]) -> Any:
        """The gradients, in operators. Raises ConfigError for a missing `sens`, and without tensors."""
        operands, factor = self._split(tuple(inputs), sens)
        found = differentiate(self.function, operands, self.parameters, factor)
        if self.operation.get_by_list and not self.operation.get_all:
            return found.parameters
        selected = self._of_inputs(operands, found.operands)
        return (selected, found.parameters) if self.operation.get_by_list else selected

    def _split(self, inputs: tuple[Any, ...], sens: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        if not self.operation.sens_param:
            if sens:
                raise ConfigError("unknown argument of a gradient", given=", ".join(sens), repair="sens_param=True")
            return inputs, None
        if "sens" in sens:
            return inputs, sens["sens"]
        if not inputs:
            raise ConfigError("with sens_param the last argument is the factor of the gradient", given="nothing")
        return inputs[:-1], inputs[-1]

    def _of_inputs(self, operands: Sequence[Any], gradients: Sequence[Any]) -> Any:
        pairs = zip(operands, gradients, strict=True)
        of_tensors = [gradient for operand, gradient in pairs if flatten(operand).values]
        if not of_tensors:
            given = ", ".join(type(x).__name__ for x in operands) or "no inputs"
            raise ConfigError("a gradient needs a tensor among the inputs", given=given, repair="get_by_list=True")
        return tuple(of_tensors) if self.operation.get_all else of_tensors[0]


# `InsertGradientOf`: a function applied to the gradient.


@primitive
class InsertGradientOf(Primitive):
    """The identity, whose gradient is f(gradient): to observe or to change gradients.

    `f` takes a tensor and returns one of the same type, computed by operators, as in `construct`. It is not an
    attribute: it is applied while gradients are computed, and the graph contains only the identity. Raises ConfigError
    when `f` is not callable, and ShapeError, while gradients are computed, when it returns another type.
    """

    computes: ClassVar = False

    f: Callable[[Value], Value] = field(compare=False)

    def __post_init__(self) -> None:
        if not callable(self.f):
            raise ConfigError("InsertGradientOf needs a function", given=type(self.f).__name__, takes="f(gradient)")

    def infer(self, x: TensorType) -> TensorType:
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (lambda: self._apply(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        """The identity, which optimised graphs do not contain."""
        return b.node("Identity", (x,))

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0

    def _apply(self, dout: Value) -> Value:
        gradient = self.f(dout)
        if isinstance(gradient, Value) and gradient.type == dout.type:
            return gradient
        function = getattr(self.f, "__qualname__", type(self.f).__name__)
        rows = {"given": gradient.type if isinstance(gradient, Value) else type(gradient).__name__, "takes": dout.type}
        error = ShapeError("the function must return a gradient of the same type", function=function, **rows)
        raise current().add_location(error, self, (dout,))
