"""Rows of the operators that small networks are made of: nonlinearities, normalisation, pieces, stacks of matrices."""

import itertools
from collections.abc import Iterator

import numpy as np
from operands import Sample, coarse, distinct, normal, positive, row, whole

from runner import dtype as dt, ops


def away_from(kinks: tuple[float, ...], *shape: int) -> np.ndarray:
    """Floats from -8 to 8 that keep a distance of 0.05 from the points in which a function bends."""
    count = int(np.prod(shape))
    x = np.linspace(-8.0, 8.0, count + 2)[1:-1]
    for kink in kinks:
        x = np.where(np.abs(x - kink) < 0.05, kink + 0.05, x)
    return x.reshape(shape).astype(np.float32)


def nonlinearities() -> Iterator[Sample]:
    shapes = (2, 3), (), (2, 3, 4, 5)
    for kind, shape in itertools.product((ops.GeLU, ops.Softplus, ops.Elu), shapes):
        yield row(kind(), normal(*shape))
    yield row(ops.Elu(0.3), normal(3, 4), note="alpha0.3")
    far = np.array([-200.0, -20.0, 0.0, 20.0, 200.0], np.float32)
    for kind in (ops.GeLU, ops.Softplus):
        yield row(kind(), far, note="saturated")
    yield row(ops.Elu(), far, note="saturated", smooth=False)
    yield row(ops.GeLUGrad(), normal(2, 3), normal(2, 3))
    yield row(ops.GeLUGrad(), normal(5), far, note="saturated")
    kinks = {ops.ReLU6: (0.0, 6.0), ops.HSigmoid: (-3.0, 3.0), ops.HSwish: (-3.0, 3.0)}
    for kind, points in kinks.items():
        for shape in shapes:
            yield row(kind(), away_from(points, *shape))
        yield row(kind(), np.array([-3.0, 0.0, 3.0, 6.0], np.float32), note="kinks", smooth=False)
    yield row(ops.ReLU6Grad(), normal(3, 7), away_from((0.0, 6.0), 3, 7))
    yield row(ops.ReLU6Grad(), normal(2), np.array([0.0, 6.0], np.float32), note="kinks", smooth=False)
    for shape, channels in itertools.product(((2, 3), (2, 3, 4, 2)), (1, 3)):
        yield row(ops.PReLU(), away_from((0.0,), *shape), normal(channels))


def functions() -> Iterator[Sample]:
    for shape in ((2, 3), (), (2, 3, 4, 5)):
        yield row(ops.Rsqrt(), positive(*shape))
        yield row(ops.Reciprocal(), positive(*shape))
        for kind in (ops.Sin, ops.Cos, ops.Floor, ops.OnesLike, ops.ZerosLike):
            yield row(kind(), np.asarray(normal(*shape) * 3))
    yield row(ops.Reciprocal(), -positive(3), note="negative")
    yield row(ops.Floor(), np.array([-1.0, -0.5, 0.0, 0.5, 1.0], np.float32), note="steps")
    for kind in (ops.OnesLike, ops.ZerosLike):
        yield row(kind(), whole(2, 3), note="int32")
        yield row(kind(), coarse(2, 3) > 0, note="bool")
    for kind, (x, y) in itertools.product((ops.LogicalAnd, ops.LogicalOr), (((2, 3), (2, 3)), ((4, 3), (3,)))):
        yield row(kind(), coarse(*x) > 0, coarse(*y) > 0)
    yield row(ops.LogicalNot(), coarse(3, 4) > 0)


def normalisations() -> Iterator[Sample]:
    axes = (-1, -1), (1, 1), (2, -1), (0, 0), (1, 2), (-1, 1)
    for norm, params in axes:
        shape = (2, 3, 4)
        x, gamma, beta = normal(*shape) * 2 + 1, positive(*shape[params:]), normal(*shape[params:])
        op = ops.LayerNorm(norm, params, 1e-3)
        note = f"{norm},{params}"
        yield row(op, x, gamma, beta, note=note)
        _, mean, variance = op.kernel(x, gamma, beta)
        yield row(ops.LayerNormGrad(norm, params, 1e-3), x, normal(*shape), variance, mean, gamma, note=note)
    yield row(ops.LayerNorm(), normal(4, 6), positive(6), normal(6), note="defaults")
    yield row(ops.LayerNorm(-1, -1), normal(6), positive(6), normal(6), note="one-axis")


