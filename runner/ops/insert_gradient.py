"""Operators that affect only gradients."""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, current, primitive
from runner.core.values import Value
from runner.errors import ConfigError, ShapeError
from runner.types import TensorType

__all__ = ["InsertGradientOf"]


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
        """The type of x."""
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        """x itself."""
        return x

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        """f(gradient)."""
        return (lambda: self._apply(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        """The identity, which optimised graphs do not contain."""
        return b.node("Identity", (x,))

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        """Always x."""
        return 0

    def _apply(self, dout: Value) -> Value:
        gradient = self.f(dout)
        if isinstance(gradient, Value) and gradient.type == dout.type:
            return gradient
        function = getattr(self.f, "__qualname__", type(self.f).__name__)
        rows = {"given": gradient.type if isinstance(gradient, Value) else type(gradient).__name__, "takes": dout.type}
        error = ShapeError("the function must return a gradient of the same type", function=function, **rows)
        raise current().add_location(error, self, (dout,))
