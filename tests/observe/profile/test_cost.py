"""Operations of operators, counted one by one in loops that multiply and add as the definitions say."""

import itertools
from typing import ClassVar

import numpy as np
import pytest

from runner import dtype as dt, ops
from runner.core.operators import Primitive, infer
from runner.observe.profile.record import cost
from runner.types import TensorType


def f32(*shape):
    return TensorType(dt.float32, shape)


def flops(op, *inputs):
    return cost(op, inputs, infer(op, inputs)).flops


def counted_convolution(x, w, stride):
    """Multiplications and additions of a convolution without padding."""
    (n, _c, height, width), (k, per_group, kh, kw) = x, w
    rows, columns = range(0, height - kh + 1, stride), range(0, width - kw + 1, stride)
    return sum(2 * per_group * kh * kw for _ in itertools.product(range(n), range(k), rows, columns))


@pytest.mark.parametrize(
    ("a", "b", "turns"),
    [((3, 5), (5, 4), (False, False)), ((5, 3), (5, 4), (True, False)), ((3, 5), (4, 5), (False, True))],
)
def test_products(a, b, turns):
    """A loop over the rows, columns and the inner axis of 3x5 times 5x4."""
    counted = sum(2 for _ in itertools.product(range(3), range(4), range(5)))
    assert flops(ops.MatMul(*turns), f32(*a), f32(*b)) == counted
    assert flops(ops.BatchMatMul(*turns), f32(2, *a), f32(2, *b)) == 2 * counted


@pytest.mark.parametrize(("stride", "group"), [(1, 1), (2, 1), (1, 2)])
def test_a_convolution_and_both_its_gradients(stride, group):
    x, w = (2, 4, 9, 8), (6, 4 // group, 3, 2)
    settings = {"out_channel": 6, "kernel_size": (3, 2), "pad_mode": "valid", "stride": stride, "group": group}
    forward = ops.Conv2D(**settings)
    (y,) = infer(forward, (f32(*x), f32(*w)))
    counted = counted_convolution(x, w, stride)
    assert flops(forward, f32(*x), f32(*w)) == counted
    backward = forward.sibling(ops.Conv2DBackpropInput, input_size=x)
    assert flops(backward, y, f32(*w)) == counted
    filters = forward.sibling(ops.Conv2DBackpropFilter, filter_size=w)
    assert flops(filters, y, f32(*x)) == counted


def test_pools_look_at_every_element_of_every_window():
    x = f32(2, 3, 8, 8)
    for op in (ops.MaxPool(2, 2), ops.AvgPool(2, 2)):
        assert flops(op, x) == 2 * 3 * 8 * 8  # windows lie side by side: each element once
    assert flops(ops.MaxPool(3, 1), x) == 2 * 3 * 6 * 6 * 9


def test_elementwise_operators_and_movers():
    x = f32(4, 5)
    assert flops(ops.Add(), x, x) == flops(ops.ReLU(), x) == 20
    assert flops(ops.Add(), x, f32(5)) == 20
    assert flops(ops.Reshape((20,)), x) == flops(ops.Transpose((1, 0)), x) == 0
    assert flops(ops.ReduceSum(), x) == flops(ops.BiasAddGrad(), x) == 20


def test_bytes_are_those_of_operands_and_results():
    x, y = f32(3, 5), TensorType(dt.float16, (7,))
    assert cost(ops.Add(), (x, x), (x,)).bytes == 3 * np.zeros((3, 5), np.float32).nbytes
    assert cost(ops.Neg(), (y,), (y,)).bytes == 2 * np.zeros(7, np.float16).nbytes


def test_a_new_operator_brings_its_own_cost():
    class Elementwise(Primitive):
        flops_each: ClassVar = 3

    class Outer(Primitive):
        def flops(self, inputs, outputs):
            return 5 * inputs[0].size * inputs[1].size

    class Moves(Primitive):
        computes: ClassVar = False

    x, y = f32(4, 5), f32(7)
    assert cost(Elementwise(), (x,), (x, x)) == (3 * 20, 3 * 80)
    assert cost(Outer(), (x, y), (x,)).flops == 5 * 20 * 7
    assert cost(Moves(), (x,), (x,)).flops == cost(Elementwise(), (x,), ()).flops == 0
