"""Functions that are made of operators."""

from runner.core.value import Operand, Value
from runner.ops.compare import Maximum, Minimum


def clip_by_value(x: Value, clip_value_min: Operand, clip_value_max: Operand) -> Value:
    """x where it lies between the two (numbers, or tensors that broadcast against x), else the nearer of them.

    Where x equals a bound the gradient goes to x. Where `clip_value_min` is the larger of the two, it wins.
    """
    clipped: Value = Maximum()(Minimum()(x, clip_value_max), clip_value_min)
    return clipped
