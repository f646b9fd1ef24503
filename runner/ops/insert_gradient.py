"""Operators that concern only gradients."""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.primitive import Gradient, Primitive, current, primitive
from runner.core.value import Value
from runner.errors import ConfigError, ShapeError
from runner.types import TensorType


@primitive
class InsertGradientOf(Primitive):
    """x as it is; on the way back the gradient becomes f(gradient): the place to look at it, or to change it.

    `f` takes a tensor and gives one of the same type; it is written in operators, like `construct`. It is no attribute:
    when the gradients are formed it has done its work, and all that stays is the identity. Raises ConfigError when `f`
    cannot be called, and ShapeError, while gradients are formed, when it gives something else.
    """

    computes: ClassVar = False

    f: Callable[[Value], Value] = field(compare=False)

    def __post_init__(self) -> None:
        if not callable(self.f):
            raise ConfigError("InsertGradientOf needs a function", given=type(self.f).__name__, takes="f(gradient)")

    def infer(self, x: TensorType) -> TensorType:
        """As x."""
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        """x itself."""
        return x

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        """What `f` makes of the gradient."""
        return (lambda: self._made(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        """The identity; usually the graph does without it."""
        return b.node("Identity", (x,))

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        """Always x."""
        return 0

    def _made(self, dout: Value) -> Value:
        made = self.f(dout)
        if isinstance(made, Value) and made.type == dout.type:
            return made
        error = ShapeError(
            "the function must give a gradient of the same type",
            function=getattr(self.f, "__qualname__", type(self.f).__name__),
            given=made.type if isinstance(made, Value) else type(made).__name__,
            takes=dout.type,
        )
        raise current().add_location(error, self, (dout,))
