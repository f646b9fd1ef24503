"""Maximum pooling that also gives the positions of the maxima."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from runner.core.value import Tensor, Value
from runner.ops.array import Pad, require_nchw
from runner.ops.compare import Select
from runner.ops.composition import ComposedOperator
from runner.ops.pool import MaxPool
from runner.ops.reduce import Argmax
from runner.ops.rows import Gather
from runner.ops.split import Stack
from runner.ops.strided_slice import StridedSlice
from runner.ops.window import Windows

__all__ = ["MaxPoolWithArgmax"]


@dataclass(frozen=True)
class MaxPoolWithArgmax(ComposedOperator):
    """MaxPool of x (N, C, H, W), and of each maximum its position in the C * H * W elements of its sample, as Int32."""

    kernel_size: Any = 1
    strides: Any = 1
    pad_mode: str = "valid"
    data_format: str = "NCHW"

    def compose(self, x: Value) -> tuple[Value, Value]:
        require_nchw(self.data_format)
        pooling = MaxPool(self.kernel_size, self.strides, self.pad_mode)
        largest = pooling(x)
        windows = pooling.windows(x.shape)
        parts = self._parts(x, windows)
        chosen = Argmax(0)(Stack(0)(*parts))
        offsets = [i * x.shape[3] + j for i, j in np.ndindex(*windows.kernel)]
        (top, _, left, _), (down, across) = windows.pads, windows.strides
        rows = np.arange(windows.out[0]) * down - top
        starts = rows[:, None] * x.shape[3] + np.arange(windows.out[1]) * across - left
        starts = starts + np.arange(x.shape[1]).reshape(-1, 1, 1) * (x.shape[2] * x.shape[3])
        positions: Value = Gather()(Tensor(np.array(offsets, np.int32)), chosen, 0) + Tensor(starts.astype(np.int32))
        return largest, positions

    def _parts(self, x: Value, windows: Windows) -> list[Value]:
        """The elements of all windows at each place of a window, row-major; what is padding is -inf."""
        (top, bottom, left, right), (down, across) = windows.pads, windows.strides
        padded = x
        if any(windows.pads):
            inside = np.pad(np.ones(x.shape[2:], bool), ((top, bottom), (left, right)))
            zeros = Pad(((0, 0), (0, 0), (top, bottom), (left, right)))(x)
            padded = Select()(Tensor(inside), zeros, Tensor(-np.inf, x.dtype))
        end = (*x.shape[:2], *windows.padded)
        parts = []
        for i, j in np.ndindex(*windows.kernel):
            stop = (*end[:2], i + (windows.out[0] - 1) * down + 1, j + (windows.out[1] - 1) * across + 1)
            parts.append(StridedSlice()(padded, (0, 0, i, j), stop, (1, 1, down, across)))
        return parts
