"""Operators that are composed of others, against numpy in Float64."""

import numpy as np
import pytest
from both_modes import MODES, step_of
from compositions import Composed, check_gradients, check_half, check_values, parameter_after
from operands import coarse, distinct, normal, positive, whole
from samples_functions import within
from tables import check_rows, table

from runner import dtype as dt, ops
from runner.core.values import Parameter, Tensor
from runner.errors import ConfigError, ShapeError


def softplus(x):
    return np.logaddexp(0, x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def combined(losses, reduction):
    return {"none": lambda: losses, "mean": losses.mean, "sum": losses.sum}[reduction]()


def losses():
    x, y = normal(3, 4), normal(3, 4)
    yield Composed("L2Loss", ops.L2Loss(), (x,), lambda x: (x * x).sum() / 2)
    for axis in (0, 1, (0, 1)):
        op = ops.L2Normalize(axis)
        yield Composed(f"L2Normalize-{axis}", op, (x,), lambda x, a=axis: x / np.sqrt((x * x).sum(a, keepdims=True)))
    yield Composed("L2Normalize-small", ops.L2Normalize(1, 10.0), (x * 0.1,), lambda x: x / np.sqrt(10.0))
    for beta in (1.0, 0.3):

        def smooth_l1(x, y, beta=beta):
            d = np.abs(x - y)
            return np.where(d < beta, d * d / 2 / beta, d - beta / 2)

        yield Composed(f"SmoothL1Loss-{beta}", ops.SmoothL1Loss(beta), (x, y), smooth_l1)
    labels = within(0.05, 0.95, 3, 4)
    yield Composed(
        "SigmoidCrossEntropy", ops.SigmoidCrossEntropyWithLogits(), (x, labels), lambda x, y: softplus(x) - x * y
    )
    weight, share = positive(3, 4), positive(4)
    for reduction in ("none", "mean", "sum"):

        def bce(p, y, w=1.0, r=reduction):
            return combined(-w * (y * np.log(p) + (1 - y) * np.log(1 - p)), r)

        def bce_with_logits(x, y, w, p, r=reduction):
            return combined(-w * (p * y * np.log(sigmoid(x)) + (1 - y) * np.log(1 - sigmoid(x))), r)

        p = within(0.1, 0.9, 3, 4)
        yield Composed(f"BinaryCrossEntropy-{reduction}", ops.BinaryCrossEntropy(reduction), (p, labels), bce)
        yield Composed(f"BCE-weight-{reduction}", ops.BinaryCrossEntropy(reduction), (p, labels, weight), bce)
        operands = x, labels, weight, share
        yield Composed(f"BCEWithLogits-{reduction}", ops.BCEWithLogitsLoss(reduction), operands, bce_with_logits)
        kl = lambda x, y, r=reduction: combined(y * (np.log(y) - x), r)  # noqa: E731
        yield Composed(f"KLDivLoss-{reduction}", ops.KLDivLoss(reduction), (x, labels), kl)

        def nll(x, y, w, r=reduction):
            losses = -w[y] * x[range(len(y)), y]
            return (losses.sum() / w[y].sum() if r == "mean" else combined(losses, r)), w[y].sum()

        numbers = np.array([3, 0, 1], np.int32)
        yield Composed(f"NLLLoss-{reduction}", ops.NLLLoss(reduction), (x, numbers, positive(4)), nll)


def blocks(x, b):
    n, c, h, w = x.shape
    return x.reshape(n, c, h // b, b, w // b, b)


def arrangements():
    for shape in ((3,), (2, 3)):
        count = int(np.prod(shape))
        diag = lambda x, s=shape: np.diag(x.ravel()).reshape(s + s)  # noqa: E731
        yield Composed(f"Diag-{shape}", ops.Diag(), (normal(*shape),), diag)
        part = lambda x, s=shape, n=count: np.diag(x.reshape(n, n)).reshape(s)  # noqa: E731
        yield Composed(f"DiagPart-{shape}", ops.DiagPart(), (normal(*shape, *shape),), part)
    yield Composed("Diag-int32", ops.Diag(), (whole(3),), np.diag)
    for indexing in ("xy", "ij"):
        grid = lambda *x, i=indexing: tuple(np.meshgrid(*x, indexing=i))  # noqa: E731
        yield Composed(f"Meshgrid-{indexing}", ops.Meshgrid(indexing), (normal(3), normal(2), normal(4)), grid)
    yield Composed("Meshgrid-one", ops.Meshgrid(), (normal(3),), lambda x: (x,))
    pads = ((1, 2), (0, 1), (2, 0))
    for mode, name in (("REFLECT", "reflect"), ("SYMMETRIC", "symmetric")):
        mirrored = lambda x, n=name: np.pad(x, pads, n)  # noqa: E731
        yield Composed(f"MirrorPad-{name}", lambda x, m=mode: ops.MirrorPad(m)(x, pads), (normal(4, 2, 3),), mirrored)
    yield Composed("Padding", ops.Padding(4), (normal(2, 1),), lambda x: np.pad(x, ((0, 0), (0, 3))))
    pair = normal(1, 3), normal(1, 3)
    yield Composed("ParallelConcat", lambda *x: ops.ParallelConcat()(x), pair, lambda *x: np.concatenate(x))

    def reversed_parts(x, lengths):
        out = x.copy()
        for k, n in enumerate(lengths):
            out[k, :, :n] = x[k, :, :n][:, ::-1]
        return out

    operands = normal(3, 2, 5), np.array([0, 5, 3], np.int64)
    yield Composed("ReverseSequence", ops.ReverseSequence(2, 0), operands, reversed_parts)
    yield Composed("ReverseSequence-negative", ops.ReverseSequence(-1), operands, reversed_parts)
    x = normal(2, 3, 4, 6)

    def to_depth(x, b=2):
        n, _, h, w = x.shape
        return np.stack([x[:, :, i::b, j::b] for i in range(b) for j in range(b)], 1).reshape(n, -1, h // b, w // b)

    def to_space(x, b=2):
        n, c, h, w = x.shape
        out = np.zeros((n, c // (b * b), h * b, w * b), x.dtype)
        parts = x.reshape(n, b * b, c // (b * b), h, w)
        for k in range(b * b):
            out[:, :, k // b :: b, k % b :: b] = parts[:, k]
        return out

    yield Composed("SpaceToDepth", ops.SpaceToDepth(2), (x,), to_depth)
    yield Composed("DepthToSpace", ops.DepthToSpace(2), (normal(2, 8, 3, 2),), to_space)

    def to_batch(x, b1=2, b2=2, pads=((0, 0), (0, 0))):
        x = np.pad(x, ((0, 0), (0, 0), *pads))
        return np.concatenate([x[:, :, i::b1, j::b2] for i in range(b1) for j in range(b2)])

    def from_batch(x, b1=2, b2=2, crops=((0, 0), (0, 0))):
        n, c, h, w = x.shape
        out = np.zeros((n // (b1 * b2), c, h * b1, w * b2), x.dtype)
        for k, part in enumerate(np.split(x, b1 * b2)):
            out[:, :, k // b2 :: b1, k % b2 :: b2] = part
        (t, bottom), (left, r) = crops
        return out[:, :, t : h * b1 - bottom, left : w * b2 - r]

    none, some = ((0, 0), (0, 0)), ((1, 1), (0, 3))
    yield Composed("SpaceToBatch", ops.SpaceToBatch(2, none), (x,), to_batch)
    yield Composed("SpaceToBatchND", ops.SpaceToBatchND([2, 3], some), (x,), lambda x: to_batch(x, 2, 3, some))
    y = normal(12, 2, 3, 2)
    yield Composed("BatchToSpace", ops.BatchToSpace(2, none), (y,), from_batch)
    yield Composed("BatchToSpaceND", ops.BatchToSpaceND((2, 3), some), (y,), lambda y: from_batch(y, 2, 3, some))


def totals():
    xs = normal(2, 3), normal(2, 3), normal(2, 3)
    yield Composed("AddN", lambda *x: ops.AddN()(x), xs, lambda *x: sum(x))
    yield Composed("AccumulateNV2", lambda *x: ops.AccumulateNV2()(list(x)), xs, lambda *x: sum(x))
    for axis, keep in ((0, False), (-1, True), (1, False)):
        x = distinct(3, 4, 2)
        most = lambda x, a=axis, k=keep: (x.argmax(a, keepdims=k), x.max(a, keepdims=k))  # noqa: E731
        least = lambda x, a=axis, k=keep: (x.argmin(a, keepdims=k), x.min(a, keepdims=k))  # noqa: E731
        yield Composed(f"ArgMaxWithValue-{axis}", ops.ArgMaxWithValue(axis, keep), (x,), most)
        yield Composed(f"ArgMinWithValue-{axis}", ops.ArgMinWithValue(axis, keep), (x,), least)
    yield Composed(
        "EqualCount", ops.EqualCount(), (whole(9, high=0), whole(9, high=0)), lambda x, y: np.array([(x == y).sum()])
    )
    sums = lambda x, y: ((x * x).sum(), (y * y).sum())  # noqa: E731
    yield Composed("SquareSumAll", ops.SquareSumAll(), (normal(2, 3), normal(4)), sums)
    scores, classes = distinct(6, 5), whole(6, low=0, high=5)
    inside = lambda x, c, k: np.array([c[i] in np.argsort(-x[i])[:k] for i in range(6)])  # noqa: E731
    for k in (1, 3):
        yield Composed(f"InTopK-{k}", ops.InTopK(k), (scores, classes), lambda x, c, k=k: inside(x, c, k), smooth=False)
    labels, predictions = whole(20, low=0, high=3), whole(20, low=0, high=3)

    def confusion(y, p, w=None):
        out = np.zeros((3, 3), int)
        np.add.at(out, (y, p), 1 if w is None else w)
        return out

    yield Composed("ConfusionMatrix", ops.ConfusionMatrix(3), (labels, predictions), confusion)
    weighed = labels, predictions, whole(20, low=0)
    yield Composed("ConfusionMatrix-weights", ops.ConfusionMatrix(3), weighed, confusion)


def images():
    x = normal(2, 3, 4, 5)

    def lines(old, new, corners):
        return np.arange(new) * ((old - 1) / (new - 1) if corners and new > 1 else old / new)

    def nearest(x, size, corners):
        for axis, new in zip((2, 3), size, strict=True):
            places = lines(x.shape[axis], new, corners)
            places = np.floor(places + 0.5) if corners else np.floor(places)
            x = np.take(x, np.minimum(places, x.shape[axis] - 1).astype(int), axis)
        return x

    def bilinear(x, size, corners):
        for axis, new in zip((2, 3), size, strict=True):
            old = x.shape[axis]
            x = np.apply_along_axis(lambda v: np.interp(lines(len(v), new, corners), range(len(v)), v), axis, x)  # noqa: B023
            assert x.shape[axis] == new != old or new == old
        return x

    for size in ((8, 10), (3, 2), (4, 5), (1, 7)):
        for corners in (False, True):
            name = f"{size}-{corners}"
            yield Composed(
                f"ResizeNearestNeighbor-{name}",
                ops.ResizeNearestNeighbor(size, corners),
                (x,),
                lambda x, s=size, c=corners: nearest(x, s, c),
            )
            pixels = whole(2, 3, 4, 5, low=0, high=255, dtype=np.uint8)
            op, oracle = ops.ResizeNearestNeighbor(size, corners), lambda x, s=size, c=corners: nearest(x, s, c)
            yield Composed(f"ResizeNearestNeighbor-UInt8-{name}", op, (pixels,), oracle)
            yield Composed(
                f"ResizeBilinear-{name}",
                ops.ResizeBilinear(size, corners),
                (x,),
                lambda x, s=size, c=corners: bilinear(x, s, c),
            )

    def lrn(x, radius, bias, alpha, beta):
        total = np.stack([(x[:, max(0, c - radius) : c + radius + 1] ** 2).sum(1) for c in range(x.shape[1])], 1)
        return x / (bias + alpha * total) ** beta

    for args in ((1, 1.0, 0.5, 0.75), (5, 2.0, 1.0, 0.5), (0, 1.0, 1.0, 0.5)):
        yield Composed(f"LRN-{args}", ops.LRN(*args), (x,), lambda x, a=args: lrn(x, *a))

    def depthwise(x, w):
        out = np.zeros((2, 3, 2, 2, 4))
        for m, c in np.ndindex(2, 3):
            for i, j in np.ndindex(3, 2):
                out[:, c, m] += w[m, c, i, j] * x[:, c, i : i + 2, j : j + 4]
        return out.reshape(2, 6, 2, 4)

    yield Composed("DepthwiseConv2dNative", ops.DepthwiseConv2dNative(2, (3, 2)), (x, normal(2, 3, 3, 2)), depthwise)


def positions():
    x = distinct(2, 3, 5, 6)

    def pooled(x, op):
        windows = ops.MaxPool(**vars(op)).windows(x.shape)
        (top, bottom, left, right), (h, w) = windows.pads, x.shape[2:]
        padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=-np.inf)
        numbers = np.pad(np.arange(h * w).reshape(h, w), ((top, bottom), (left, right)))
        out, where = np.zeros((*x.shape[:2], *windows.out)), np.zeros((*x.shape[:2], *windows.out), int)
        for n, c, i, j in np.ndindex(out.shape):
            starts = [k * stride for k, stride in zip((i, j), windows.strides, strict=True)]
            ends = [start + extent for start, extent in zip(starts, windows.extent, strict=True)]
            block = tuple(slice(*bounds) for bounds in zip(starts, ends, windows.dilations, strict=True))
            out[n, c, i, j] = padded[n, c][block].max()
            where[n, c, i, j] = c * h * w + numbers[block].ravel()[padded[n, c][block].argmax()]
        return out, where

    for op in (
        ops.MaxPoolWithArgmax(2, 2, "valid"),
        ops.MaxPoolWithArgmax(3, 2, "same"),
        ops.MaxPoolWithArgmax(3, 1, "same"),
        ops.MaxPoolWithArgmax(3, 2, "pad", padding=1),
        ops.MaxPoolWithArgmax((3, 2), (3, 2), "pad", padding=(1, 0, 0, 1), dilation=(1, 2), ceil_mode=True),
    ):
        yield Composed(f"{op}", op, (x,), lambda x, op=op: pooled(x, op))


def creations():
    start, stop = np.array(1.0, np.float32), np.array(4.0, np.float32)
    yield Composed(
        "LinSpace", lambda a, b: ops.LinSpace()(a, b, 7), (start, stop), lambda a, b: a + (b - a) * np.arange(7) / 6
    )
    yield Composed("LinSpace-one", lambda a, b: ops.LinSpace()(a, b, 1), (start, stop), lambda a, b: np.array([a]))
    yield Composed("Eps", ops.Eps(), (normal(2, 3),), lambda x: np.full(x.shape, 2.0**-23), smooth=False)
    yield Composed(
        "Fill", lambda x: x + ops.Fill()(dt.float32, (2, 1), 3.5), (normal(2, 3),), lambda x: x + np.full((2, 1), 3.5)
    )
    yield Composed(
        "Ones",
        lambda x: x + ops.Ones()((2, 3), dt.float32) + ops.Zeros()(3, dt.float32),
        (normal(2, 3),),
        lambda x: x + 1,
    )
    yield Composed("Eye", lambda x: x + ops.Eye()(2, 3, dt.float32), (normal(2, 3),), lambda x: x + np.eye(2, 3))


ROWS = [*losses(), *arrangements(), *totals(), *images(), *positions(), *creations()]
SMOOTH = [r for r in ROWS if r.smooth and any(a.dtype.kind == "f" for a in r.arrays)]


def test_the_numbers_in_both_modes():
    check_rows(ROWS, check_values)


def test_the_gradients_in_both_modes():
    check_rows(SMOOTH, check_gradients)


def test_float16_in_both_modes():
    check_rows([r for r in ROWS if r.name not in ("LinSpace", "Eps", "Fill", "Ones", "Eye")], check_half)


def scattered(mode, start, places, updates):
    out = start.astype(np.float64)
    for place, update in zip(places, updates, strict=True):
        place = tuple(np.atleast_1d(place))
        new = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum}
        new |= {"min": np.minimum, "update": lambda _, u: u}
        out[place] = new[mode](out[place], update)
    return out


@table("mode", MODES)
@table("kind", ["Update", "Add", "Sub", "Mul", "Div", "Max", "Min"])
def test_rows_of_a_parameter_change(kind: str, mode: str):
    start, numbers, updates = positive(4, 3), np.array([2, 0], np.int32), positive(2, 3)
    made, after = parameter_after(getattr(ops, f"Scatter{kind}")(), start, numbers, updates, mode=mode)
    expected = scattered(kind.lower(), start, numbers, updates)
    assert np.allclose(after, expected, rtol=1e-6)
    assert np.array_equal(made, after)


@table("mode", MODES)
@table("kind", ["NdUpdate", "NdAdd", "NdSub", "NonAliasingAdd"])
def test_elements_of_a_parameter_change(kind: str, mode: str):
    start, places, updates = positive(4, 3), np.array([[2, 1], [0, 0]], np.int32), positive(2)
    made, after = parameter_after(getattr(ops, f"Scatter{kind}")(), start, places, updates, mode=mode)
    name = kind.removeprefix("Nd").removeprefix("NonAliasing").lower()
    assert np.allclose(after, scattered(name, start, places, updates), rtol=1e-6)
    assert np.array_equal(made, after)


@table("mode", MODES)
def test_slices_of_a_parameter_change(mode: str):
    start, y = positive(4, 3), positive(4, 2)
    _, after = parameter_after(ops.IndexAdd(1), start, np.array([2, 0], np.int32), y, mode=mode)
    expected = start.copy()
    expected[:, [2, 0]] += y
    assert np.allclose(after, expected, rtol=1e-6)


def test_what_is_no_parameter_cannot_be_updated():
    with pytest.raises(ShapeError, match="must be a Parameter"):
        ops.ScatterAdd()(Tensor(positive(4, 3)), Tensor([0]), Tensor(positive(1, 3)))


def test_rows_of_a_tensor_change():
    x, v = Tensor(positive(4, 3)), Tensor(positive(2, 3))
    assert np.array_equal(ops.InplaceUpdate((3, 1))(x, v).asnumpy()[[3, 1]], v.asnumpy())
    assert np.allclose(ops.InplaceAdd((0, 1))(x, v).asnumpy()[:2], x.asnumpy()[:2] + v.asnumpy())
    assert np.allclose(ops.InplaceSub((0, 1))(x, v).asnumpy()[:2], x.asnumpy()[:2] - v.asnumpy())


def test_an_index_outside_of_a_parameter_is_an_error():
    parameter = Parameter(Tensor(positive(4, 3)), "weight")
    for number in (-1, 4):
        with pytest.raises(Exception, match=r"out of (range|bounds)"):
            ops.ScatterAdd()(parameter, Tensor(np.array([number], np.int32)), Tensor(positive(1, 3)))


def test_values_that_are_known_while_tracing():
    x = Tensor(np.zeros((2, 3), np.float16))
    assert ops.Shape()(x) == (2, 3)
    assert ops.DType()(x) is dt.float16
    assert (ops.Rank()(x), ops.Size()(x)) == (2, 6)
    assert ops.IsInstance()(1, dt.int32) or ops.IsInstance()(1, dt.int64)
    assert ops.IsInstance()(x, (int, dt.float16))
    assert ops.IsSubClass()(dt.float16, np.floating)
    assert not ops.IsSubClass()(dt.int32, dt.float32)
    assert ops.ScalarCast()(2.7, dt.int32) == 2
    assert ops.ScalarToTensor()(3).dtype is dt.float32
    assert ops.ScalarToArray()(3.5).asnumpy() == 3.5
    assert ops.TupleToArray()((1, 2, 3)).asnumpy().tolist() == [1, 2, 3]
    assert ops.InvertPermutation()((2, 0, 1)) == (1, 2, 0)
    assert ops.Range()(Tensor(0, dt.int32), Tensor(10, dt.int32), Tensor(4, dt.int32)).asnumpy().tolist() == [0, 4, 8]
    for wrong in ((), (1, 2.0), ("a",)):
        with pytest.raises(ShapeError):
            ops.TupleToArray()(wrong)
    with pytest.raises(ShapeError):
        ops.InvertPermutation()((0, 2))
    with pytest.raises(ShapeError):
        ops.SameTypeShape()(x, Tensor(np.zeros((2, 3), np.float32)))


def test_a_range_of_unknown_length_is_an_error():
    with pytest.raises(ConfigError, match="determines a shape"):
        step_of(lambda n: ops.Range()(0, n, 1), "graph")(np.array(3, np.int32))


MASKED = {
    "new": ({"new_axis_mask": 2}, (1, 0, 0), (3, 0, 2), lambda x: x[1:3, None, 0:2]),
    "ellipsis": ({"ellipsis_mask": 1}, (0, 1), (0, 3), lambda x: x[..., 1:3]),
    "middle": ({"ellipsis_mask": 2, "shrink_axis_mask": 1}, (2, 0, 1), (3, 0, 4), lambda x: x[2, ..., 1:4]),
    "all": (
        {"ellipsis_mask": 1, "new_axis_mask": 6, "begin_mask": 8, "shrink_axis_mask": 16},
        (0, 0, 0, 1, 2),
        (0, 0, 0, 2, 3),
        lambda x: x[..., None, None, :2, 2],
    ),
    "nothing": ({"ellipsis_mask": 1, "new_axis_mask": 2}, (0, 0), (0, 0), lambda x: x[..., None]),
}


@table("mode", MODES)
@table("name", MASKED)
def test_masks_of_strided_slices(name: str, mode: str):
    masks, begin, end, expected = MASKED[name]
    x = normal(4, 3, 5)
    op = ops.StridedSlice(**masks)
    (made,) = step_of(lambda v: op(v, begin, end, (1,) * len(begin)), mode)(x)
    assert np.array_equal(made, expected(x))


@table("mode", MODES)
def test_rows_outside_of_a_part_of_a_table_are_zeros(mode: str):
    table_part, numbers = normal(3, 2), np.array([[4, 5], [9, 2]], np.int32)
    (rows,) = step_of(lambda t, n: ops.EmbeddingLookup()(t, n, 4), mode)(table_part, numbers)
    none = np.zeros(2, np.float32)
    assert np.array_equal(rows, [[table_part[0], table_part[1]], [none, none]])


def test_different_elements():
    values, places = ops.Unique()(Tensor(np.array([5, 2, 5, 9, 2], np.int32)))
    assert values.asnumpy().tolist() == [5, 2, 9]
    assert places.asnumpy().tolist() == [0, 1, 0, 2, 1]
    with pytest.raises(ConfigError, match="depends on elements"):
        step_of(lambda x: ops.Unique()(x), "graph")(np.zeros(3, np.float32))


def test_ties_in_top_k():
    values, numbers = ops.TopK()(Tensor(coarse(3, 5)), 2)
    assert values.shape == numbers.shape == (3, 2)


def test_paddings_that_only_a_running_graph_knows_are_an_error():
    with pytest.raises(ConfigError, match="graph mode has no number for a value"):
        step_of(ops.MirrorPad(), "graph")(normal(2, 3), np.array([[1, 1], [2, 2]]))
