"""Pad, DepthToSpace and SpaceToDepth against stock onnxruntime, and their gradients."""

import numpy as np
from one_node import Constant, OneNode, check_gradients, check_outputs, node, refused
from tables import table


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def pad(shape, pads, value=None, axes=None, opset=18, **attributes) -> OneNode:
    """A Pad with inputs, or attributes in old opsets."""
    if opset < 11:
        more = {"value": value} if value is not None else {}
        return node("Pad", normal(*shape), opset=opset, pads=pads, **more, **attributes)
    operands = [Constant(np.array(pads, np.int64))]
    if value is not None or axes is not None:
        operands.append(None if value is None else Constant(np.array(value, np.float32)))
    if axes is not None:
        operands.append(Constant(np.array(axes, np.int64)))
    note = f"{pads} {value} {axes} {attributes}"
    return node("Pad", normal(*shape), *operands, opset=opset, note=note, **attributes)


ROWS = [
    pad((2, 3), [0, 1, 2, 0]),
    pad((2, 3), [0, 1, 2, 0], 1.5),
    pad((2, 3), [0, 1, 2, 0], -np.inf),
    pad((2, 3, 4, 4), [0, 0, 1, 2, 0, 0, 3, 0], opset=9),
    pad((2, 3, 4, 4), [0, 0, 1, 2, 0, 0, 3, 0], 0.5, opset=10),
    pad((2, 3, 4, 4), [0, 0, 1, 2, 0, 0, 3, 0], opset=10, mode="reflect"),
    pad((2, 3, 4, 4), [0, 0, 1, 2, 0, 0, 3, 0], opset=11, mode="edge"),
    pad((2, 3, 4, 4), [0, 0, 3, 1, 0, 0, 0, 2], mode="reflect"),
    pad((2, 3, 4, 4), [1, 0, 5, 1, 0, 2, 0, 7], mode="edge"),
    pad((2, 3, 4, 4), [0, 0, 4, 1, 0, 0, 0, 3], mode="wrap", opset=19),
    pad((2, 3), [1, 2], axes=[1]),
    pad((2, 3, 4), [1, 2, 0, 1], 2.0, axes=[-1, 0]),
    pad((2, 5), [0, -1, 0, -2]),
    pad((4, 5), [-1, 2, 1, -3], 0.25),
    pad((4, 5), [-1, 2, 0, -1], mode="edge"),
    pad((2, 1), [1, 4, 1, -2], 3.0),  # the whole axis and constants are removed
    pad((4, 5), [0, 0, 0, 0], mode="reflect"),
    pad((3,), [2, 2], mode="reflect", opset=13),
]


@table("row", ROWS, ids=str)
def test_padding(row, tmp_path):
    check_outputs(row, tmp_path)


@table("row", [row for row in ROWS if "inf" not in str(row)], ids=str)
def test_gradients_of_padding(row, tmp_path):
    check_gradients(row, tmp_path)


@table("mode", ["reflect", "wrap"])
def test_more_than_there_is(mode, tmp_path):
    """onnxruntime refuses this for `reflect`; numpy continues in the same way."""
    row = pad((2, 3), [0, 4, 0, 8], mode=mode, opset=19)
    expected = np.pad(row.given[0], ((0, 0), (4, 8)), mode=mode)
    check_outputs(row, tmp_path, [expected])
    check_gradients(row, tmp_path)


@table("block", [1, 2, 3])
def test_blocks(block, tmp_path):
    rows = [
        node("DepthToSpace", normal(2, 2 * block**2, 2, 3), blocksize=block, opset=9),
        node("DepthToSpace", normal(2, 2 * block**2, 2, 3), blocksize=block, mode="DCR", opset=13),
        node("DepthToSpace", normal(2, 2 * block**2, 2, 3), blocksize=block, mode="CRD", opset=11),
        node("SpaceToDepth", normal(2, 3, 2 * block, 3 * block), blocksize=block),
    ]
    for row in rows:
        check_outputs(row, tmp_path)
        check_gradients(row, tmp_path)


@table(
    ("row", "what"),
    [
        (pad((2, 3), [1, 1, 1]), "needs two pads for each axis"),
        (pad((2, 3), [0, -4, 0, 0]), "negative pads remove more than there is"),
        (pad((2, 3), [0, 1, 0, 0], mode="mirror"), "a setting is not supported"),
        (node("Split", normal(2, 4), axis=1, num_outputs=1 << 31), "a setting is not supported"),
        (
            node("Split", normal(2, 4), Constant(np.array([1, 1, 2])), axis=1, outputs=2),
            "the parts of a split are not the whole",
        ),
        (pad((2, 3), [0, 1, 0, 0], opset=19, axes=[5, 0]), "an axis is out of range"),
        (node("DepthToSpace", normal(1, 6, 2, 2), blocksize=2), "needs blocksize * blocksize channels for each"),
        (node("SpaceToDepth", normal(1, 6, 2, 3), blocksize=2), "height and width must consist of whole blocks"),
    ],
    ids=str,
)
def test_what_does_not_fit(row, what, tmp_path):
    error = refused(row, tmp_path)
    assert error.what == what
    assert error.rows["node"] == "node"
