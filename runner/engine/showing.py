"""PyNative mode for somebody who looks: every operator is shown as soon as it is computed."""

from collections.abc import Sequence

import numpy as np

from runner.core.lowering import LAST
from runner.core.observer import Shown, ValueObserver
from runner.core.primitive import Node, Primitive
from runner.core.value import Tensor, Value
from runner.engine.recorder import Recorder
from runner.errors import TrainingError
from runner.types import TensorType


class Showing(Recorder):
    """`Recorder` of the step that has this number, for an observer of values."""

    def __init__(self, inputs: tuple[Tensor, ...], step: int, observer: ValueObserver) -> None:
        super().__init__(inputs)
        self.step, self.observer = step, observer

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Run the kernel, note it, and show it to the observer if it chooses to see it."""
        try:
            outputs = super().apply(op, inputs, types)
        except TrainingError:
            node = Node(op, (), (), self.where(), self.count, self.source())
            self.observer.failed(self.step, node, self._shown(inputs))
            raise
        node = self.noted[-1]
        if self.observer.chooses(node):
            self.observer.operator(self.step, node, self._shown(inputs), self._shown(outputs))
        return outputs

    def _shown(self, values: Sequence[Value]) -> list[Shown]:
        return [shown(value.data, self.observer.as_lying) for value in values if isinstance(value, Tensor)]


def shown(array: np.ndarray, as_lying: bool) -> Shown:
    """An array as it is shown: the kernels of convolutions and pools leave (N, C, H, W) batch last in memory."""
    if as_lying and array.ndim == 4 and not array.flags.c_contiguous:
        turned = array.transpose(1, 2, 3, 0)
        if turned.flags.c_contiguous:
            return Shown(turned, LAST)
    return Shown(array)
