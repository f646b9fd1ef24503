"""Operators that only change gradients, and cells that compute their own."""

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from runner.core.lowering import Builder, Names
from runner.core.operators import Arrays, Gradient, Primitive, Types, current, primitive
from runner.core.precision import Needs
from runner.core.structure import FlatStructure, flatten, map_values
from runner.core.values import Value
from runner.errors import ConfigError, ShapeError
from runner.ops.handle import Identity
from runner.types import TensorType

__all__ = ["CustomGradient", "HookBackward", "StopGradient", "stop_gradient"]

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
        """What the hook returns."""
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
    needs: ClassVar = Needs.NOTHING

    count: int
    rule: Rule = field(compare=False)

    def infer(self, *types: TensorType) -> Types:
        """The types of the results."""
        return types[self.count :]

    def kernel(self, *arrays: np.ndarray) -> Arrays:
        return arrays[self.count :]

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        """What the rule returns."""
        return *self.rule(inputs[: self.count], outputs, douts), *[None] * len(outputs)

    def lower(self, b: Builder, *names: str) -> Names:
        return tuple([b.node("Identity", (name,)) for name in names[self.count :]])

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        """A single result."""
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
