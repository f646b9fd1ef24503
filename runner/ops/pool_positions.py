"""Maximum pooling that also gives the positions of the maxima."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runner.core.values import Tensor, Value
from runner.ops.array import Pad, require_nchw
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
    padding: Any = field(default=0, kw_only=True)
    dilation: Any = field(default=1, kw_only=True)
    ceil_mode: bool = field(default=False, kw_only=True)

    def compose(self, x: Value) -> tuple[Value, Value]:
        require_nchw(self.data_format)
        edge = {"padding": self.padding, "dilation": self.dilation, "ceil_mode": self.ceil_mode}
        pooling = MaxPool(self.kernel_size, self.strides, self.pad_mode, **edge)
        largest = pooling(x)
        windows = pooling.windows(x.shape)
        chosen = Argmax(0)(Stack(0)(*_parts(x, windows)))
        (top, _, left, _), (below, beside) = windows.pads, windows.dilations
        offsets = [i * below * x.shape[3] + j * beside for i, j in np.ndindex(*windows.kernel)]
        rows = np.arange(windows.out[0]) * windows.strides[0] - top
        starts = rows[:, None] * x.shape[3] + np.arange(windows.out[1]) * windows.strides[1] - left
        starts = starts + np.arange(x.shape[1]).reshape(-1, 1, 1) * (x.shape[2] * x.shape[3])
        positions: Value = Gather()(Tensor(np.array(offsets, np.int32)), chosen, 0) + Tensor(starts.astype(np.int32))
        return largest, positions


def _parts(x: Value, windows: Windows) -> list[Value]:
    """The elements of all windows at each place of a window, row-major; what is padding is -inf."""
    top, bottom, left, right = windows.pads
    padding = (0, 0), (0, 0), (top, bottom), (left, right)
    padded = Pad(padding, value=-np.inf)(x) if any(windows.pads) else x
    parts = []
    for rows in windows.taps(0):
        for columns in windows.taps(1):
            stop = (*x.shape[:2], rows.stop, columns.stop)
            steps = (1, 1, rows.step, columns.step)
            parts.append(StridedSlice()(padded, (0, 0, rows.start, columns.start), stop, steps))
    return parts
