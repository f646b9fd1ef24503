"""Random numbers that both modes and a resumed run draw alike: a hash of seeds and of a counter, and who draws them.

The seeds are those of an operator; the counter follows from the global seed, the number of the step and that of the
draw within it. The numbers are not those of MindSpore. Dropout, at the end, and
`distributions.py` draw from them.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np

from runner import dtype as dt
from runner.communication.world import world
from runner.core.current import Current
from runner.core.interpreter import current
from runner.core.lowering import Builder
from runner.core.operators import ComposedOperator, Gradient, Primitive, graph_operator, primitive
from runner.core.parts import Axes, PartRule, Parts, Replacement, Steps, each_sample
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError
from runner.host import seed as host_seed
from runner.ops.array import Cast, known, require
from runner.ops.elementwise.compare import Less
from runner.ops.reduce import BroadcastTo
from runner.types import Shape, TensorType

# Random numbers as a hash of a seed, a counter and the number of an element, in arithmetic of both numpy and ONNX:
# every product is below 2**63.

MULTIPLIER = 0x45D9F3B
MASK = 0xFFFFFFFF
HALF = 1 << 16


def stream_of(*seeds: int) -> int:
    """A number for a sequence of seeds, 0 to 2**32 - 1; for one seed, its hash.

    Hashed, because layers have consecutive seeds: one would draw at step 1 what the next one drew at step 0.
    """
    stream = 0
    for seed in seeds:
        stream = int(_hash(np.asarray((stream + seed) & MASK, np.int64)))
    return stream


def random_bits(stream: int, counter: np.ndarray, elements: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 2**32 - 1 for the elements with these numbers, as Int64; `counter` is an Int64 scalar."""
    start = _hash(np.asarray((counter + stream) & MASK))
    return _hash(elements ^ start)


def lower_random_bits(b: Builder, stream: int, counter: str, elements: str) -> str:
    """`random_bits` in ONNX."""
    counted = b.node("BitwiseAnd", (b.node("Add", (counter, b.const(stream))), b.const(MASK)))
    return _lower_hash(b, b.node("BitwiseXor", (elements, _lower_hash(b, counted))))


def lower_range(b: Builder, size: int) -> str:
    """0 to `size` - 1 as Int64: not a constant, which would make the model as large as its activations."""
    return b.node("Range", [b.const(np.asarray(n, np.int64)) for n in (0, size, 1)])


def _hash(x: np.ndarray) -> np.ndarray:
    for _ in range(2):
        x = ((x ^ (x >> 16)) * MULTIPLIER) & MASK
    return np.asarray(x ^ (x >> 16))


def _lower_hash(b: Builder, x: str) -> str:
    for _ in range(2):
        mixed = b.node("BitwiseXor", (x, b.node("Div", (x, b.const(HALF)))))
        x = b.node("BitwiseAnd", (b.node("Mul", (mixed, b.const(MULTIPLIER))), b.const(MASK)))
    return b.node("BitwiseXor", (x, b.node("Div", (x, b.const(HALF)))))


# The counter that random operators draw from: set before each step, increased by every draw.
#
# A draw hashes the seeds of its operator, the counter, and the rank; that of Dropout, the element of the whole batch
# instead. The counter begins each step of a training, each event of its callbacks and each batch of an evaluation at a
# place that follows from the global seed and the number of the step, so what these draw does not depend on what the
# process has executed before. Other calls of cells and operators continue the counter.

# Odd and near 2**32 divided by the golden ratio, so the places of N steps are at least 2**32 / (5 N) draws apart.
STRIDE = 0x9E3779B1


