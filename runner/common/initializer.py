"""Initial values of parameters, with the distributions of r1.2.

Every call has its own random generator, derived from the seed of the run and the order of creation.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError, nearest
from runner.host.machine import require_memory
from runner.host.seed import generator, next_number
from runner.types import Shape
from runner.validation.rules import Frozen, KeywordNames


class Initializer(KeywordNames):
    """Base of the rules that fill a new parameter. A rule of your own overrides `fill`, or `_initialize` of r1.2."""

    def __init__(self, **settings: Any) -> None:
        self._kwargs = settings

    def fill(self, rng: np.random.Generator, shape: Shape) -> np.ndarray:
        """Values of this shape, of any float type."""
        values = np.zeros(shape)
        self._initialize(values)
        return values

    def _initialize(self, arr: np.ndarray) -> None:
        """Fill an array in place; r1.2's way to define a rule."""
        raise NotImplementedError(f"{type(self).__name__} must define fill(rng, shape) or _initialize(arr)")

    def __call__(self, arr: np.ndarray) -> None:
        """Fill an array in place, with the next numbers of the run's seed."""
        arr[...] = self.fill(generator("initializer", next_number()), arr.shape)


Initial = Initializer | Tensor | str | float  # the initial value of a layer's parameter


class Constant(Frozen, Initializer):
    """The same value everywhere."""

    value: float

    def fill(self, rng: np.random.Generator, shape: Shape) -> np.ndarray:
        return np.full(shape, self.value)


class Zero(Frozen, Initializer):
    """Zeros."""

    def fill(self, rng: np.random.Generator, shape: Shape) -> np.ndarray:
        return np.zeros(shape)


class One(Frozen, Initializer):
    """Ones."""

    def fill(self, rng: np.random.Generator, shape: Shape) -> np.ndarray:
        return np.ones(shape)


class Normal(Frozen, Initializer):
    """Normal distribution around 0."""

    sigma: float = 0.01

    def fill(self, rng: np.random.Generator, shape: Shape) -> np.ndarray:
        return rng.normal(0.0, self.sigma, shape)


class TruncatedNormal(Frozen, Initializer):
    """Normal distribution around 0, truncated at two sigma: values outside are drawn again."""

    sigma: float = 0.01

    def fill(self, rng: np.random.Generator, shape: Shape) -> np.ndarray:
        values = rng.standard_normal(shape)
        while (outside := np.abs(values) > 2.0).any():
            values[outside] = rng.standard_normal(int(outside.sum()))
        return values * self.sigma


class Uniform(Frozen, Initializer):
    """Uniform between -scale and scale."""

    scale: float = 0.07

    def fill(self, rng: np.random.Generator, shape: Shape) -> np.ndarray:
        return rng.uniform(-self.scale, self.scale, shape)


class XavierUniform(Frozen, Initializer):
    """Uniform within gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""

    gain: float = 1.0

    def fill(self, rng: np.random.Generator, shape: Shape) -> np.ndarray:
        bound = self.gain * math.sqrt(6.0 / sum(fans(shape)))
        return rng.uniform(-bound, bound, shape)


LINEAR = tuple(f"{kind}{n}d" for kind in ("conv", "conv_transpose") for n in (1, 2, 3))


class He(Frozen, Initializer):
    """Base of the rules of He et al. (2015), whose deviation is gain / sqrt(fan)."""

    negative_slope: float = 0.0
    mode: str = "fan_in"
    nonlinearity: str = "leaky_relu"

    def deviation(self, shape: Shape) -> float:
        """gain / sqrt(fan). Raises ConfigError for an unknown mode or nonlinearity."""
        slopes = {"leaky_relu": math.sqrt(2.0 / (1.0 + self.negative_slope**2)), "relu": math.sqrt(2.0)}
        gains = slopes | {"linear": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0} | dict.fromkeys(LINEAR, 1.0)
        if self.mode not in ("fan_in", "fan_out"):
            raise ConfigError("unknown mode of an initialiser", given=self.mode, allowed="fan_in, fan_out")
        if self.nonlinearity not in gains:
            allowed = ", ".join(gains)
            raise ConfigError("unknown nonlinearity of an initialiser", given=self.nonlinearity, allowed=allowed)
        fan_in, fan_out = fans(shape)
        return gains[self.nonlinearity] / math.sqrt(fan_in if self.mode == "fan_in" else fan_out)


class HeUniform(He):
    """Uniform within gain * sqrt(3 / fan)."""

    def fill(self, rng: np.random.Generator, shape: Shape) -> np.ndarray:
        bound = math.sqrt(3.0) * self.deviation(shape)
        return rng.uniform(-bound, bound, shape)


class HeNormal(He):
    """Normal with deviation gain / sqrt(fan)."""

    def fill(self, rng: np.random.Generator, shape: Shape) -> np.ndarray:
        return rng.normal(0.0, self.deviation(shape), shape)


def fans(shape: Shape) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight (out, in, ...). Raises ShapeError below two axes."""
    if len(shape) < 2:
        raise ShapeError("fan_in and fan_out need at least two axes", shape=shape)
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


ALIASES: dict[str, type[Initializer]] = {
    "zero": Zero,
    "zeros": Zero,
    "one": One,
    "ones": One,
    "normal": Normal,
    "uniform": Uniform,
    "truncatednormal": TruncatedNormal,
    "xavieruniform": XavierUniform,
    "xavier_uniform": XavierUniform,
    "heuniform": HeUniform,
    "he_uniform": HeUniform,
    "henormal": HeNormal,
    "he_normal": HeNormal,
}


def initializer(init: Initial, shape: Sequence[int] | int | None = None, dtype: dt.DType = dt.float32) -> Tensor:
    """A tensor filled by an initializer, its name or a number; or the given tensor, whose shape must then fit.

    Raises ConfigError for an unknown name and for more elements than fit into memory, ShapeError for a tensor of
    another shape.
    """
    shape = (shape,) if isinstance(shape, int) else shape
    if isinstance(init, Tensor):
        if shape is not None and init.shape != tuple(shape):
            raise ShapeError("the initial value has another shape", given=init.shape, expected=tuple(shape))
        return init
    if isinstance(init, str):
        if init.lower() not in ALIASES:
            close = nearest(init.lower(), ALIASES)
            raise ConfigError("unknown initialiser", given=init, allowed=", ".join(ALIASES), nearest=close)
        init = ALIASES[init.lower()]()
    rule, full = init if isinstance(init, Initializer) else Constant(float(init)), tuple(shape or ())
    # Rules compute in Float64; the result is cast.
    require_memory(math.prod(full) * (8 + dtype.size), parameter=f"{dtype}{list(full)}")
    values = rule.fill(generator("initializer", next_number()), full)
    return Tensor(np.asarray(values).astype(dtype.numpy))
