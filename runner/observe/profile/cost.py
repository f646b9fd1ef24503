"""The work of an operator: floating-point operations, and the minimum of bytes that must be moved.

    products and convolutions   two for each multiply-add of the definition (exact)
    pools                       one for each element of each window
    reductions, AllReduce       one for each element of the operands
    normalisations, losses      a few for each element (`EACH`), as in the usual formulas
    data movement               none
    all others                  one for each element of the results

Bytes are those of all operands and results, each counted once: the traffic of a machine with an infinite cache.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from runner.core.primitive import Primitive
from runner.types import TensorType

Types = Sequence[TensorType]


class Cost(NamedTuple):
    """Floating-point operations and bytes of one execution."""

    flops: int
    bytes: int


def cost(op: Primitive, inputs: Types, outputs: Types) -> Cost:
    """The work of one execution of an operator on values of these types."""
    rule = RULES.get(op.name)
    flops = rule(op, inputs, outputs) if rule else EACH.get(op.name, 1) * sum(y.size for y in outputs[:1])
    return Cost(flops, sum(value.nbytes for value in (*inputs, *outputs)))


def _product(op: Any, inputs: Types, outputs: Types) -> int:
    """2 m n k; k is the contracted axis of the first operand."""
    inner = inputs[0].shape[-2] if op.transpose_a else inputs[0].shape[-1]
    return 2 * outputs[0].size * inner


def _convolution(result: Callable[[Types, Types], TensorType], filters: Callable[[Types, Types], TensorType]) -> Any:
    """For each element of the convolution's result, one multiply-add for each element of a filter."""

    def flops(op: Any, inputs: Types, outputs: Types) -> int:
        return 2 * result(inputs, outputs).size * math.prod(filters(inputs, outputs).shape[1:])

    return flops


def _windows(number: int) -> Any:
    """An operator on windows, for each element of the pooled value: the result (-1) or an operand by number."""

    def flops(op: Any, inputs: Types, outputs: Types) -> int:
        taps: int = math.prod(op.kernel_size)
        return taps * (outputs[0] if number < 0 else inputs[number]).size

    return flops


def _operand(op: Any, inputs: Types, outputs: Types) -> int:
    return inputs[0].size


def _operands(op: Any, inputs: Types, outputs: Types) -> int:
    return sum(x.size for x in inputs)


def _nothing(op: Any, inputs: Types, outputs: Types) -> int:
    return 0


MOVERS = (
    *("Reshape", "Flatten", "ExpandDims", "Squeeze", "Transpose", "Concat", "Slice", "Pad", "Split", "Stack"),
    *("Unstack", "Tile", "BroadcastTo", "Gather", "OneHot", "StridedSlice", "StridedSliceGrad", "OnesLike"),
    *("ZerosLike", "Cast", "InsertGradientOf", "Print"),
)
REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "Argmax", "Argmin", "BiasAddGrad"),
    "UnsortedSegmentSum",
)
RULES: dict[str, Callable[[Any, Types, Types], int]] = {
    "MatMul": _product,
    "BatchMatMul": _product,
    "Conv2D": _convolution(lambda inputs, outputs: outputs[0], lambda inputs, outputs: inputs[1]),
    "Conv2DBackpropInput": _convolution(lambda inputs, outputs: inputs[0], lambda inputs, outputs: inputs[1]),
    "Conv2DBackpropFilter": _convolution(lambda inputs, outputs: inputs[0], lambda inputs, outputs: outputs[0]),
    "MaxPool": _windows(-1),
    "AvgPool": _windows(-1),
    "MaxPoolGrad": _windows(1),
    "AvgPoolGrad": _windows(0),
    **dict.fromkeys(REDUCTIONS, _operand),
    "AllReduce": _operands,
    **dict.fromkeys(MOVERS, _nothing),
}
EACH = {
    **dict.fromkeys(("BatchNorm", "LayerNorm"), 7),  # mean 1, variance 3, normalised 2, scaled and shifted 2, rounded
    **dict.fromkeys(("BatchNormGrad", "LayerNormGrad"), 11),
    **dict.fromkeys(("Softmax", "LogSoftmax"), 5),  # maximum, difference, exponential, sum, quotient
    **dict.fromkeys(("Sigmoid", "Tanh", "GeLU", "GeLUGrad", "Softplus", "Elu"), 4),
    "ApplyMomentum": 4,
    "SGD": 4,
    "Adam": 11,
}