def products() -> Iterator[Sample]:
    for keep, axis in itertools.product((False, True), ((), 0, -1, (0, 2), (1, -1))):
        yield row(ops.ReduceProd(keep, axis), positive(2, 3, 4), note=f"keep{keep}-{axis}")
    for zeros in (1, 2):
        x = normal(3, 4)
        x[1, :zeros] = 0.0
        yield row(ops.ReduceProd(axis=1), x, note=f"{zeros}-zeros")
    yield row(ops.ReduceProd(False, 1), whole(3, 4), note="int32")
    yield row(ops.ReduceProd(), normal(), note="scalar")
    for axis, output in ((-1, dt.int32), (0, dt.int64)):
        yield row(ops.Argmin(axis, output), distinct(3, 4, 2), note=f"axis{axis}")
    yield row(ops.Argmin(), coarse(4, 6), note="ties")
    yield row(ops.Argmin(0), whole(5, 2), note="int32")
    for a, b in itertools.product((False, True), repeat=2):
        for lead in ((2,), (2, 3)):
            x, y = normal(*lead, *((4, 3) if a else (3, 4))), normal(*lead, *((5, 4) if b else (4, 5)))
            yield row(ops.BatchMatMul(a, b), x, y, note=f"{'T' if a else 'N'}{'T' if b else 'N'}{len(lead)}")


def pieces() -> Iterator[Sample]:
    for axis, number in ((0, 2), (1, 3), (-1, 1), (-1, 4)):
        yield row(ops.Split(axis, number), normal(4, 3, 4), note=f"axis{axis}-{number}")
    yield row(ops.Split(0, 2), whole(4, 3), note="int32")
    for axis in (0, 1, -1):
        yield row(ops.Unstack(axis), normal(3, 2, 4), note=f"axis{axis}")
    yield row(ops.Unstack(), normal(1, 3), note="single")
    yield row(ops.Unstack(), normal(3), note="scalars")
    for axis in (0, 1, -1, -3):
        yield row(ops.Stack(axis), *(normal(2, 3) for _ in range(3)), note=f"axis{axis}")
    yield row(ops.Stack(), normal(2), note="single")
    yield row(ops.Stack(), normal(), normal(), note="scalars")
    yield row(ops.Stack(1), whole(2), whole(2), note="int32")
    for axis in ((), 0, -1, (0, 2)):
        yield row(ops.Squeeze(axis), normal(1, 3, 1), note=str(axis))
    yield row(ops.Squeeze(), normal(2, 3), note="nothing")
    for multiples in ((2, 3), (1, 2), (3, 1, 2), (1, 1)):
        yield row(ops.Tile(multiples), normal(2, 3), note=str(multiples))
    yield row(ops.Tile((2,)), normal(), note="scalar")
    yield row(ops.Tile((2, 2)), whole(1, 3), note="int32")


def strides() -> Iterator[Sample]:
    blocks = (
        ((1, 0), (4, 3), (1, 1), {}),
        ((0, 1), (5, 4), (2, 2), {}),  # rows 0, 2, 4: the last element is the last row
        ((1, 0), (4, 4), (2, 3), {}),
        ((-3, 0), (-1, 100), (1, 3), {}),
        ((2,), (3,), (2,), {}),  # the second axis is taken whole
        ((3, 1), (0, 0), (1, 2), {"begin_mask": 1, "end_mask": 3}),
        ((-1, 2), (0, 0), (1, 1), {"shrink_axis_mask": 1, "end_mask": 2}),
        ((4, 3), (5, 4), (1, 1), {"shrink_axis_mask": 3}),
    )
    for begin, end, steps, masks in blocks:
        op = ops.StridedSlice(**masks, begin=begin, end=end, strides=steps)
        x, note = normal(5, 4), f"{begin}{end}{steps}{sum(masks.values())}".replace(" ", "")
        yield row(op, x, note=note)
        back = ops.StridedSliceGrad(**op.attributes(), x_shape=x.shape)
        yield row(back, normal(*op.kernel(x).shape), note=note)
    yield row(ops.StridedSlice(begin=(0, 1), end=(3, 4), strides=(2, 1)), whole(3, 4), note="int32")


def resized() -> Iterator[Sample]:
    sizes = ((3, 4), (5, 7)), ((5, 6), (2, 4)), ((4, 1), (4, 3)), ((1, 4), (2, 1)), ((3, 3), (1, 3)), ((2, 3), (7, 1))
    for (image, size), aligned in itertools.product(sizes, (False, True)):
        note = f"{image}{size}{aligned}".replace(" ", "")
        yield row(ops.ResizeBilinear(size, aligned), normal(2, 3, *image), note=note)
        yield row(ops.ResizeNearestNeighbor(size, aligned), normal(2, 3, *image), note=note)
    for size in ((4, 9), (2, 6), (2, 3)):
        yield row(ops.ResizeNearestNeighbor(size), normal(2, 3, 2, 3), note=f"repeated-{size}")
        yield row(ops.ResizeNearestNeighbor(size), whole(2, 3, 2, 3), note=f"repeated-int32-{size}")
    yield row(ops.ResizeNearestNeighbor((4, 9)), whole(2, 3, 2, 3, dtype=np.int64), note="repeated-int64")


NETWORK_FAMILIES = resized, nonlinearities, functions, normalisations, products, pieces, strides
