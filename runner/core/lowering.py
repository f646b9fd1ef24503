"""What an operator may ask of the compiler while it lowers itself, and the forms in which it offers to do so.

How a value lies in the memory of the device does not change what it means. Activations are fastest batch last; in front
of a pool of 2x2 also in tiles, so that the four corners of all tiles are four blocks of memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np

from runner.types import Shape, TensorType

Names = str | tuple[str, ...]
FUSED = "com.microsoft"  # the domain of onnxruntime's own operators


class Layout(Enum):
    """How a value (N, C, H, W) lies. Any value may lie batch last: its first axis has moved to the end."""

    PLAIN = "NCHW"
    LAST = "CHWN"
    TILED = "22CHWN"  # (2, 2, C, H/2, W/2, N): the corners of tiles of 2x2, upper left first


PLAIN, LAST, TILED = Layout


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
        """The array of a constant; None for what is only known when the graph runs."""


@dataclass(frozen=True)
class Form:
    """One way to lower an operator: `lower` adds the ONNX nodes and gives the names of the results.

    `operands` and `results` tell how they lie (plain where they say nothing). `penalty` is what the form loses against
    the best one, in elements that could have been copied in the same time; it weighs against turning operands around.
    """

    name: str
    lower: Callable[..., Names]
    operands: tuple[Layout, ...] = ()
    results: tuple[Layout, ...] = ()
    penalty: int = 0

    def __str__(self) -> str:
        """Its name and how its operands and results lie, as in `tiled(22CHWN,CHWN)` and `last(CHWN)->CHWN`."""
        operands, results = (",".join(way.value for way in ways) for ways in (self.operands, self.results))
        return f"{self.name}({operands})" + (f"->{results}" if results else "")


def physical_shape(shape: Shape, layout: Layout) -> Shape:
    """The shape that a value of that shape has in memory. Only (N, C, H, W) with even H and W lie in tiles.

    >>> lying((32, 3, 8, 10), LAST), lying((32, 3, 8, 10), TILED)
    ((3, 8, 10, 32), (2, 2, 3, 4, 5, 32))
    """
    if layout is TILED:
        batch, channels, height, width = shape
        return 2, 2, channels, height // 2, width // 2, batch
    return (*shape[1:], *shape[:1]) if layout is LAST else shape


def can_tile(x: TensorType) -> bool:
    """Whether a value may lie in tiles."""
    return x.ndim == 4 and x.shape[2] % 2 == x.shape[3] % 2 == 0


def axis_last(axis: int, ndim: int) -> int:
    """Where an axis is when the value lies batch last.

    >>> [axis_last(axis, 4) for axis in (0, 1, -1)]
    [3, 0, 2]
    """
    return (axis - 1) % ndim


def elementwise_forms(lower: Callable[..., Names], *operands: TensorType, results: int = 1) -> tuple[Form, ...]:
    """The forms of an operator that treats every element alike, for operands of one shape."""
    ways = [PLAIN, *[LAST] * (operands[0].ndim > 1), *[TILED] * can_tile(operands[0])]
    return tuple(Form(way.name.lower(), lower, (way,) * len(operands), (way,) * results) for way in ways)
