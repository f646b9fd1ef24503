"""`if` on values of a step: graph mode gives what PyNative mode gives, in every path."""

import numpy as np
import pytest
from tables import table

from runner import Model, Parameter, Tensor, context, nn, ops
from runner.compile.program import Program
from runner.core.autodiff import gradients
from runner.core.tracer import trace
from runner.dataset import NumpySlicesDataset
from runner.device import Device
from runner.errors import ConfigError, RunnerError, ShapeError
from runner.types import TensorType
from support_import import MODES, step_of

X = np.float32([[1, -2, 3], [0.5, 4, -1]])


def total(x):
    return ops.ReduceSum()(x)


def either(x):
    return x * 2 if total(x) > 0 else -x


def nested(x):
    if total(x) > 0:
        if ops.ReduceMax()(x) > 3.5:
            x = x + 1
            return x
        x = x * x
    elif ops.ReduceMin()(x) < -3.5:
        x = x - 1
    return x * 3


def compound(x):
    inside = 0 < total(x) < 100 and not ops.ReduceMax()(x) > 3.5
    return x if inside or total(x) == -5.5 else ops.ZerosLike()(x)


def in_a_loop(x):
    for row in x:
        if total(row) > 2:
            x = x + row
    return x


def early(x):
    for k in range(x.shape[0]):
        if total(x[k]) > 2:
            return x * k
    return x


def numbers(x):
    return total(x), total(x) > 5, (3 if total(x) > 5 else 4)


def float64(function, x):
    """The same Python, with numpy in place of the operators, in Float64."""
    return function(_Array(np.float64(x)))


@table("function", [either, nested, compound, in_a_loop, early, numbers], ids=lambda f: f.__name__)
def test_every_path_gives_what_python_gives(function):
    graph = step_of(function, "graph")
    for x in (X, -X, X / 4, X * 10, X - X):
        found, expected = graph(x), _oracle(function, np.float64(x))
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
        for a, b in zip(found, step_of(_values(function), "pynative")(x), strict=True):
            np.testing.assert_array_equal(a, b)
