"""Operators over the ranks of a data-parallel run: sums of values, and rows of the parts of a batch."""

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import ClassVar

import numpy as np

from runner.communication.management import WORLD, get_rank
from runner.communication.world import world
from runner.core.lowering import Builder, Names
from runner.core.operators import Arrays, Collective, Gradient, Primitive, graph_operator, primitive
from runner.core.precision import OperandPrecision
from runner.core.values import Value
from runner.errors import ConfigError, ShapeError
from runner.types import TensorType

# Sums and means of values.

KINDS = "sum", "mean"


class ReduceOp:
    """The reductions of AllReduce by MindSpore's names; MAX, MIN and PROD are errors."""

    SUM, MAX, MIN, PROD = "sum", "max", "min", "prod"


@primitive
class AllReduce(Collective):
    """Each operand summed over all ranks (`op="mean"`: divided by their number), the same on every rank.

    The operands, of one float type, are exchanged in one message. Sums are added in a fixed order, so that two
    runs give the same bits. With a single process, and in exported models, it is the identity. Raises ConfigError for
    another `op` or `group`. Source: `mindspore.ops.AllReduce` r1.2, which has no "mean".
    """

    precision: ClassVar = OperandPrecision.MASTER  # it sums the gradients that update parameters
    op: str = "sum"
    group: str = field(default=WORLD, compare=False)

    def __post_init__(self) -> None:
        get_rank(self.group)  # raises for another group
        if self.op not in KINDS:
            raise ConfigError("unknown reduction of AllReduce", op=repr(self.op), allowed=", ".join(KINDS))

    def infer(self, *types: TensorType) -> TensorType | tuple[TensorType, ...]:
        """The types of the operands. Raises ShapeError unless they are floats of one type."""
        kinds = {x.dtype for x in types}
        if len(kinds) != 1 or not types[0].dtype.is_float:
            raise ShapeError("operands must be floats of one type", given=", ".join(map(str, types)) or "none")
        return types if len(types) > 1 else types[0]

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return sum(x.size for x in inputs)

    def kernel(self, *arrays: np.ndarray) -> Arrays:
        """Exchange with the other ranks. Raises TrainingError when they have ended."""
        with world().exchanging():
            result = world().summed(arrays)
        if self.op == "mean":
            result = [array / array.dtype.type(world().size) for array in result]
        return tuple(result) if len(result) > 1 else result[0]

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        """The result depends on the operand of every rank, so gradients are reduced in the same way."""
        return [partial(self, dout) for dout in douts]

    def lower(self, b: Builder, *names: str) -> Names:
        """The identity of a single process; runner itself splits graphs here."""
        result = tuple([b.node("Identity", (name,)) for name in names])
        return result if len(result) > 1 else result[0]


# Rows of the parts of a batch, which ranks have in turn: part p belongs to rank p mod n.


@graph_operator
class GatheredRows(Collective):
    """The rows of the parts of all `ranks`, in the order of the parts, from those of this rank: the same on each.

    The operands (P, ...) of one float type are exchanged in one message; the results are (P * ranks, ...).
    """

    precision: ClassVar = OperandPrecision.NOTHING
    computes: ClassVar = False

    ranks: int = 1

    def infer(self, *rows: TensorType) -> tuple[TensorType, ...]:
        return tuple([x.with_shape(x.shape[0] * self.ranks, *x.shape[1:]) for x in rows])

    def kernel(self, *rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Exchange with the other ranks. Raises TrainingError when they have ended."""
        # A sum in which each row has one term: -0.0 changes nothing, not even the sign of a 0.
        every = [np.full((len(x) * self.ranks, *x.shape[1:]), -0.0, x.dtype) for x in rows]
        for whole, own in zip(every, rows, strict=True):
            whole[world().rank :: self.ranks] = own
        with world().exchanging():
            return tuple(world().summed(every))


@graph_operator
class OwnRows(Primitive):
    """Of rows of the parts of all `ranks` those of this rank."""

    precision: ClassVar = OperandPrecision.NOTHING
    computes: ClassVar = False
    on_host: ClassVar = True

    ranks: int = 1

    def infer(self, *rows: TensorType) -> tuple[TensorType, ...]:
        return tuple([x.with_shape(x.shape[0] // self.ranks, *x.shape[1:]) for x in rows])

    def kernel(self, *rows: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple([np.ascontiguousarray(x[world().rank :: self.ranks]) for x in rows])
