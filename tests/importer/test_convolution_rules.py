"""Convolutions and transposed convolutions over one to three axes against stock onnxruntime, and their gradients."""

from collections.abc import Iterator

import numpy as np
import pytest
from one_node import Constant, OneNode, check_gradients, check_outputs, node, refused, stock
from tables import table

from runner.importer.network import OnnxNetwork

ROWS_PER_RANK = 25


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def conv(x, w, *, bias=True, **attributes) -> OneNode:
    operands = [normal(*x), normal(*w), *([normal(w[0])] if bias else [])]
    return node("Conv", *operands, **attributes)


def transpose(x, w, *, bias=True, **attributes) -> OneNode:
    operands = [normal(*x), normal(*w), *([normal(w[1] * attributes.get("group", 1))] if bias else [])]
    return node("ConvTranspose", *operands, **attributes)


def random_settings(rng, rank: int) -> dict:
    """Strides, dilations, padding of one of all kinds, and groups."""

    def draw(low: int, high: int, count: int = rank) -> list[int]:
        return rng.integers(low, high, count).tolist()

    made = {"strides": draw(1, 4)} if rng.random() < 0.7 else {}
    if rng.random() < 0.5:
        made["dilations"] = draw(1, 3)
    kind = rng.choice(["NOTSET", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if kind == "pads":
        return {**made, "pads": draw(0, 4, 2 * rank)}
    return {**made, "auto_pad": str(kind)}


def convolutions() -> Iterator[OneNode]:
    for rank in (1, 2, 3):
        for seed in range(ROWS_PER_RANK):
            rng = np.random.default_rng((rank, seed))
            group, each = int(rng.choice([1, 2, 3])), int(rng.integers(1, 3))
            size, kernel = rng.integers(6, 10, rank).tolist(), rng.integers(1, 4, rank).tolist()
            x, w = (2, group * each, *size), (group * int(rng.integers(1, 3)), each, *kernel)
            settings = random_settings(rng, rank)
            if {*settings.get("dilations", [1])} != {1} and "SAME" in settings.get("auto_pad", ""):
                del settings["dilations"]  # onnxruntime refuses both
            yield conv(x, w, bias=bool(seed % 2), group=group, kernel_shape=kernel, opset=11 + seed % 8, **settings)


def transposed() -> Iterator[OneNode]:
    for rank in (1, 2, 3):
        for seed in range(ROWS_PER_RANK):
            rng = np.random.default_rng((9, rank, seed))
            group, each = int(rng.choice([1, 2, 3])), int(rng.integers(1, 3))
            size, kernel = rng.integers(2, 5, rank).tolist(), rng.integers(1, 4, rank).tolist()
            x, w = (2, group * int(rng.integers(1, 3)), *size), (0, each, *kernel)
            w = (x[1], *w[1:])
            settings = {"strides": rng.integers(1, 4, rank).tolist(), "dilations": rng.integers(1, 3, rank).tolist()}
            whole = [
                (n - 1) * s + d * (k - 1) + 1
                for n, k, s, d in zip(size, kernel, settings["strides"], settings["dilations"], strict=True)
            ]
            kind = seed % 5
            if kind == 1:
                settings["pads"] = [int(rng.integers(0, (n + 1) // 2)) for n in whole] * 2
            if kind == 2:
                settings["output_padding"] = [int(rng.integers(0, s)) for s in settings["strides"]]
            if kind == 3:
                settings["output_shape"] = [int(rng.integers(max(1, n - 2), n + 1)) for n in whole]
            if kind == 4:
                settings["output_shape"] = [int(rng.integers(max(1, n - 3), n + 1)) for n in whole]
                settings["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER"]))
            yield transpose(x, w, bias=bool(seed % 2), group=group, opset=11 + seed % 8, **settings)


@table("row", [*convolutions(), conv((2, 4, 6, 6), (4, 1, 3, 3), group=4, pads=[1] * 4, opset=9)], ids=str)
def test_convolutions(row, tmp_path):
    check_outputs(row, tmp_path)


@table("row", [*transposed(), transpose((2, 3, 4, 4), (3, 2, 2, 2), strides=[2, 2], opset=9)], ids=str)
def test_transposed_convolutions(row, tmp_path):
    check_outputs(row, tmp_path)


@table(
    "row",
    [
        conv((2, 4, 7), (6, 2, 3), group=2, strides=[2], dilations=[2], pads=[2, 1]),
        conv((2, 2, 5, 4), (3, 2, 3, 2), strides=[2, 1], auto_pad="SAME_LOWER"),
        conv((1, 2, 3, 4, 3), (2, 2, 2, 3, 2), strides=[1, 2, 1], pads=[1, 0, 1, 0, 1, 1]),
        transpose((2, 4, 4), (4, 1, 3), group=2, strides=[3], pads=[1, 0]),
        transpose((1, 2, 3, 4), (2, 2, 3, 2), strides=[2, 1], output_padding=[1, 0], pads=[1, 0, 0, 1]),
        transpose((1, 2, 3), (2, 2, 2), strides=[1], dilations=[3], output_padding=[2]),  # zeros after what is reached
        transpose((1, 2, 2, 3, 2), (2, 1, 2, 2, 2), strides=[2, 1, 2]),
    ],
    ids=str,
)
def test_gradients(row, tmp_path):
    check_gradients(row, tmp_path)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_the_size_of_a_transposed_convolution_is_a_multiple(mode, tmp_path):
    """As the definition says: the size of the input times the stride."""
    check_outputs(transpose((1, 2, 4, 3), (2, 2, 3, 4), strides=[2, 2], auto_pad=mode), tmp_path)


def test_zeros_after_what_the_stride_reaches(tmp_path):
    """Where onnxruntime refuses an output_padding of the stride and more, which the definition allows."""
    settings = {"strides": [1, 2], "dilations": [3, 3], "bias": False}
    row = transpose((1, 2, 3, 4), (2, 2, 2, 2), output_padding=[2, 2], **settings)
    plain = transpose((1, 2, 3, 4), (2, 2, 2, 2), **settings)
    whole = stock(plain.write(tmp_path), plain.arrays())[0]
    check_outputs(row, tmp_path, [np.pad(whole, ((0, 0), (0, 0), (0, 2), (0, 2)))])


def test_weights_are_parameters_with_the_names_of_the_file(tmp_path):
    path = node("Conv", normal(2, 3, 5, 5), Constant(normal(4, 3, 3, 3)), Constant(normal(4))).write(tmp_path)
    network = OnnxNetwork(str(path))
    assert [(p.name, p.shape) for p in network.trainable_params()] == [("x1", (4, 3, 3, 3)), ("x2", (4,))]


@table(
    ("row", "what", "rows"),
    [
        (
            conv((1, 2, 5, 5), (3, 2, 3, 3), pads=[1, 1]),
            "an attribute does not fit the input",
            {"attribute": "pads", "value": "(1, 1)", "allowed": "4 numbers from 0"},
        ),
        (
            conv((1, 2, 5, 5), (3, 2, 3, 3), pads=[1, -1, 1, 1]),
            "an attribute does not fit the input",
            {"attribute": "pads", "value": "(1, -1, 1, 1)"},
        ),
        (
            conv((1, 2, 5, 5), (3, 2, 3, 3), kernel_shape=[3, 2]),
            "an attribute does not fit the filters",
            {"attribute": "kernel_shape", "value": "(3, 2)"},
        ),
        (
            conv((1, 4, 5, 5), (3, 2, 3, 3), group=3),
            "channels and groups do not fit the filters",
            {"group": "3"},
        ),
        (
            conv((1, 2, 5, 5, 5, 5), (3, 2, 1, 1, 1, 1)),
            "needs one to three axes besides batch and channels",
            {},
        ),
        (
            conv((1, 2, 5, 5), (3, 2, 3, 3), auto_pad="SAME"),
            "a setting is not supported",
            {"attribute": "auto_pad", "value": "SAME", "allowed": "NOTSET, SAME_UPPER, SAME_LOWER, VALID"},
        ),
        (
            transpose((1, 2, 2, 2), (2, 3, 3, 3), pads=[2, 2, 2, 2]),
            "the padding leaves no result",
            {"result": "(0, 0)"},
        ),
    ],
    ids=str,
)
def test_attributes_that_do_not_fit(row, what, rows, tmp_path):
    error = refused(row, tmp_path)
    assert error.what == what
    assert error.rows["node"] == "node"
    assert {name: error.rows[name] for name in rows} == rows
