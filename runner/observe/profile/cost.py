"""The work of an operator: floating-point operations, and the minimum of bytes that must be moved.

    products and convolutions   two for each multiply-add of the definition (exact)
    pools                       one for each element of each window
    reductions, AllReduce       one for each element of the operands
    normalisations, losses      a few for each element (`Primitive.flops_each`), as in the usual formulas
    data movement               none
    all others                  one for each element of the results

Operations are counted by the operators themselves (`Primitive.flops`). Bytes are those of all operands and results,
each counted once: the traffic of a machine with an infinite cache.
"""

from collections.abc import Sequence
from typing import NamedTuple

from runner.core.operators import Primitive
from runner.types import TensorType


class Cost(NamedTuple):
    """Floating-point operations and bytes of one execution."""

    flops: int
    bytes: int


def cost(op: Primitive, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Cost:
    """The work of one execution of an operator on values of these types."""
    return Cost(op.flops(inputs, outputs), sum(value.nbytes for value in (*inputs, *outputs)))
