"""Pooling layers, with the signatures and defaults of r1.2 (spec section 8.2)."""

from dataclasses import replace

from runner import ops
from runner.core.value import Value
from runner.nn.cell import Cell
from runner.ops.window import Pair, pair

__all__ = ["AvgPool2d", "MaxPool2d"]


class MaxPool2d(Cell):
    """Largest element of each window; `pad_mode` `valid` drops incomplete windows, `same` gives ceil(size / stride)."""

    def __init__(self, kernel_size: int | Pair = 1, stride: int | Pair = 1, pad_mode: str = "valid") -> None:
        super().__init__()
        self.max_pool = ops.MaxPool(pair(kernel_size, "kernel_size"), pair(stride, "stride"), pad_mode)

    def construct(self, x: Value) -> Value:
        output: Value = self.max_pool(x)
        return output


class AvgPool2d(Cell):
    """Mean of each window without padding; `pad_mode` as in MaxPool2d."""

    def __init__(self, kernel_size: int | Pair = 1, stride: int | Pair = 1, pad_mode: str = "valid") -> None:
        super().__init__()
        self.avg_pool = ops.AvgPool(pair(kernel_size, "kernel_size"), pair(stride, "stride"), pad_mode)

    def construct(self, x: Value) -> Value:
        output: Value = self.avg_pool(x)
        return output


def set_impl_mode(network: Cell, impl_mode: str) -> int:
    """Set how the average pools of a network sum Float16 (`ops.AvgPool.impl_mode`). Returns their number."""
    count = 0
    for _, cell in network.cells_and_names():
        for name, op in list(vars(cell).items()):
            if isinstance(op, ops.AvgPool):
                setattr(cell, name, replace(op, impl_mode=impl_mode))
                count += 1
    return count
