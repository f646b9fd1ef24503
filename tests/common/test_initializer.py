"""Initial values: bounds and moments on large samples, aliases, and seeds."""

import math

import numpy as np
import pytest
from tables import table

from runner import dtype as dt
from runner.common.initializer import (
    Constant,
    HeNormal,
    HeUniform,
    Normal,
    One,
    TruncatedNormal,
    Uniform,
    XavierUniform,
    Zero,
    initializer,
)
from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError
from runner.host import seed


def test_a_parameter_larger_than_the_memory():
    """The bytes are computed before they are taken, for any shape."""
    for shape in ((2**31, 2**20), (2**63 - 1, 10**30)):
        with pytest.raises(ConfigError, match="not enough memory") as caught:
            initializer("normal", shape)
        assert caught.value.rows["parameter"] == f"Float32{list(shape)}"
        assert {"needed", "available"} <= caught.value.rows.keys()


SHAPE = (200, 30, 5, 5)  # 150,000 values, fan_in 750, fan_out 5,000
COUNT = math.prod(SHAPE)
# Standard deviation of a normal distribution that is cut at two sigma.
CUT = math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2)))


def values(init, shape=SHAPE) -> np.ndarray:
    return initializer(init, shape).asnumpy()


@table(
    ("rule", "deviation"),
    [
        (Normal(), 0.01),
        (Normal(0.5), 0.5),
        (TruncatedNormal(), 0.01 * CUT),
        (TruncatedNormal(0.02), 0.02 * CUT),
        (Uniform(), 0.07 / math.sqrt(3)),
        (Uniform(1.0), 1 / math.sqrt(3)),
        (XavierUniform(), math.sqrt(2 / 5750)),
        (XavierUniform(2.0), 2 * math.sqrt(2 / 5750)),
        (HeUniform(), math.sqrt(2 / 750)),
        (HeUniform(mode="fan_out"), math.sqrt(2 / 5000)),
        (HeUniform(1.0), math.sqrt(1 / 750)),
        (HeNormal(), math.sqrt(2 / 750)),
        (HeNormal(nonlinearity="linear"), math.sqrt(1 / 750)),
        (HeNormal(nonlinearity="tanh"), 5 / 3 * math.sqrt(1 / 750)),
        (HeNormal(mode="fan_out", nonlinearity="relu"), math.sqrt(2 / 5000)),
    ],
    ids=repr,
)
def test_moments(rule, deviation):
    made = values(rule).astype(np.float64)
    # Five standard errors; that of a deviation is at most deviation / sqrt(2 n) for these distributions.
    assert abs(made.mean()) < 5 * deviation / math.sqrt(COUNT)
    assert abs(made.std() - deviation) < 5 * deviation / math.sqrt(2 * COUNT)


@pytest.mark.parametrize(
    ("rule", "bound"),
    [
        (TruncatedNormal(0.02), 0.04),
        (Uniform(), 0.07),
        (XavierUniform(), math.sqrt(6 / 5750)),
        (HeUniform(), math.sqrt(6 / 750)),
    ],
    ids=repr,
)
def test_bounds_are_kept_and_reached(rule, bound):
    largest = np.abs(values(rule)).max()
    assert 0.99 * bound < largest <= bound * (1 + 1e-6)


def test_the_shape_of_the_normal_distributions():
    normal, cut = np.abs(values(Normal(1.0))), np.abs(values(TruncatedNormal(1.0)))
    assert abs((normal < 1).mean() - 0.6827) < 0.006
    assert abs((normal > 2).mean() - 0.0455) < 0.003
    assert abs((cut < 1).mean() - 0.6827 / 0.9545) < 0.006


@pytest.mark.parametrize(
    ("init", "value"),
    [(Zero(), 0), (One(), 1), (Constant(2.5), 2.5), ("zeros", 0), ("one", 1), (3, 3), (0.5, 0.5)],
)
def test_constants(init, value):
    made = initializer(init, (2, 3))
    assert made.dtype is dt.float32
    assert made.asnumpy().tolist() == [[value] * 3] * 2


@pytest.mark.parametrize(
    ("alias", "rule"),
    [
        ("normal", Normal()),
        ("Normal", Normal()),
        ("uniform", Uniform()),
        ("truncatedNormal", TruncatedNormal()),
        ("xavier_uniform", XavierUniform()),
        ("XavierUniform", XavierUniform()),
        ("he_uniform", HeUniform()),
        ("he_normal", HeNormal()),
        ("HeNormal", HeNormal()),
    ],
)
def test_a_name_is_the_rule_with_its_defaults(alias, rule):
    seed.set_seed(4)
    by_name = values(alias, (3, 4))
    seed.set_seed(4)
    assert np.array_equal(by_name, values(rule, (3, 4)))


def test_a_tensor_is_taken_as_it_is():
    given = Tensor([[1.0, 2.0]])
    assert initializer(given, (1, 2)) is given
    assert initializer(given) is given


def test_seeds():
    seed.set_seed(7)
    first = [values("normal", (4, 4)).tobytes() for _ in range(3)]
    assert len(set(first)) == 3
    seed.set_seed(7)
    assert [values("normal", (4, 4)).tobytes() for _ in range(3)] == first
    seed.set_seed(8)
    assert values("normal", (4, 4)).tobytes() not in first


def test_the_global_generator_of_numpy_is_left_alone():
    before = np.random.get_state()[1].tobytes()
    values("normal", (4, 4))
    assert np.random.get_state()[1].tobytes() == before


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: initializer("xaviar_uniform", (2, 2)), ConfigError, None),
        (
            lambda: initializer(Tensor([1.0]), (2,)),
            ShapeError,
            "the initial value has another shape\n  given     (1,)\n  expected  (2,)",
        ),
        (
            lambda: initializer("he_normal", (3,)),
            ShapeError,
            "fan_in and fan_out need at least two axes\n  shape  (3,)",
        ),
        (
            lambda: initializer(HeNormal(mode="fan"), (3, 3)),
            ConfigError,
            "unknown mode of an initialiser\n  given    fan\n  allowed  fan_in, fan_out",
        ),
        (
            lambda: initializer(HeNormal(nonlinearity="rely"), (3, 3)),
            ConfigError,
            "unknown nonlinearity of an initialiser\n"
            "  given    rely\n  allowed  leaky_relu, relu, linear, sigmoid, tanh, "
            "conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d",
        ),
    ],
)
def test_refusals(make, error, text):
    with pytest.raises(error) as caught:
        make()
    if text is None:
        assert caught.value.what == "unknown initialiser"
        assert caught.value.rows["nearest"] == "xavier_uniform"
    else:
        assert str(caught.value) == f"{error.__name__}: {text}"
