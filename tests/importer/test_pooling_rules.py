"""Pools over one to three axes against stock onnxruntime and the definition, and their gradients."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
from both_modes import step_of
from one_node import OneNode, check_gradients, check_outputs, node, refused
from tables import table

from runner.importer.network import OnnxNetwork

ROWS_PER_RANK = 30


def distinct(*shape: int) -> np.ndarray:
    """Floats of which no two are almost equal, so that differences are gradients."""
    count = math.prod(shape)
    places = np.random.default_rng(count).permutation(count)
    return (places * 0.01 - count * 0.005).reshape(shape).astype(np.float32)


def pool(operator, shape, kernel, **settings) -> OneNode:
    return node(operator, distinct(*shape), kernel_shape=kernel, **settings)


def settings_of(rng, rank: int, operator: str, kernel: list[int]) -> dict:
    """Strides, dilations of a MaxPool, ceil_mode, and padding that onnxruntime accepts."""
    made: dict = {"strides": rng.integers(1, 4, rank).tolist(), "ceil_mode": int(rng.random() < 0.5)}
    if operator == "AveragePool":
        made["count_include_pad"] = int(rng.random() < 0.5)
    elif rng.random() < 0.5:
        made["dilations"] = rng.integers(1, 3, rank).tolist()
    kind = rng.choice(["pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if kind == "pads":
        return {**made, "pads": [int(rng.integers(0, k)) for k in kernel * 2]}
    strides = [min(s, k) for s, k in zip(made["strides"], kernel, strict=True)]  # else onnxruntime crops
    counted = {name: value for name, value in made.items() if name == "count_include_pad"}
    return {**counted, "strides": strides, "auto_pad": str(kind)}


def random_rows(operator: str) -> Iterator[OneNode]:
    for rank in (1, 2, 3):
        for seed in range(ROWS_PER_RANK):
            rng = np.random.default_rng((rank, seed, len(operator)))
            kernel = rng.integers(1, 4, rank).tolist()
            shape = (2, 3, *rng.integers(6, 10, rank).tolist())
            yield pool(operator, shape, kernel, opset=12 + seed % 8, **settings_of(rng, rank, operator, kernel))


@table("row", [*random_rows("MaxPool"), pool("MaxPool", (2, 3, 8, 8), [3, 3], pads=[1] * 4, opset=9)], ids=str)
def test_maximum(row, tmp_path):
    check_outputs(row, tmp_path)


def mean(x: np.ndarray, row: OneNode) -> np.ndarray:
    """The definition of AveragePool, one window at a time; what completes incomplete windows never counts."""
    rank, get = x.ndim - 2, row.attributes.get
    kernel, strides, dilations = (get(k, [1] * rank) for k in ("kernel_shape", "strides", "dilations"))
    pads = get("pads", [0] * 2 * rank)
    starts = []
    for size, k, s, d, before, after in zip(
        x.shape[2:], kernel, strides, dilations, pads[:rank], pads[rank:], strict=True
    ):
        steps = size + before + after - d * (k - 1) - 1
        count = (math.ceil(steps / s) if get("ceil_mode") else steps // s) + 1
        starts.append([i * s - before for i in range(count) if i * s < size + before])
    made = np.zeros((*x.shape[:2], *map(len, starts)))
    for at in np.ndindex(made.shape[2:]):
        windows = [
            range(starts[axis][i], starts[axis][i] + kernel[axis] * dilations[axis], dilations[axis])
            for axis, i in enumerate(at)
        ]
        places = [*itertools.product(*windows)]
        inside = [p for p in places if all(0 <= i < n for i, n in zip(p, x.shape[2:], strict=True))]
        ends = [n + after for n, after in zip(x.shape[2:], pads[rank:], strict=True)]
        counted = [p for p in places if all(i < end for i, end in zip(p, ends, strict=True))]
        total = sum(x[:, :, *p].astype(np.float64) for p in inside)
        made[:, :, *at] = total / len(counted if get("count_include_pad") else inside)
    return made


@table("row", [*random_rows("AveragePool")], ids=str)
def test_mean(row, tmp_path):
    check_outputs(row, tmp_path)
    if "auto_pad" not in row.attributes:
        check_outputs(row, tmp_path, [mean(row.given[0], row)])


@table(
    "row",
    [
        pool("AveragePool", (2, 2, 7, 8), [3, 2], strides=[2, 2], dilations=[2, 3], pads=[1, 1, 0, 1], opset=19),
        pool("AveragePool", (2, 2, 9), [3], dilations=[2], count_include_pad=1, pads=[2, 2], ceil_mode=1, opset=19),
        pool("AveragePool", (1, 2, 5, 6, 7), [2, 2, 2], dilations=[2, 1, 3], opset=19),
    ],
    ids=str,
)
def test_mean_with_dilations(row, tmp_path):
    check_outputs(row, tmp_path, [mean(row.given[0], row)])


@table(
    "row",
    [
        node("GlobalAveragePool", distinct(2, 3, 5)),
        node("GlobalAveragePool", distinct(2, 3, 5, 4), opset=9),
        node("GlobalAveragePool", distinct(2, 3, 2, 4, 3)),
        node("GlobalMaxPool", distinct(2, 3, 5)),
        node("GlobalMaxPool", distinct(2, 3, 5, 4), opset=9),
        node("GlobalMaxPool", distinct(2, 3, 2, 4, 3)),
        node("GlobalLpPool", distinct(2, 3, 5, 4)),
        node("GlobalLpPool", distinct(2, 3, 5), p=1),
        node("GlobalLpPool", distinct(2, 3, 5), p=3),
        pool("LpPool", (2, 3, 7, 6), [3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
        pool("LpPool", (2, 3, 7), [3], p=1, auto_pad="SAME_LOWER", opset=11),
        pool("LpPool", (1, 2, 5, 4, 4), [2, 3, 2], p=3),
        pool("LpPool", (2, 3, 7, 6), [3, 2], dilations=[1, 2]),
        node("LRN", distinct(2, 6, 3, 4), size=3),
        node("LRN", distinct(2, 5, 3, 4), size=5, alpha=0.2, beta=0.6, bias=2.0, opset=9),
        node("LRN", distinct(1, 3, 4, 4), size=9, alpha=0.5),
    ],
    ids=str,
)
def test_others(row, tmp_path):
    check_outputs(row, tmp_path)
    check_gradients(row, tmp_path)


def test_an_even_number_of_channels(tmp_path):
    """One channel more after than before, as in the definition; onnxruntime refuses even sizes."""
    x = distinct(2, 5, 3, 2)
    row = node("LRN", x, size=4, alpha=0.2, beta=0.6, bias=2.0)
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (1, 2), (0, 0), (0, 0)))
    total = sum(squares[:, k : k + 5] for k in range(4))
    check_outputs(row, tmp_path, [x / (2 + 0.2 / 4 * total) ** 0.6])


def test_a_stride_above_the_kernel(tmp_path):
    """`SAME` has ceil(size / stride) windows, and no negative padding, which onnxruntime has."""
    x = distinct(1, 2, 7, 9)
    row = node("MaxPool", x, kernel_shape=[1, 2], strides=[3, 3], auto_pad="SAME_UPPER")
    check_outputs(row, tmp_path, [np.maximum(x[:, :, ::3, ::3], x[:, :, ::3, 1::3])])


@table(
    "row",
    [
        pool("MaxPool", (1, 2, 6, 8), [3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        pool("MaxPool", (1, 2, 7, 6), [2, 2], strides=[2, 3], ceil_mode=1, dilations=[2, 1]),
        pool("MaxPool", (2, 2, 9), [3], strides=[2], auto_pad="SAME_LOWER"),
        pool("MaxPool", (1, 2, 4, 5, 6), [2, 3, 2], strides=[2, 1, 2], pads=[1, 1, 0, 0, 1, 1]),
        pool("AveragePool", (1, 2, 6, 7), [3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
        pool("AveragePool", (1, 2, 6, 7), [3, 2], strides=[2, 3], pads=[1, 0, 1, 1], count_include_pad=1, ceil_mode=1),
        pool("AveragePool", (2, 2, 9), [3], dilations=[2], pads=[1, 2], opset=19),
        pool("AveragePool", (1, 1, 4, 5, 6), [2, 3, 2], strides=[2, 1, 2], pads=[1, 1, 0, 0, 1, 1]),
    ],
    ids=str,
)
def test_gradients(row, tmp_path):
    check_gradients(row, tmp_path)


@table(
    "row",
    [
        node("MaxPool", distinct(2, 3, 7, 6), outputs=2, ints=[1], kernel_shape=[2, 2], strides=[2, 2]),
        node("MaxPool", distinct(2, 3, 7, 6), outputs=2, ints=[1], kernel_shape=[3, 2], pads=[1, 0, 1, 1]),
        node(
            "MaxPool", distinct(2, 3, 9), outputs=2, ints=[1], kernel_shape=[3], strides=[2], dilations=[2], ceil_mode=1
        ),
    ],
    ids=str,
)
def test_positions(row, tmp_path):
    check_outputs(row, tmp_path)


def test_padding_is_never_the_maximum(tmp_path):
    x = -1 - np.abs(distinct(1, 2, 5, 5))
    row = node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    (made,) = step_of(OnnxNetwork(str(row.write(tmp_path))).construct, "graph")(x)
    assert made.max() <= -1
    check_outputs(row, tmp_path)


@table(
    ("row", "what", "rows"),
    [
        (
            node("MaxPool", distinct(1, 2, 5, 5)),
            "an attribute is missing",
            {"attribute": "kernel_shape"},
        ),
        (
            pool("MaxPool", (1, 2, 5, 5), [3]),
            "an attribute does not fit the input",
            {"attribute": "kernel_shape", "value": "(3,)", "allowed": "2 numbers from 1"},
        ),
        (
            pool("LpPool", (1, 2, 5, 5), [3, 3], ceil_mode=1),
            "a setting is not supported",
            {"attribute": "ceil_mode", "value": "1"},
        ),
        (pool("LpPool", (1, 2, 5, 5), [3, 3], p=0), "a norm needs an exponent from 1", {}),
        (pool("LpPool", (1, 2, 5, 5), [10**6, 10**6]), "there is not enough memory", {}),
        (node("LRN", distinct(1, 2, 5, 5), size=0), "needs (N, C, ...) and a size from 1", {"size": "0"}),
        (
            pool("MaxPool", (1, 2, 5, 5), [2, 2], pads=[10**14] * 4),
            "MaxPool: a window has no element of the image",
            {},
        ),
        (
            pool("MaxPool", (1, 2, 5, 5), [2, 2], dilations=[10**14, 1], pads=[10**14, 0, 10**14, 0]),
            "MaxPool: a window has no element of the image",
            {},
        ),
        (
            pool("MaxPool", (1, 2, 5, 5), [2, 2], strides="2"),
            "an attribute has another type than ONNX declares",
            {"attribute": "strides", "given": "STRING", "allowed": "INTS"},
        ),
        (
            pool("AveragePool", (1, 2, 5, 5), [2.0, 2.0]),
            "an attribute has another type than ONNX declares",
            {"attribute": "kernel_shape", "given": "FLOATS", "allowed": "INTS"},
        ),
    ],
    ids=str,
)
def test_attributes_that_do_not_fit(row, what, rows, tmp_path):
    error = refused(row, tmp_path)
    assert error.what == what
    assert {name: error.rows[name] for name in ("node", *rows)} == {"node": "node", **rows}
