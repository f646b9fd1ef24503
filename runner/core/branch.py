"""What a graph has for a branch on a value of the step: an operator with two graphs, of which one is computed.

`runner/core/join_paths.py` makes them from what was traced; no network applies them.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from runner.core.effect import Effect
from runner.core.graph import Graph
from runner.core.lowering import Builder
from runner.core.precision import Needs
from runner.core.primitive import Primitive, Types, graph_operator
from runner.types import TensorType


@graph_operator
class If(Primitive):
    """`then` if the first operand, which has one element, is not 0, or else `other`.

    Both are graphs with constants, without parameters and effects. Their inputs are the other operands, and their
    outputs, which have the same types, the results.
    """

    needs: ClassVar = Needs.NOTHING
    computes: ClassVar = False

    then: Graph
    other: Graph

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """Both graphs."""
        return self.then, self.other

    def with_graphs(self, graphs: Sequence[Graph]) -> "If":
        """The branch with other graphs."""
        return If(*graphs)

    def infer(self, predicate: TensorType, *operands: TensorType) -> Types:
        return tuple([x.type for x in self.then.outputs])

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return max(map(graph_flops, self.graphs))

    def attributes(self) -> dict[str, Any]:
        return {"then": self.then.name, "other": self.other.name}

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def graph_flops(graph: Graph) -> int:
    """Floating-point operations of one execution of a graph."""
    return sum(node.op.flops([x.type for x in node.inputs], [y.type for y in node.outputs]) for node in graph.nodes)


@graph_operator
class Absent(Primitive):
    """The result of a graph that stands for a value of the other one; nothing reads it."""

    needs: ClassVar = Needs.NOTHING
    computes: ClassVar = False

    type: TensorType

    def infer(self) -> TensorType:
        return self.type

    def kernel(self) -> np.ndarray:
        return np.zeros(self.type.shape, self.type.dtype.numpy)

    def lower(self, b: Builder) -> str:
        shape = b.const(list(self.type.shape))
        return b.node("Expand", (b.const(np.zeros((), self.type.dtype.numpy)), shape))


@graph_operator
class Guarded(Effect):
    """An effect of one path: it is emitted if the first operand is not 0, or with `when=False` if it is 0."""

    effect: Effect
    when: bool

    @property
    def name(self) -> str:
        return self.effect.name

    def infer(self, predicate: TensorType, *operands: TensorType) -> Types:
        return self.effect.infer(*operands)

    def emit(self, *arrays: np.ndarray) -> None:
        """Output the operands, without the first one, if this path was taken."""
        predicate, *operands = arrays
        if bool(predicate) is self.when:
            self.effect.emit(*operands)
