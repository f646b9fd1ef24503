"""The base of convolution and its two gradients: the attributes of the reference and the geometry."""

import math
from dataclasses import InitVar
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import numpy as np

from runner.core.operators import Primitive, family
from runner.core.precision import Needs
from runner.ops.array import require, require_nchw
from runner.ops.convolution.windows import PAD_MODES, Pair, Quad, Windows, pair, quad
from runner.ops.convolution.winograd import TiledConvolution, tiled_convolution
from runner.types import Shape, TensorType

Sibling = TypeVar("Sibling", bound="Convolution")


@family
class Convolution(Primitive):
    """Base of the three operators: attributes and window geometry."""

    needs: ClassVar = Needs.HALF
    needs_elements: ClassVar = True
    convolves: ClassVar = True

    out_channel: int
    kernel_size: Pair
    mode: int = 1
    pad_mode: str = "valid"
    pad: Quad = (0, 0, 0, 0)
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    group: int = 1
    data_format: InitVar[str] = "NCHW"

    def __post_init__(self, data_format: str) -> None:
        require_nchw(data_format)
        require(self.pad_mode in PAD_MODES, "unknown pad_mode", given=self.pad_mode, allowed=", ".join(PAD_MODES))
        require(self.mode == 1, "only cross-correlation (mode 1) exists", mode=self.mode)
        require(
            self.group >= 1 and self.out_channel % self.group == 0, "group must divide out_channel", group=self.group
        )
        pairs = {"kernel_size": self.kernel_size, "stride": self.stride, "dilation": self.dilation}
        for name, value in pairs.items():
            object.__setattr__(self, name, pair(value, name))
        object.__setattr__(self, "pad", quad(self.pad, "pad"))
        fits = self.pad_mode == "pad" or not any(self.pad)
        require(fits, "pad needs pad_mode='pad'", pad=self.pad, pad_mode=self.pad_mode)

    def windows(self, image: Shape) -> Windows:
        """The windows in images of shape (N, C, H, W)."""
        return Windows.resolve(
            (image[2], image[3]), self.kernel_size, self.stride, self.pad_mode, self.pad, self.dilation
        )

    def tiled(self, windows: Windows | None, filters: Shape, x: np.ndarray) -> TiledConvolution | None:
        """The numpy kernels of windows in x (N, ...) for filters of a shape that take fewer multiplications, if any."""
        if self.group > 1 or windows is None or x.dtype != np.float32:
            return None
        return tiled_convolution(windows, filters, len(x))

    def common_attributes(self) -> dict[str, Any]:
        """The attributes of all three operators."""
        names = ("out_channel", "kernel_size", "mode", "pad_mode", "pad", "stride", "dilation", "group")
        return {name: getattr(self, name) for name in names}

    def sibling(self, kind: type[Sibling], **more: Shape) -> Sibling:
        """Another of the three operators, with the common attributes and its own."""
        operator: Sibling = _sibling(self, kind, **more)  # type: ignore[arg-type]  # mypy needs a hash of the values
        return operator

    def is_pointwise(self, windows: Windows) -> bool:
        """Whether each window is one pixel, so that im2col is not needed."""
        return windows.kernel == (1, 1) and not any(windows.pads) and self.group == 1

    def grouped(self, a: np.ndarray) -> np.ndarray:
        """Split the first axis by group, and flatten the rest: (G, rows, columns)."""
        return a.reshape(self.group, a.shape[0] // self.group, -1)


@lru_cache(maxsize=4096)
def _sibling(op: Convolution, kind: Any, **more: Any) -> Any:
    # Cached: PyNative mode calls this in every step, and validating the attributes takes as long as a small kernel.
    return kind(**op.common_attributes(), **more)


def multiply_adds(result: TensorType, filters: TensorType) -> int:
    """Operations of a convolution: two for each element of a filter, at each element of the result."""
    return 2 * result.size * math.prod(filters.shape[1:])
