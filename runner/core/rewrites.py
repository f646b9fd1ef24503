"""What operators tell the compiler's passes, which know graphs and no operators."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.types import TensorType


class Rewrites:
    """Base of operators: the defaults, which allow nothing."""

    never_decreases: ClassVar[bool] = False  # whether it is a function of each element that never decreases
    takes_largest: ClassVar[bool] = False  # whether each element of the result is the largest of some of the operand
    gradient_of: ClassVar[str] = ""  # the operator whose gradient it computes, from (x, out, dout) or (dout, out)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        """Index of the operand that equals the output for any data, or None; `known` are the constant operands."""
        return None
