"""What an operator may ask of the compiler while it lowers itself, and the forms in which it offers to do so.

A value lies either as its type says (NCHW), or *batch last* (CHWN): its first axis, which in activations is the batch,
has moved to the end. The meaning of a value does not change, only the memory of the device; of one axis both are equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from runner.types import Shape, TensorType

Names = str | tuple[str, ...]
FUSED = "com.microsoft"  # the domain of onnxruntime's own operators


class Builder(Protocol):
    """Collects ONNX nodes. Values are known by name; asking twice for the same node or constant gives the same name."""

    def node(self, kind: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and return its name; an empty input name stands for one that is left out."""

    def nodes(
        self, kind: str, inputs: Sequence[str], outputs: int, domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs and return their names."""

    def const(self, value: Any, like: str | None = None) -> str:
        """A constant: an array as it is, ints as Int64, floats in the element type of `like`."""

    def type(self, name: str) -> TensorType:
        """Type of an operand of the operator that is being lowered, whichever way it lies."""

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """The value in another shape."""

    def value(self, name: str) -> np.ndarray | None:
        """The value of an operand that is known when the graph is compiled, else None."""


@dataclass(frozen=True)
class Form:
    """One way to lower an operator: `lower` adds the ONNX nodes and gives the names of the results.

    `operands` and `results` tell which of them lie batch last. `penalty` is what the form loses against the best one,
    in elements that could have been copied in the same time; it weighs against turning operands around.
    """

    name: str
    lower: Callable[..., Names]
    operands: tuple[bool, ...] = ()
    results: tuple[bool, ...] = ()
    penalty: int = 0


def batch_last(shape: Shape) -> Shape:
    """The shape in which a value of that shape lies batch last.

    >>> batch_last((32, 3, 8, 9))
    (3, 8, 9, 32)
    """
    return (*shape[1:], *shape[:1])


def axis_last(axis: int, ndim: int) -> int:
    """Where an axis is when the value lies batch last.

    >>> [axis_last(axis, 4) for axis in (0, 1, -1)]
    [3, 0, 2]
    """
    return (axis - 1) % ndim


def either_way(lower: Callable[..., Names], *operands: TensorType, results: int = 1) -> tuple[Form, ...]:
    """The forms of an operator that treats every element alike, for operands of one shape."""
    plain = Form("plain", lower)
    if operands[0].ndim < 2:
        return (plain,)
    return plain, Form("batch_last", lower, (True,) * len(operands), (True,) * results)
