"""`Identity`: gives a value a second handle, from which gradients can be computed."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.precision import Needs
from runner.core.values import OPERATORS, Value
from runner.types import TensorType

__all__ = ["Identity"]


@primitive
class Identity(Primitive):
    """x itself."""

    computes: ClassVar = False
    needs: ClassVar = Needs.NOTHING

    def infer(self, x: TensorType) -> TensorType:
        """The type of x."""
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0],)

    def lower(self, b: Builder, x: str) -> str:
        """A node that optimised graphs do not contain."""
        return b.node("Identity", (x,))

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        """Always x."""
        return 0


OPERATORS["Identity"] = Identity()
