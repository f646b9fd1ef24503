"""`ObserveStep`: passes values of a training step to a function on the host."""

from collections.abc import Callable
from dataclasses import field

import numpy as np

from runner.core.operators import Effect, primitive
from runner.errors import ConfigError
from runner.types import TensorType

__all__ = ["ObserveStep"]


@primitive
class ObserveStep(Effect):
    """`ObserveStep(receive)(x, y, ...)` calls `receive` with the operands as arrays, once per step and in their order.

    PyNative mode calls it at once, graph mode after the step, a sink after the call to the device that executed the
    step. `receive` must not change the arrays. Raises ConfigError when it cannot be called.
    """

    receive: Callable[..., object] = field(compare=False)

    def __post_init__(self) -> None:
        if not callable(self.receive):
            raise ConfigError(
                "ObserveStep needs a function", given=type(self.receive).__name__, takes="receive(*arrays)"
            )

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """No outputs."""
        return ()

    def emit(self, *arrays: np.ndarray) -> None:
        """Pass the operands of one step."""
        self.receive(*arrays)
