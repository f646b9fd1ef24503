"""Pooling layers, with the signatures and defaults of r1.2 (spec section 8.2)."""

from dataclasses import replace

from runner import ops
from runner.core.operators import Primitive
from runner.core.values import Value
from runner.nn.cell import Cell
from runner.ops.array import require, require_nchw
from runner.ops.convolution.windows import Pair, Quad, pair, quad
from runner.validation.arguments import whole


class _Pooling(Cell):
    """Base; `kernel_size` and `stride` are kept as they were given, and `pad_mode` in capitals."""

    def __init__(self, kernel_size: int | Pair, stride: int | Pair, pad_mode: str, data_format: str = "NCHW") -> None:
        super().__init__()
        require_nchw(data_format)
        self.kernel_size, self.stride, self.pad_mode = kernel_size, stride, str(pad_mode).upper()
        self._window = pair(kernel_size, "kernel_size"), pair(stride, "stride"), pad_mode

    def extend_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.pad_mode}"


class MaxPool2d(_Pooling):
    """Largest element of each window; `pad_mode` `valid` drops incomplete windows, `same` gives ceil(size / stride).

    As in later releases, `pad` pads by `padding` (an int, or top, bottom, left, right), with elements that are never
    the largest; `ceil_mode` then keeps incomplete windows. `dilation` is the distance of the elements of a window.
    """

    def __init__(
        self,
        kernel_size: int | Pair = 1,
        stride: int | Pair = 1,
        pad_mode: str = "valid",
        data_format: str = "NCHW",
        *,
        padding: int | Quad = 0,
        dilation: int | Pair = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, pad_mode, data_format)
        edge = quad(padding, "padding"), pair(dilation, "dilation")
        self.max_pool = ops.MaxPool(*self._window, padding=edge[0], dilation=edge[1], ceil_mode=ceil_mode)

    def construct(self, x: Value) -> Value:
        return self.max_pool(x)


class AvgPool2d(_Pooling):
    """Mean of each window without padding; `pad_mode` and `ceil_mode` as in MaxPool2d.

    With `pad_mode` `pad`, padding counts as elements of 0 unless `count_include_pad` is False, as in later releases.
    """

    def __init__(
        self,
        kernel_size: int | Pair = 1,
        stride: int | Pair = 1,
        pad_mode: str = "valid",
        data_format: str = "NCHW",
        *,
        padding: int | Quad = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, pad_mode, data_format)
        edge = quad(padding, "padding")
        self.avg_pool = ops.AvgPool(
            *self._window, padding=edge, ceil_mode=ceil_mode, count_include_pad=count_include_pad
        )

    def construct(self, x: Value) -> Value:
        return self.avg_pool(x)


class _OneAxis(_Pooling):
    """Base of the pools of (N, C, L), which is an image of height 1. All numbers are ints."""

    def __init__(self, kernel_size: int, stride: int, pad_mode: str, padding: int) -> None:
        where = {"layer": type(self).__name__}
        whole(where, 1, kernel_size=kernel_size, stride=stride)
        whole(where, 0, padding=padding)
        super().__init__((1, kernel_size), (1, stride), pad_mode)
        self._padding = 0, 0, padding, padding
        self.expand_dims, self.squeeze = ops.ExpandDims(), ops.Squeeze(2)

    def _pooled(self, x: Value, pool: Primitive) -> Value:
        require(x.ndim == 3, f"{type(self).__name__} needs floats (N, C, L)", x=x.type)
        return self.squeeze(pool(self.expand_dims(x, 2)))


class MaxPool1d(_OneAxis):
    """Largest element of each window of (N, C, L); `pad_mode` and further arguments as in MaxPool2d."""

    def __init__(
        self,
        kernel_size: int = 1,
        stride: int = 1,
        pad_mode: str = "valid",
        *,
        padding: int = 0,
        dilation: int = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, pad_mode, padding)
        whole({"layer": type(self).__name__}, 1, dilation=dilation)
        edge = self._padding, (1, dilation)
        self.max_pool = ops.MaxPool(*self._window, padding=edge[0], dilation=edge[1], ceil_mode=ceil_mode)

    def construct(self, x: Value) -> Value:
        return self._pooled(x, self.max_pool)


class AvgPool1d(_OneAxis):
    """Mean of each window of (N, C, L) without padding; `pad_mode` and further arguments as in AvgPool2d."""

    def __init__(
        self,
        kernel_size: int = 1,
        stride: int = 1,
        pad_mode: str = "valid",
        *,
        padding: int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, pad_mode, padding)
        edge = self._padding
        self.avg_pool = ops.AvgPool(
            *self._window, padding=edge, ceil_mode=ceil_mode, count_include_pad=count_include_pad
        )

    def construct(self, x: Value) -> Value:
        return self._pooled(x, self.avg_pool)


def set_impl_mode(network: Cell, impl_mode: str) -> int:
    """Set how the average pools of a network sum Float16 (`ops.AvgPool.impl_mode`). Returns their number."""
    count = 0
    for _, cell in network.cells_and_names():
        for name, op in list(vars(cell).items()):
            if isinstance(op, ops.AvgPool):
                setattr(cell, name, replace(op, impl_mode=impl_mode))
                count += 1
    return count