class RandomCounter:
    """The counter of the process. `trainings` counts those that have begun since the seed was set."""

    def __init__(self) -> None:
        self.training = 0
        self.parameter = Parameter(Tensor(0, dt.int64), "random_counter", requires_grad=False)
        self.restart()

    def restart(self) -> None:
        """The state after a seed has been set."""
        self.trainings, self._known = 0, WeakKeyDictionary[object, int]()
        self._begin("call", 0)

    def begin_training(self, owner: object, first_step: int) -> None:
        """Begin a training of `owner`, or continue its last one, with step `first_step`."""
        if not first_step or owner not in self._known:
            self._known[owner] = self.trainings
            self.trainings += 1
        self.training = self._known[owner]
        self.begin_event("begin", first_step)

    def begin_step(self, number: int) -> None:
        """Set the counter for a step of the training."""
        self._begin("step", number, self.training)

    def of_steps(self, first: int, count: int) -> np.ndarray:
        """The values of the counter at the beginning of steps of the training: Int64 [count]."""
        steps = np.arange(first, first + count, dtype=np.int64)
        return (_origin(host_seed.get_seed(), "step", self.training) + steps * STRIDE) & MASK

    def begin_event(self, event: str, steps: int) -> None:
        """Set the counter for what callbacks draw in an event after so many steps."""
        self._begin(event, steps, self.training)

    def begin_batch(self, number: int) -> None:
        """Set the counter for a batch of an evaluation."""
        self._begin("evaluation", number)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Restore the counter at the end of the context."""
        before, restore = (self.trainings, self.training, self._known), self.parameter.snapshot()
        try:
            yield
        finally:
            self.trainings, self.training, self._known = before
            restore()

    def _begin(self, purpose: str, number: int, training: int = 0) -> None:
        place = _origin(host_seed.get_seed(), purpose, training) + number * STRIDE
        self.parameter.replace_array(np.asarray(place & MASK, np.int64))


def use_counter(*seeds: int) -> tuple[int, Value]:
    """The stream of these seeds, and the counter, which is increased for this draw."""
    counter, interpreter = random_counter().parameter, current()
    drawn = counter + 1
    interpreter.assign(counter, drawn)
    return stream_of(*seeds), drawn


@lru_cache(maxsize=64)
def _origin(global_seed: int, purpose: str, training: int) -> int:
    """The counter at step 0. Cached: hashing takes longer than the rest of a step's preparation."""
    return stream_of(global_seed & MASK, global_seed >> 32, crc32(purpose.encode()), training)


COUNTER: Current[RandomCounter] = Current("random counter", RandomCounter())


def random_counter() -> RandomCounter:
    """The counter that random operators draw from now."""
    return COUNTER.get()


host_seed.on_change(lambda: random_counter().restart())


# The operator that draws: uniform numbers.

STEP = 2.0**-24  # between the numbers: a float of 24 bits


def uniform(shape: Any, *seeds: int) -> Value:
    """Float32 numbers from 0 up to, not including, 1."""
    lengths = (shape,) if isinstance(shape, int) else tuple(int(known(n, "shape")) for n in shape)
    stream, counter = use_counter(*seeds, world().rank)
    return UniformNumbers(lengths, stream)(counter)


@primitive
class UniformNumbers(Primitive):
    """Numbers of `shape`, multiples of 2**-24 from 0 up to, not including, 1: a hash of stream, counter and place."""

    computes: ClassVar = False
    is_flat: ClassVar = True

    shape: Shape = ()
    stream: int = 0
    dtype: dt.DType = dt.float32

    def infer(self, counter: TensorType) -> TensorType:
        is_scalar = counter.dtype is dt.int64 and counter.shape == ()
        require(is_scalar, "the counter must be an Int64 scalar", counter=counter)
        require(all(n >= 0 for n in self.shape), "lengths of axes are not negative", shape=self.shape)
        return TensorType(self.dtype, self.shape)

    def kernel(self, counter: np.ndarray) -> np.ndarray:
        bits = random_bits(self.stream, counter, np.arange(math.prod(self.shape)))
        numbers: np.ndarray = (bits >> 8).astype(self.dtype.numpy) * self.dtype.numpy.type(STEP)
        return numbers.reshape(self.shape)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return outputs[0].size

    def lower(self, b: Builder, counter: str) -> str:
        bits = lower_random_bits(b, self.stream, counter, lower_range(b, math.prod(self.shape)))
        high = b.node("Cast", (b.node("Div", (bits, b.const(1 << 8))),), to=self.dtype)
        return b.reshape(b.node("Mul", (high, b.const(np.array(STEP, self.dtype.numpy)))), self.shape)


