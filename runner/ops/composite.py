"""Functions composed of operators."""

from functools import partial

from runner.core.value import Operand, Value
from runner.host.lazy import reference_attribute
from runner.ops.compare import Maximum, Minimum

__all__ = ["clip_by_value"]
__getattr__ = partial(reference_attribute, __name__)
__path__: list[str] = []  # MindSpore has modules below it: runner/mindspore/addresses.py


def clip_by_value(x: Value, clip_value_min: Operand, clip_value_max: Operand) -> Value:
    """x limited to the range of the two bounds (numbers, or tensors that broadcast against x).

    Where x equals a bound the gradient goes to x. If `clip_value_min` is larger than `clip_value_max`, it takes
    precedence.
    """
    clipped: Value = Maximum()(Minimum()(x, clip_value_max), clip_value_min)
    return clipped
