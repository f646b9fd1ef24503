"""MaxUnpool and Col2Im against stock onnxruntime, their gradients, and what they refuse."""

import numpy as np
from one_node import Constant, check_gradients, check_outputs, node, refused
from tables import table


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def unpool(shape, positions, *output_shape, **attributes):
    wanted = [Constant(np.array(n, np.int64)) for n in output_shape]
    return node(
        "MaxUnpool", normal(*shape), Constant(np.array(positions, np.int64).reshape(shape)), *wanted, **attributes
    )


def blocks(shape, image, block, **attributes):
    return node("Col2Im", normal(*shape), Constant(np.array(image)), Constant(np.array(block)), **attributes)


@table(
    "row",
    [
        unpool((1, 1, 2, 2), [5, 7, 13, 15], kernel_shape=[2, 2], strides=[2, 2]),
        unpool((1, 2, 2, 2), [0, 3, 8, 10, 17, 18, 24, 31], kernel_shape=[2, 2], strides=[2, 2], opset=11),
        unpool((1, 1, 3), [1, 2, 5], kernel_shape=[2], strides=[2]),
        unpool((1, 1, 2, 2), [0, 2, 4, 8], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    ],
    ids=str,
)
def test_positions_of_maxima(row, tmp_path):
    check_outputs(row, tmp_path)
    check_gradients(row, tmp_path)


@table(
    "row",
    [
        blocks((2, 8, 6), [4, 6], [2, 2], strides=[2, 2]),
        blocks((1, 4, 15), [4, 6], [2, 2]),
        blocks((2, 9, 20), [4, 5], [3, 3], pads=[1, 1, 1, 1]),
        blocks((1, 12, 16), [5, 7], [2, 3], strides=[1, 2], dilations=[2, 1], pads=[1, 0, 0, 2]),
        blocks((2, 6, 4), [6], [3]),
        blocks((1, 8, 12), [2, 3, 4], [2, 1, 2], strides=[1, 1, 1], pads=[0, 0, 0, 0, 0, 1]),
    ],
    ids=str,
)
def test_blocks(row, tmp_path):
    check_outputs(row, tmp_path)
    check_gradients(row, tmp_path)


@table(
    ("row", "what"),
    [
        (blocks((2, 9, 6), [4, 6], [2, 2], strides=[2, 2]), "the blocks do not cover the images"),
        (blocks((2, 8, 5), [4, 6], [2, 2], strides=[2, 2]), "the blocks do not cover the images"),
        (
            unpool((1, 1, 2, 2), [5, 7, 13, 15], [1, 1, 3, 3], kernel_shape=[2, 2], strides=[2, 2]),
            "output_shape does not have the result",
        ),
    ],
    ids=str,
)
def test_what_does_not_fit(row, what, tmp_path):
    error = refused(row, tmp_path)
    assert error.what == what
    assert error.rows["node"] == "node"