# Dropout of elements, with a mask computed from seeds and a counter, the same in both modes; and of whole channels.


@primitive
class Dropout(Primitive):
    """x / keep_prob where a random number is below `keep_prob`, else 0; and the 0/1 mask.

    The random numbers are a hash of the seeds, `counter` (an Int64 scalar) and element number, so that a step can be
    repeated in either mode and on any device. Without a counter, as in MindSpore, `Dropout(keep_prob)(x)` uses that
    of all random operators (`runner/ops/random.py`).
    """

    keep_prob: float = 0.5
    Seed0: int = 0
    Seed1: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.keep_prob <= 1.0:
            raise ConfigError("keep_prob out of range", given=self.keep_prob, allowed="above 0, at most 1")

    def __call__(self, *operands: Any) -> Value:
        if len(operands) != 1:
            return super().__call__(*operands)
        stream, counter = use_counter(self.Seed0, self.Seed1, 0)  # as on the first rank
        return dataclasses.replace(self, Seed0=stream, Seed1=0)(operands[0], counter)

    def infer(self, x: TensorType, counter: TensorType) -> tuple[TensorType, TensorType]:
        require(x.dtype.is_float, "needs floats", x=x)
        require(
            counter.dtype is dt.int64 and counter.shape == (), "the counter must be an Int64 scalar", counter=counter
        )
        return x, x

    def kernel(self, x: np.ndarray, counter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.masked(x, random_bits(self.drawn, counter, np.arange(x.size)))

    def masked(self, x: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The results for these random numbers."""
        mask = (numbers < self._limit).astype(x.dtype).reshape(x.shape)
        return x * mask * np.asarray(1.0 / self.keep_prob, x.dtype), mask

    def divided(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> Replacement | None:
        """A part draws for its elements the numbers that they have in the whole."""
        if (axis := axes[0]) is None:
            return None
        steps = Steps(types)
        own = steps.add(PartNumbers(parts.count, parts.ranks))
        every = Parts(parts.count * parts.ranks, parts.batch * parts.ranks)
        return steps.end(*steps.add(PartOfDropout(self, every, axis), 0, 1, *own))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return douts[0] * outputs[1] * (1.0 / self.keep_prob), None

    def lower(self, b: Builder, x: str, counter: str) -> tuple[str, str]:
        return self.lower_masked(b, x, lower_random_bits(b, self.drawn, counter, lower_range(b, b.type(x).size)))

    def lower_masked(self, b: Builder, x: str, numbers: str) -> tuple[str, str]:
        """`masked` in ONNX."""
        kept = b.node("Less", (numbers, b.const(self._limit)))
        mask = b.reshape(b.node("Cast", (kept,), to=b.type(x).dtype), b.type(x).shape)
        return b.node("Mul", (b.node("Mul", (x, mask)), b.const(1.0 / self.keep_prob, like=x))), mask

    @property
    def drawn(self) -> int:
        """The stream of its random numbers."""
        return stream_of(self.Seed0, self.Seed1) if self.Seed1 else stream_of(self.Seed0)

    @property
    def _limit(self) -> int:
        return round(self.keep_prob * (MASK + 1))


@graph_operator
class PartNumbers(Primitive):
    """The numbers of the `count` parts of this rank among those of all `ranks`: no operands."""

    computes: ClassVar = False
    on_host: ClassVar = True

    count: int = 1
    ranks: int = 1

    def infer(self) -> TensorType:
        return TensorType(dt.int64, (self.count,))

    def kernel(self) -> np.ndarray:
        return world().rank % self.ranks + np.arange(self.count) * self.ranks


@graph_operator
class PartOfDropout(Primitive):
    """Dropout of x, of which a part has the rows along `axis` that belong to it: (x, counter, number of the part).

    `parts` are those of all ranks.
    """

    dropout: Dropout = Dropout()
    parts: Parts = Parts(1, 1)
    axis: int = 0

    def infer(self, x: TensorType, counter: TensorType, number: TensorType) -> tuple[TensorType, TensorType]:
        return x, x

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (self.axis, None, 0), (self.axis, self.axis))

    def kernel(self, x: np.ndarray, counter: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if len(number) > 1:
            own = Parts(len(number), self.parts.batch * len(number) // self.parts.count)
            made = [self.kernel(part, counter, number[k : k + 1]) for k, part in enumerate(own.split(x, self.axis))]
            y, mask = (own.join(parts, self.axis) for parts in zip(*made, strict=True))
            return y, mask
        (outer, rows, inner), step = self._elements(x.shape)
        elements = outer[:, None, None] + (rows[:, None] + number * step) + inner
        return self.dropout.masked(x, random_bits(self.dropout.drawn, counter, elements.ravel()))

    def lower(self, b: Builder, x: str, counter: str, number: str) -> tuple[str, str]:
        (outer, rows, inner), step = self._elements(b.type(x).shape)
        places = b.node("Add", (b.const(rows[:, None]), b.node("Mul", (number, b.const(step)))))
        first = b.node("Add", (b.const(outer[:, None, None]), places))
        elements = b.reshape(b.node("Add", (first, b.const(inner))), (-1,))
        return self.dropout.lower_masked(b, x, lower_random_bits(b, self.dropout.drawn, counter, elements))

    def _elements(self, shape: Shape) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], int]:
        """The numbers of the elements of the first part as sums over the axes before, at and after `axis`; and how many
        more they are in the next part."""
        before, length, after = math.prod(shape[: self.axis]), shape[self.axis], math.prod(shape[self.axis + 1 :])
        count, rows = self.parts.count, self.parts.rows(length * self.parts.count)
        own = np.arange(length) // rows * (count * rows) + np.arange(length) % rows
        return (np.arange(before) * (length * count * after), own * after, np.arange(after)), rows * after


@dataclass(frozen=True)
class ChannelDropout(ComposedOperator):
    """Base: whole channels of x kept with probability `keep_prob` and divided by it, else 0; and the Bool mask of the
    kept elements."""

    axes: ClassVar[int]  # of x

    keep_prob: float = 0.5

    def __post_init__(self) -> None:
        allowed = "0 to 1"
        require(0.0 <= self.keep_prob <= 1.0, "keep_prob out of range", given=self.keep_prob, allowed=allowed)

    def compose(self, x: Value) -> tuple[Value, Value]:
        require(x.ndim == self.axes and x.dtype.is_float, f"needs floats with {self.axes} axes", x=x.type)
        kept = Less()(uniform((*x.shape[:2], *(1,) * (self.axes - 2))), self.keep_prob)
        output: Value = x * Cast(x.dtype)(kept) / (self.keep_prob or 1.0)
        return output, BroadcastTo(x.shape)(kept)


@dataclass(frozen=True)
class Dropout2D(ChannelDropout):
    """Whole channels of x (N, C, H, W) kept with probability `keep_prob` and divided by it, else 0; and the Bool mask
    of the kept elements."""

    axes: ClassVar[int] = 4


@dataclass(frozen=True)
class Dropout3D(ChannelDropout):
    """Whole channels of x (N, C, D, H, W) kept with probability `keep_prob` and divided by it, else 0; and the Bool
    mask of the kept elements."""

    axes: ClassVar[int] = 5
