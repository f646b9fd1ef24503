"""What operators declare for the compiler's passes, which know graphs and no operators."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner.types import TensorType, broadcast


@dataclass(frozen=True)
class BatchRule:
    """How an operator computes a batch, the first axis of some operands and of the result, one sample after the other.

    `operands` says which operands have a sample each; the others are the same for all. With `is_sum` the result is the
    sum of what each sample gives, without that axis. `resized` is the operator for another number of samples.
    """

    operands: tuple[bool, ...]
    resized: Callable[[int], Any]
    is_sum: bool = False


class Rewrites:
    """Base of operators: the defaults, which allow nothing."""

    elementwise: ClassVar[bool] = False  # whether it computes every element, of operands that are broadcast, separately
    never_decreases: ClassVar[bool] = False  # whether it is a function of each element that never decreases
    takes_largest: ClassVar[bool] = False  # whether each element of the result is the largest of some of the operand
    gradient_of: ClassVar[str] = ""  # the operator whose gradient it computes, from (x, out, dout) or (dout, out)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        """Index of the operand that equals the output for any data, or None; `known` are the constant operands."""
        return None

    def batched(self, types: Sequence[TensorType]) -> BatchRule | None:
        """How it computes a batch sample by sample; None when it does not, or when it is not known."""
        shape = broadcast(*types) if self.elementwise else ()
        operands = tuple([x.ndim == len(shape) and x.shape[0] == shape[0] for x in types]) if len(shape) > 1 else ()
        return BatchRule(operands, lambda _: self) if any(operands) and shape[0] > 1 else None


def is_filled_with(value: float, array: np.ndarray | None) -> bool:
    """Whether an operand is known, and all its elements are this number, including the sign of 0 for floats."""
    if array is None or not np.all(array == value):
        return False
    return array.dtype.kind != "f" or bool(np.all(np.signbit(array) == np.signbit(value)))
