"""The interface between an operator's lowering and the ONNX builder, memory layouts, and alternative lowerings.

The memory layout of a value does not change its meaning. Activations are fastest in batch-last layout; before a 2x2
pool also tiled, so that the four corners of all tiles are four contiguous blocks of memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from itertools import chain, repeat
from typing import Any, Protocol, TypeVar

import numpy as np

from runner import dtype as dt
from runner.types import Shape, TensorType

T = TypeVar("T")
# Element types in which a lowering gives the same where onnxruntime has no kernel for the given one: rounding off the
# upper bits of sums and products of whole numbers is what overflow does, so casts back are exact.
ORDERED = {dt.int16: dt.int32, dt.uint16: dt.int32}  # also comparisons and quotients are the same
SMALL = {**ORDERED, dt.int8: dt.int32, dt.uint8: dt.int32, dt.uint32: dt.int64}
MODULAR = {**SMALL, dt.uint64: dt.int64}  # sums, products and moved elements only
Names = str | tuple[str, ...]
FUSED = "com.microsoft"  # domain of onnxruntime's contrib operators


class Layout(Enum):
    """Memory layout of a value (N, C, H, W). Any value may be batch last: its first axis moved to the end."""

    PLAIN = "NCHW"
    LAST = "CHWN"
    TILED = "22CHWN"  # (2, 2, C, H/2, W/2, N): the corners of 2x2 tiles, upper left first


PLAIN, LAST, TILED = Layout


class Builder(Protocol):
    """Collects ONNX nodes. Values are identified by name; the same node or constant always has the same name.

    `on_host`: the nodes are for onnxruntime's CPU provider alone; others may break ties, for example, in other ways.
    """

    on_host: bool

    def node(self, kind: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and return its name; an empty input name is an omitted optional input."""

    def nodes(
        self, kind: str, inputs: Sequence[str], outputs: int, domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs and return their names."""

    def unshared(self) -> AbstractContextManager[None]:
        """Inside, equal nodes of other operators are not shared: what they computed need not stay in memory."""

    def const(self, value: Any, like: str | None = None) -> str:
        """A constant: an array unchanged, ints as Int64, floats in the element type of `like`."""

    def type(self, name: str) -> TensorType:
        """Type of an operand of the operator that is being lowered, in any layout."""

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """The value reshaped."""

    def value(self, name: str) -> np.ndarray | None:
        """The array of a constant; None for a value that is only known at run time."""


@dataclass(frozen=True)
class Lowering:
    """One way to lower an operator: `lower` adds the ONNX nodes and returns the names of the results.

    `operands` and `results` are their layouts (plain where not given). `penalty` is the cost relative to the best
    one, in elements that could be copied in the same time; it is weighed against transposing operands. `winograd`
    is whether it computes with Winograd's transforms, whose rounding errors are larger (`session.winograd`).
    """

    name: str
    lower: Callable[..., Names]
    operands: tuple[Layout, ...] = ()
    results: tuple[Layout, ...] = ()
    penalty: int = 0
    winograd: bool = False

    def __str__(self) -> str:
        """Its name and the layouts of operands and results, as in `tiled(22CHWN,CHWN)` and `last(CHWN)->CHWN`."""
        operands, results = (",".join(layout.value for layout in side) for side in (self.operands, self.results))
        return f"{self.name}({operands})" + (f"->{results}" if results else "")


def physical_shape(shape: Shape, layout: Layout) -> Shape:
    """The shape of the array that holds a value of `shape` in a layout. TILED needs (N, C, H, W) with even H and W.

    >>> physical_shape((32, 3, 8, 10), LAST), physical_shape((32, 3, 8, 10), TILED)
    ((3, 8, 10, 32), (2, 2, 3, 4, 5, 32))
    """
    if layout is TILED:
        batch, channels, height, width = shape
        return 2, 2, channels, height // 2, width // 2, batch
    return (*shape[1:], *shape[:1]) if layout is LAST else shape


def with_layouts(values: Iterable[T], layouts: Sequence[Layout]) -> Iterator[tuple[T, Layout]]:
    """Operands or results, each with its layout; plain where no layout is given."""
    return zip(values, chain(layouts, repeat(PLAIN)), strict=False)


def can_tile(x: TensorType) -> bool:
    """Whether a value can have the tiled layout."""
    return x.ndim == 4 and x.shape[2] % 2 == x.shape[3] % 2 == 0


def axis_last(axis: int, ndim: int) -> int:
    """The position of an axis in the batch-last layout.

    >>> [axis_last(axis, 4) for axis in (0, 1, -1)]
    [3, 0, 2]
    """
    return (axis - 1) % ndim


def elementwise_lowerings(lower: Callable[..., Names], *operands: TensorType, results: int = 1) -> tuple[Lowering, ...]:
    """The lowerings of an elementwise operator whose operands have one shape: one per layout that they can have."""
    layouts = [PLAIN, *[LAST] * (operands[0].ndim > 1), *[TILED] * can_tile(operands[0])]
    return tuple(Lowering(x.name.lower(), lower, (x,) * len(operands), (x,) * results) for x in layouts)
