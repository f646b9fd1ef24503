"""Operators over the ranks of a data-parallel run."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from runner.communication.world import world
from runner.core.collective import Collective
from runner.core.lowering import Builder, Names
from runner.core.precision import Needs
from runner.core.primitive import Arrays, Gradient, primitive
from runner.core.value import Value
from runner.errors import ConfigError, ShapeError
from runner.types import TensorType

KINDS = "sum", "mean"


@primitive
class AllReduce(Collective):
    """Each operand summed over all ranks (`op="mean"`: divided by their number), the same on every rank.

    The operands, of one float type, travel together. Sums are added in the order of ranks, so that two runs give the
    same bits. A process by itself is a world of one, where it changes nothing; so is a file that others run. Raises
    ConfigError for another `op`. Source: `mindspore.ops.AllReduce` r1.2, which knows no "mean".
    """

    needs: ClassVar = Needs.MASTER  # sums over ranks, of what parameters are updated with
    op: str = "sum"

    def __post_init__(self) -> None:
        if self.op not in KINDS:
            raise ConfigError("AllReduce cannot do this", op=repr(self.op), allowed=", ".join(KINDS))

    def infer(self, *types: TensorType) -> TensorType | tuple[TensorType, ...]:
        """As the operands. Raises ShapeError unless they are floats of one type."""
        kinds = {x.dtype for x in types}
        if len(kinds) != 1 or not types[0].dtype.is_float:
            raise ShapeError("operands must be floats of one type", given=", ".join(map(str, types)) or "none")
        return types if len(types) > 1 else types[0]

    def kernel(self, *arrays: np.ndarray) -> Arrays:
        """Exchange with the other ranks. Raises TrainingError when they are gone."""
        with world().exchanging():
            made = world().summed(arrays)
        if self.op == "mean":
            made = [array / array.dtype.type(world().size) for array in made]
        return tuple(made) if len(made) > 1 else made[0]

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        """What depends on a value of all ranks depends on each of them: their gradients are reduced alike."""
        return [partial(self, dout) for dout in douts]

    def lower(self, b: Builder, *names: str) -> Names:
        """A world of one; runner itself cuts graphs here."""
        made = tuple([b.node("Identity", (name,)) for name in names])
        return made if len(made) > 1 else made[0]
