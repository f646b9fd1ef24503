"""Random samples of classes and of places: candidates for losses over many classes, and true elements of a mask."""

import math
from dataclasses import dataclass

import numpy as np

from runner import dtype as dt
from runner.core.operators import ComposedOperator
from runner.core.values import Tensor, Value
from runner.ops.array import Cast, Concat, Reshape, Stack, require
from runner.ops.elementwise.arithmetic import Exp, Floor, Log
from runner.ops.elementwise.compare import GreaterEqual, Minimum, Select
from runner.ops.elementwise.division import FloorDiv, FloorMod
from runner.ops.indexing.gather import Gather
from runner.ops.indexing.scatter import TensorScatterUpdate
from runner.ops.indexing.sort import TopK
from runner.ops.random import uniform
from runner.ops.reduce import ReduceSum
from runner.validation.arguments import flag, whole


@dataclass(frozen=True)
class RandomChoiceWithMask(ComposedOperator):
    """`count` different places of true elements of x, Bool with 1 to 5 axes: Int32 (count, axes), and Bool (count,).

    The second result is false for what x has too few true elements for; their places are 0.
    """

    count: int = 256
    seed: int = 0
    seed2: int = 0

    def __post_init__(self) -> None:
        whole({"operator": self.name}, 1, count=self.count)

    def compose(self, x: Value) -> tuple[Value, Value]:
        require(x.dtype is dt.bool_ and 1 <= x.ndim <= 5, "needs Bool with 1 to 5 axes", x=x.type)
        order = Select()(Reshape((-1,))(x), uniform((x.size,), self.seed, self.seed2), Tensor(-1.0, dt.float32))
        missing = self.count - x.size
        if missing > 0:
            order = Concat()(order, Tensor(np.full(missing, -1, np.float32)))
        values, places = TopK()(order, self.count)
        mask: Value = GreaterEqual()(values, 0.0)
        places = places * Cast(dt.int32)(mask)
        strides = [math.prod(x.shape[axis + 1 :]) for axis in range(x.ndim)]
        pairs = zip(strides, x.shape, strict=True)
        return Stack(1)([FloorMod()(FloorDiv()(places, stride), length) for stride, length in pairs]), mask


@dataclass(frozen=True)
class UniformCandidateSampler(ComposedOperator):
    """`num_sampled` classes below `range_max`, all as likely, for whole numbers (N, num_true) of true classes.

    Results: the classes (num_sampled,), of the type of the operand, and how often the true classes (N, num_true) and
    these (num_sampled,) are expected among them, Float32. With `unique` they are different, with
    `remove_accidental_hits` none is true of a sample, as long as there are any.
    """

    num_true: int
    num_sampled: int
    unique: bool
    range_max: int
    seed: int = 0
    remove_accidental_hits: bool = False

    def __post_init__(self) -> None:
        _check_sampler(self, self.num_true, self.num_sampled, self.unique, self.range_max, self.seed)
        flag({"operator": self.name}, remove_accidental_hits=self.remove_accidental_hits)

    def compose(self, true_classes: Value) -> tuple[Value, Value, Value]:
        _check_classes(true_classes, self.num_true)
        if self.unique or self.remove_accidental_hits:
            order = uniform((self.range_max,), self.seed)
            if self.remove_accidental_hits:
                places = Reshape((-1, 1))(true_classes)
                order = TensorScatterUpdate()(order, places, Tensor(np.full(len(places), -1, np.float32)))
            _, classes = TopK()(order, self.num_sampled if self.unique else self.range_max)
        if not self.unique:
            draws = uniform((self.num_sampled,), self.seed)
            if self.remove_accidental_hits:
                allowed = ReduceSum()(Cast(dt.float32)(GreaterEqual()(order, 0.0)))
                classes = Gather(0)(classes, Cast(dt.int32)(Floor()(draws * allowed)))
            else:
                classes = Cast(dt.int64)(Floor()(draws * float(self.range_max)))
        share = np.float32(self.num_sampled / self.range_max)
        expected = [Tensor(np.full(shape, share)) for shape in (true_classes.shape, (self.num_sampled,))]
        return Cast(true_classes.dtype)(classes), expected[0], expected[1]


@dataclass(frozen=True)
class LogUniformCandidateSampler(ComposedOperator):
    """`num_sampled` classes below `range_max`, class k as likely as log((k + 2) / (k + 1)) / log(range_max + 1), for
    whole numbers (N, num_true) of true classes.

    Results: the classes (num_sampled,), of the type of the operand, and how often the true classes (N, num_true) and
    these (num_sampled,) are expected among them, Float32. With `unique` they are different.
    """

    num_true: int = 1
    num_sampled: int = 5
    unique: bool = True
    range_max: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        _check_sampler(self, self.num_true, self.num_sampled, self.unique, self.range_max, self.seed)

    def compose(self, true_classes: Value) -> tuple[Value, Value, Value]:
        _check_classes(true_classes, self.num_true)
        if self.unique:
            # Each class comes at a time of its rate: the first ones are drawn, as with draws until they are different.
            every = Tensor(np.arange(self.range_max, dtype=np.int32))
            waits = Log()(1.0 - uniform((self.range_max,), self.seed)) / self._probability(every)
            times, classes = TopK()(waits, self.num_sampled)
            end = times[self.num_sampled - 1]  # minus the time of the last one
        else:
            scaled = uniform((self.num_sampled,), self.seed) * math.log(self.range_max + 1)
            classes = Minimum()(Cast(dt.int32)(Floor()(Exp()(scaled))) - 1, self.range_max - 1)
        expected = []
        for drawn in (true_classes, classes):
            share = self._probability(drawn)
            expected.append(1.0 - Exp()(share * end) if self.unique else share * float(self.num_sampled))
        return Cast(true_classes.dtype)(classes), expected[0], expected[1]

    def _probability(self, classes: Value) -> Value:
        k = Cast(dt.float32)(classes)
        return Log()((k + 2.0) / (k + 1.0)) / math.log(self.range_max + 1)


def _check_sampler(
    sampler: ComposedOperator, num_true: int, num_sampled: int, unique: bool, range_max: int, seed: int
) -> None:
    where = {"operator": sampler.name}
    flag(where, unique=unique)
    whole(where, 1, range_max=range_max)
    whole(where, 1, num_true=num_true)
    whole(where, 1, range_max if unique else None, num_sampled=num_sampled)
    whole(where, 0, seed=seed)


def _check_classes(true_classes: Value, num_true: int) -> None:
    fits = true_classes.dtype in (dt.int32, dt.int64) and true_classes.ndim == 2 and true_classes.shape[1] == num_true
    allowed = f"Int32 or Int64 (N, {num_true})"
    require(fits, "true classes do not fit the sampler", true_classes=true_classes.type, allowed=allowed)
