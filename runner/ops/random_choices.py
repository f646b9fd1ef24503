"""Random choices: classes, permutations, channels to drop."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.values import Tensor, Value
from runner.ops.activation import Softmax
from runner.ops.array import Cast, Concat, ExpandDims, Reshape, require
from runner.ops.compare import GreaterEqual, Less
from runner.ops.composition import ComposedOperator, as_value, require_floats
from runner.ops.creation import known
from runner.ops.gather_elements import Sort
from runner.ops.matrices import MatMul
from runner.ops.random_numbers import Random, uniform
from runner.ops.reduce import BroadcastTo, ReduceSum

__all__ = ["Dropout2D", "Dropout3D", "Multinomial", "RandomCategorical", "Randperm"]


def choices(probabilities: Value, count: int, *seeds: int) -> Value:
    """`count` class numbers (Int32) for each row of probabilities with any sum: (..., C) to (..., count)."""
    classes = probabilities.shape[-1]
    rows = Reshape((-1, classes))(probabilities)
    # Element k is the sum of the classes up to k.
    sums = MatMul()(rows, Tensor(np.triu(np.ones((classes, classes), rows.dtype.numpy))))
    number = len(rows)
    draws = ExpandDims(2)(uniform((number, count), *seeds)) * Reshape((number, 1, 1))(ReduceSum(axis=1)(rows))
    passed = GreaterEqual()(draws, Reshape((number, 1, classes))(sums))
    # The last class also for a number that rounding has put above the sum.
    inner = Tensor(np.arange(classes) < classes - 1)
    chosen = ReduceSum(axis=2)(Cast(dt.int32)(passed) * Cast(dt.int32)(inner))
    result: Value = Reshape((*probabilities.shape[:-1], count))(chosen)
    return result


@dataclass(frozen=True)
class Multinomial(Random):
    """`num_samples` class numbers (Int32) for each row of probabilities, with replacement: (C,) or (N, C) of floats."""

    def compose(self, inputs: Any, num_samples: int) -> Value:
        x = as_value(inputs)
        require_floats(inputs=x)
        require(x.ndim in (1, 2) and num_samples >= 1, "needs (C,) or (N, C)", inputs=x.type, num_samples=num_samples)
        return choices(Cast(dt.float32)(x), num_samples, self.seed, self.seed2)


@dataclass(frozen=True)
class RandomCategorical(ComposedOperator):
    """`num_sample` class numbers for each row of logits (N, C): operands logits, num_sample, seed."""

    dtype: dt.DType = dt.int64

    def compose(self, logits: Value, num_sample: int, seed: int = 0) -> Value:
        require(logits.ndim == 2 and logits.dtype.is_float, "needs logits (N, C)", logits=logits.type)
        made = choices(Softmax()(Cast(dt.float32)(logits)), int(known(num_sample, "num_sample")), int(seed))
        result: Value = Cast(self.dtype)(made)
        return result


@dataclass(frozen=True)
class Randperm(ComposedOperator):
    """A random order of 0 to n - 1, then `pad` up to `max_length`: (max_length,). n must be known."""

    max_length: int = 1
    pad: int = -1
    dtype: dt.DType = dt.int32

    def compose(self, n: Any) -> Value:
        count = int(np.ravel(known(n, "n"))[0])
        require(0 <= count <= self.max_length, "n must be 0 to max_length", n=count, max_length=self.max_length)
        rest = Tensor(np.full(self.max_length - count, self.pad, self.dtype.numpy))
        if not count:
            return rest
        order = Cast(self.dtype)(Sort()(uniform((count,)))[1])
        result: Value = Concat()(order, rest) if rest.size else order
        return result


@dataclass(frozen=True)
class Dropout2D(ComposedOperator):
    """Whole channels of x (N, C, H, W) kept with probability `keep_prob` and divided by it, else 0; and the Bool mask
    of the kept elements."""

    keep_prob: float = 0.5

    def __post_init__(self) -> None:
        allowed = "0 to 1"
        require(0.0 <= self.keep_prob <= 1.0, "keep_prob out of range", given=self.keep_prob, allowed=allowed)

    def compose(self, x: Value) -> tuple[Value, Value]:
        axes = 4 if type(self) is Dropout2D else 5
        require(x.ndim == axes and x.dtype.is_float, f"needs floats with {axes} axes", x=x.type)
        kept = Less()(uniform((*x.shape[:2], *(1,) * (axes - 2))), self.keep_prob)
        output: Value = x * Cast(x.dtype)(kept) / (self.keep_prob or 1.0)
        return output, BroadcastTo(x.shape)(kept)


@dataclass(frozen=True)
class Dropout3D(Dropout2D):
    """Whole channels of x (N, C, D, H, W) kept with probability `keep_prob` and divided by it, else 0; and the Bool
    mask of the kept elements."""
