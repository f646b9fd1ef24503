"""Norms of tensors: `Norm`, `ClipByNorm` and `L1Regularizer`."""

from runner import dtype as dt, ops
from runner.core.value import Tensor, Value
from runner.nn.cell import Cell
from runner.validation.arguments import above, flag

__all__ = ["ClipByNorm", "L1Regularizer", "Norm"]


class Norm(Cell):
    """Euclidean norm over `axis`, by default all axes; `keep_dims` keeps them with length 1."""

    def __init__(self, axis: int | tuple[int, ...] = (), keep_dims: bool = False) -> None:
        super().__init__()
        flag({"layer": type(self).__name__}, keep_dims=keep_dims)
        self.axis, self.keep_dims = axis, keep_dims
        self.reduce_sum, self.sqrt, self.square = ops.ReduceSum(keep_dims, axis), ops.Sqrt(), ops.Square()

    def construct(self, x: Value) -> Value:
        output: Value = self.sqrt(self.reduce_sum(self.square(x)))
        return output

    def extend_repr(self) -> str:
        return f"axis={self.axis}, keep_dims={self.keep_dims}"


class ClipByNorm(Cell):
    """x scaled so that its Euclidean norm over `axis`, by default all axes, is at most `clip_norm`; in Float32.

    `clip_norm` is a tensor of one element, or one that broadcasts to x.
    """

    def __init__(self, axis: int | tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.axis = () if axis is None else axis
        self.reduce_sum, self.sqrt, self.square = ops.ReduceSum(True, self.axis), ops.Sqrt(), ops.Square()
        self.select, self.maximum = ops.Select(), ops.Maximum()

    def construct(self, x: Value, clip_norm: Value) -> Value:
        wide, limit = x.astype(dt.float32), clip_norm.astype(dt.float32)
        total = self.reduce_sum(self.square(wide))
        is_positive = total > 0.0  # the root has no slope at 0
        one, zero = Tensor(1.0, dt.float32), Tensor(0.0, dt.float32)
        norm = self.select(is_positive, self.sqrt(self.select(is_positive, total, one)), zero)
        output: Value = wide * limit / self.maximum(norm, limit)
        return output


class L1Regularizer(Cell):
    """`scale` times the sum of the absolute values of the weights."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        above({"layer": type(self).__name__}, 0.0, scale=scale)
        self.scale = Tensor(float(scale), dt.float32)
        self.abs, self.reduce_sum = ops.Abs(), ops.ReduceSum()

    def construct(self, weights: Value) -> Value:
        output: Value = self.scale * self.reduce_sum(self.abs(weights))
        return output
