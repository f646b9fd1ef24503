"""Elementwise passes in blocks: the same bits for any order in memory and any number of threads."""

import numpy as np
import pytest

from runner import ops
from runner.host.threads import block_length, kernel_threads
from runner.ops.elementwise.arithmetic import BLOCK, DIVIDED, in_blocks

SHAPE = (64, 33, 15, 37)  # not a multiple of the blocks, and large enough for threads
ORDERS = {"as it is": (0, 1, 2, 3), "batch last": (1, 2, 3, 0)}


def array(order, seed, shape=SHAPE):
    """Random numbers of a shape, whose axes are in memory in this order."""
    made = np.random.default_rng(seed).standard_normal([shape[axis] for axis in order], np.float32)
    return made.transpose(np.argsort(order))


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("threads", [1, 3])
def test_every_element_is_computed_once(order, threads):
    sizes, x = [], array(order, 0)
    result = np.zeros_like(x)

    def add(values, found):
        sizes.append(values.size)
        found += values * 2

    with kernel_threads(threads):
        in_blocks(add, x, result)
        length = block_length(BLOCK)
    assert length == BLOCK * (4 if threads > 1 else 1)
    np.testing.assert_array_equal(result, x * 2)
    assert sorted(sizes)[1:] == [length] * (x.size // length)


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (2, DIVIDED // 2)])
def test_small_arrays_are_not_divided(shape):
    seen = []
    in_blocks(lambda *arrays: seen.append([x.shape for x in arrays]), np.ones(shape), np.ones(shape))
    assert seen == [[shape, shape]]


def test_arrays_in_different_orders_are_not_divided():
    x, y = (array(order, seed) for seed, order in enumerate(ORDERS.values()))
    result = np.empty_like(x)
    in_blocks(lambda a, b, found: np.add(a, b, out=found), x, y, result)
    np.testing.assert_array_equal(result, x + y)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_kernels_give_the_same_bits_in_blocks(order):
    x, dout, gradient = (array(order, seed) for seed in range(3))
    x[3, 2, 1, 0] = np.nan
    rate, momentum = np.float32([[0.1], [0.9]]).reshape(2, 1, 1)
    with kernel_threads(2):
        out = ops.ReLU().kernel(x)
        slope = ops.ReluGrad().kernel(dout, out)
        updated, moment = ops.ApplyMomentum().kernel(x, dout, rate[0, 0], gradient, momentum[0, 0])
    np.testing.assert_array_equal(out, np.maximum(x, np.float32(0)))
    np.testing.assert_array_equal(slope, np.where(np.isnan(x), np.nan, np.where(x > 0, dout, 0)))
    np.testing.assert_array_equal(moment, dout * np.float32(0.9) + gradient)
    np.testing.assert_array_equal(updated, x - np.float32(0.1) * moment)
