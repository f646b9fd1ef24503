"""Pools move in front of activations: the same bits from fewer elements, and what is observed is still computed."""

from collections.abc import Callable

import numpy as np
import pytest
from test_passes import operators, run
from training_steps import lenet, training_step

from runner import nn, ops
from runner.compile.passes import PASSES, optimize
from runner.compile.passes.order import pool_first
from runner.core.gradients import gradients
from runner.core.graph import Graph, verify
from runner.core.trace import trace
from runner.core.values import Value
from runner.types import TensorType

X = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
WITHOUT = tuple(apply for apply in PASSES if apply is not pool_first)
RELU, TILES = ops.ReLU(), ops.MaxPool(2, 2)


def graph_of(function: Callable[[Value], object]) -> Graph:
    return optimize(trace(function, [TensorType.of(X)], "net"), WITHOUT)


def with_gradient(function: Callable[[Value], Value]) -> Callable[[Value], tuple[Value, ...]]:
    """The result of a function, and the gradient of the sum of its cubes."""

    def both(x: Value) -> tuple[Value, ...]:
        y = function(x)
        return y, *gradients(ops.ReduceSum()(y * y * y), [x])

    return both


def unsigned(results: list[bytes]) -> list[bytes]:
    """Results whose zeros have no sign."""
    return [(np.frombuffer(result, np.float32) + 0).tobytes() for result in results]


@pytest.mark.parametrize(
    "pool",
    [
        TILES,
        ops.MaxPool(3, 2),
        ops.MaxPool(3, 2, "same"),
        ops.MaxPool(3, 2, "pad", padding=1, ceil_mode=True),
    ],
    ids=["tiles", "overlapping", "same", "padded"],
)
def test_pools_come_first_and_change_no_bit(pool):
    before = graph_of(with_gradient(lambda x: pool(RELU(x))))
    after = verify(pool_first(before))
    names = operators(after)
    assert names.index("MaxPool") < names.index("ReLU")
    assert names.index("ReluGrad") < names.index("MaxPoolGrad")
    assert len(names) == len(operators(before))
    relu = next(node for node in after.nodes if node.op.name == "ReLU")
    assert relu.outputs[0].size < X.size
    for images in (X, -np.abs(X), np.zeros_like(X)):
        assert unsigned(run(after, images)) == unsigned(run(before, images))


def read_twice(x: Value) -> Value:
    y = RELU(x)
    return ops.ReduceSum()(TILES(y)) + ops.ReduceSum()(y)


@pytest.mark.parametrize(
    "function",
    [
        with_gradient(read_twice),
        lambda x: (lambda y: (TILES(y), y))(RELU(x)),
        lambda x: TILES(ops.Tanh()(x)),
        lambda x: ops.MaxPool(3, 1, "same")(RELU(x)),
        lambda x: ops.AvgPool(2, 2)(RELU(x)),
    ],
    ids=["read by others", "a result", "another activation", "as many elements", "a mean"],
)
def test_others_stay_behind(function):
    before = graph_of(function)
    assert operators(pool_first(before)) == operators(before)


def test_what_is_printed_is_still_computed():
    printed = ops.Print()

    def net(x: Value) -> Value:
        y = RELU(x)
        printed(y)
        return TILES(y)

    before = graph_of(net)
    after = verify(pool_first(before))
    assert sorted(operators(after)) == ["MaxPool", "ReLU", "ReLU"]
    assert run(after, X) == run(before, X)


def test_a_training_step_has_the_same_bits():
    cell, (image, label) = lenet()
    step = training_step(cell, lambda parameters: nn.Momentum(parameters, 0.01, 0.9))
    traced = trace(step.construct, [TensorType.of(image), TensorType.of(label)], "step")
    assert run(optimize(traced, PASSES), image, label) == run(optimize(traced, WITHOUT), image, label)
