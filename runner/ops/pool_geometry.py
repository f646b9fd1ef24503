"""The base of pooling and its gradients: the attributes and the geometry."""

import math
from collections.abc import Sequence
from dataclasses import InitVar, field, replace
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.operators import Primitive, family
from runner.ops.array import require, require_nchw
from runner.ops.window import PAD_MODES, Pair, Quad, Windows, pair, quad
from runner.types import Shape, TensorType

Sibling = TypeVar("Sibling", bound="Pooling")


@family
class Pooling(Primitive):
    """Base: `kernel_size`, `strides`, `dilation` between the elements of a window, and the padding.

    `pad_mode` `valid` drops incomplete windows; `same` gives ceil(size / stride) windows; `pad` pads by `padding` (an
    int, or top, bottom, left, right), and with `ceil_mode` it keeps incomplete windows that begin before the end of the
    image. Every window must have an element of the image.
    """

    needs_elements: ClassVar = True

    kernel_size: Pair = (1, 1)
    strides: Pair = (1, 1)
    pad_mode: str = "valid"
    data_format: InitVar[str] = "NCHW"
    padding: Quad = field(default=(0, 0, 0, 0), kw_only=True)
    dilation: Pair = field(default=(1, 1), kw_only=True)
    ceil_mode: bool = field(default=False, kw_only=True)

    def __post_init__(self, data_format: str) -> None:
        require_nchw(data_format)
        for name in ("kernel_size", "strides", "dilation"):
            object.__setattr__(self, name, pair(getattr(self, name), name))
        object.__setattr__(self, "padding", quad(self.padding, "padding"))
        object.__setattr__(self, "pad_mode", str(self.pad_mode).lower())
        mode = self.pad_mode
        require(mode in PAD_MODES, "unknown pad_mode", given=mode, allowed=", ".join(PAD_MODES))
        fits = mode == "pad" or not (any(self.padding) or self.ceil_mode)
        rows = {"padding": self.padding, "ceil_mode": self.ceil_mode, "pad_mode": mode}
        require(fits, "padding and ceil_mode need pad_mode='pad'", **rows)

    def windows(self, image: Shape) -> Windows:
        """The windows in images of shape (N, C, H, W), with the padding at the end that they reach."""
        size, pads = (image[2], image[3]), self.padding
        if self.pad_mode == "pad":
            bottom, right = (self._end(axis, size[axis]) for axis in (0, 1))
            pads = pads[0], bottom, pads[2], right
        return Windows.resolve(size, self.kernel_size, self.strides, self.pad_mode, pads, self.dilation)

    def _end(self, axis: int, size: int) -> int:
        """The padding at the end of an axis: as far as the last window reaches."""
        before, after = self.padding[2 * axis : 2 * axis + 2]
        extent, stride = self.dilation[axis] * (self.kernel_size[axis] - 1) + 1, self.strides[axis]
        steps = size + before + after - extent
        missing = (-steps) % stride
        if self.ceil_mode and after + missing < extent:  # else the incomplete window would begin after the image
            return after + missing
        return max(after - steps % stride, 0)

    def pooled(self, x: TensorType) -> TensorType:
        """Type of the pooled images."""
        require(x.ndim == 4 and x.dtype.is_float, "needs floats (N, C, H, W)", x=x)
        windows = self.windows(x.shape)
        filled = all(_has_elements(windows, axis) for axis in (0, 1))
        require(filled, "a window has no element of the image", x=x, window=windows.extent, pads=windows.pads)
        return x.with_shape(x.shape[0], x.shape[1], *windows.out)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        pooled = min(x.size for x in (*inputs, *outputs))  # images are not smaller
        return pooled * math.prod(self.kernel_size)

    def common_attributes(self) -> dict[str, Any]:
        """The attributes that an operator and its gradient share."""
        names = ("kernel_size", "strides", "pad_mode", "padding", "dilation", "ceil_mode")
        return {name: getattr(self, name) for name in names}

    def sibling(self, kind: type[Sibling], **more: Any) -> Sibling:
        """The gradient of this operator, or the operator of this gradient, with its own attributes."""
        operator: Sibling = _sibling(self, kind, **more)  # type: ignore[arg-type]  # mypy needs a hash of the values
        return operator


@lru_cache(maxsize=4096)
def _sibling(op: Pooling, kind: Any, **more: Any) -> Any:
    # Cached: PyNative mode calls this in every step, and validating the attributes takes as long as a small kernel.
    return kind(**op.common_attributes(), **more)


def _has_elements(windows: Windows, axis: int) -> bool:
    """Whether every window has an element of the image along an axis. More windows than places cannot."""
    few = windows.out[axis] <= windows.size[axis] * windows.kernel[axis]
    return few and bool(windows.inside(axis).min())


def padded_for_onnx(b: Builder, x: str, windows: Windows, fill: float = 0.0) -> tuple[str, Windows]:
    """The images, padded where onnxruntime's pools do not accept the padding: from the size of the kernel on.

    Returns their name and the windows in them, which are the same ones.
    """
    top, bottom, left, right = windows.pads
    if max(top, bottom) < windows.kernel[0] and max(left, right) < windows.kernel[1]:
        return x, windows
    pads = b.const([0, 0, top, left, 0, 0, bottom, right])
    padded = b.node("Pad", (x, pads, b.const(np.array(fill, b.type(x).dtype.numpy))))
    return padded, replace(windows, size=windows.padded, pads=(0, 0, 0, 0))
