"""Layouts of devices against loops that put every element where the definition of the layout says."""

import itertools
import math

import numpy as np
import pytest
from tables import table

from runner.errors import DataError
from runner.observe.dump import layouts
from runner.observe.dump.layouts import convert, from_nchw, to_c_order, to_nchw

RNG = np.random.default_rng(0)
SHAPES = [(1, 1, 1, 1), (2, 3, 4, 5), (16, 16, 3, 3), (17, 33, 2, 1), (33, 5, 1, 2), (64, 3, 3, 3), (5, 48, 2, 3)]
DTYPES = [np.float16, np.float32, np.int8, np.int32, np.uint8, np.bool_, np.int64]


def tensor(shape, dtype=np.float32):
    """No element is 0, so that a place that was left out shows."""
    return (RNG.integers(1, 100, shape) + (0 if np.dtype(dtype).kind in "iub" else 0.5)).astype(dtype)


def up(length, size):
    return math.ceil(length / size)


def c0_of(x):
    return 32 if x.itemsize == 1 else 16


def places(shape):
    return itertools.product(*map(range, shape))


# The definitions: each makes the tensor in its format element by element.


def nhwc(x):
    n, c, h, w = x.shape
    made = np.zeros((n, h, w, c), x.dtype)
    for i, j, k, m in places(x.shape):
        made[i, k, m, j] = x[i, j, k, m]
    return made


def hwcn(x):
    n, c, h, w = x.shape
    made = np.zeros((h, w, c, n), x.dtype)
    for i, j, k, m in places(x.shape):
        made[k, m, j, i] = x[i, j, k, m]
    return made


def chwn(x):
    made = np.zeros((*x.shape[1:], *x.shape[:1]), x.dtype)
    for place in places(x.shape):
        made[(*place[1:], *place[:1])] = x[place]
    return made


def nc1hwc0(x):
    n, c, h, w = x.shape
    c0 = c0_of(x)
    made = np.zeros((n, up(c, c0), h, w, c0), x.dtype)
    for i, j, k, m in places(x.shape):
        made[i, j // c0, k, m, j % c0] = x[i, j, k, m]
    return made


def fractal_z(x, groups=1):
    n, c, h, w = x.shape
    c0 = c0_of(x)
    out = n // groups
    blocks = min(math.lcm(math.lcm(c, c0) // c, math.lcm(out, 16) // out), groups)
    c1, n1 = up(blocks * c, c0), up(blocks * out, 16)
    made = np.zeros((up(groups, blocks) * c1 * h * w, n1, 16, c0), x.dtype)
    for i, j, k, m in places(x.shape):
        group, inside = divmod(i, out)
        matrix, place = divmod(group, blocks)
        row, column = place * out + inside, place * c + j
        first = ((matrix * c1 + column // c0) * h + k) * w + m
        made[first, row // 16, row % 16, column % c0] = x[i, j, k, m]
    return made


def fractal_nz(x):
    *outer, m, n = (1,) * (2 - x.ndim) + x.shape
    n0 = c0_of(x)
    made = np.zeros((*outer, up(n, n0), up(m, 16), 16, n0), x.dtype)
    for place in places((*outer, m, n)):
        *front, i, j = place
        made[(*front, j // n0, i // 16, i % 16, j % n0)] = x.reshape(*outer, m, n)[place]
    return made


ORACLES = {
    "NHWC": nhwc,
    "HWCN": hwcn,
    "CHWN": chwn,
    "NC1HWC0": nc1hwc0,
    "FRACTAL_Z": fractal_z,
    "FRACTAL_NZ": fractal_nz,
}


def equal(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


def test_every_format_has_a_definition():
    assert set(ORACLES) | {"NCHW", "ND"} == set(layouts.LAYOUTS)


@table("shape", SHAPES, ids=str)
@table("name", ORACLES)
def test_both_ways(name, shape):
    x = tensor(shape)
    there = ORACLES[name](x)
    equal(from_nchw(x, name), there)
    equal(to_nchw(there, name, shape), x)


@table("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@table("name", ORACLES)
def test_element_types(name, dtype):
    x = tensor((18, 35, 2, 3), dtype)
    there = ORACLES[name](x)
    equal(from_nchw(x, name), there)
    equal(to_nchw(there, name, x.shape), x)


@table("groups", [1, 2, 3, 4, 8, 32])
@table("inside", [(1, 1), (2, 3), (16, 4), (5, 16), (20, 17)], ids=str)
def test_weights_in_groups(groups, inside):
    out, c = inside
    x = tensor((groups * out, c, 2, 1), np.float16)
    there = fractal_z(x, groups)
    equal(from_nchw(x, "FRACTAL_Z", groups), there)
    equal(to_nchw(there, "FRACTAL_Z", x.shape, groups), x)


@table(("source", "target"), [*itertools.product(["NCHW", *ORACLES], repeat=2)])
def test_from_each_to_each(source, target):
    x = tensor((17, 5, 2, 3))
    lying = x if source == "NCHW" else ORACLES[source](x)
    equal(convert(lying, source, target, x.shape), x if target == "NCHW" else ORACLES[target](x))


def test_what_lies_in_the_padding_does_not_matter():
    x = tensor((2, 5, 3, 3))
    there = nc1hwc0(x)
    there[there == 0] = np.nan
    equal(to_nchw(there, "NC1HWC0", x.shape), x)
    there = fractal_z(x)
    there[there == 0] = np.nan
    equal(to_nchw(there, "FRACTAL_Z", x.shape), x)


@pytest.mark.parametrize("shape", [(7,), (3, 4), (17, 20), (2, 17, 33), (2, 3, 4, 5), (2, 2, 3, 17, 18)], ids=str)
def test_matrices_of_all_ranks(shape):
    x = tensor(shape)
    equal(from_nchw(x, "FRACTAL_NZ"), fractal_nz(x))
    equal(to_nchw(fractal_nz(x), "FRACTAL_NZ", shape), x)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (4, 3, 2), (2, 3, 4, 5, 6)], ids=str)
def test_batch_last_of_all_ranks(shape):
    x = tensor(shape)
    equal(from_nchw(x, "CHWN"), chwn(x))
    equal(to_nchw(chwn(x), "CHWN", shape), x)


def test_a_scalar_lies_as_it_is():
    x = np.array(3.5, np.float32)
    for name in ("NCHW", "ND", "CHWN", "NHWC", "HWCN"):
        equal(from_nchw(x, name), x)
        equal(to_nchw(x, name), x)


def test_unknown_original_shapes_keep_the_padding():
    x = tensor((2, 5, 3, 3))
    found = to_nchw(nc1hwc0(x), "NC1HWC0")
    equal(found[:, :5], x)
    assert found.shape == (2, 16, 3, 3)
    assert not found[:, 5:].any()
    x = tensor((5, 7))
    found = to_nchw(fractal_nz(x), "FRACTAL_NZ")
    equal(found[:5, :7], x)
    assert found.shape == (16, 16)


@pytest.mark.parametrize(
    ("original", "four"),
    [
        ((20,), (1, 20, 1, 1)),  # a vector is one of channels
        ((20, 3), (1, 20, 3, 1)),  # as MindSpore puts axes in front
        ((20, 3), (20, 3, 1, 1)),  # as others put them behind
        ((20, 3, 5), (1, 20, 3, 5)),
    ],
)
@pytest.mark.parametrize("name", ["NC1HWC0", "FRACTAL_Z"])
def test_shapes_that_got_more_axes(name, original, four):
    x = tensor(four)
    equal(to_nchw(ORACLES[name](x), name, original), x.reshape(original))


def test_plain_tensors_get_the_shape_that_they_mean():
    x = tensor((6, 4))
    equal(to_nchw(x, "ND", (2, 3, 4)), x.reshape(2, 3, 4))
    equal(to_nchw(x, "NCHW", (5,)), x)  # nothing to do with it: it stays as it is


def test_names_of_axes_that_a_tensor_does_not_have_mean_nothing():
    x = tensor((3, 4))
    equal(to_nchw(x, "NHWC", (3, 4)), x)
    equal(from_nchw(x, "HWCN"), x)


def test_no_copy_where_none_is_needed():
    x = tensor((2, 3, 4, 5))
    for name in ("NCHW", "ND", "NHWC", "HWCN", "CHWN"):
        assert np.shares_memory(from_nchw(x, name), x)
        assert np.shares_memory(to_nchw(x, name), x)


@table(
    ("shape", "name", "original", "groups"),
    [
        ((2, 1, 3, 3, 16), "NC1HWC0", (2, 17, 3, 3), 1),
        ((2, 2, 3, 3, 16), "NC1HWC0", (2, 16, 3, 3), 1),
        ((2, 1, 3, 3, 16), "NC1HWC0", (3, 16, 3, 3), 1),
        ((2, 1, 3, 3), "NC1HWC0", (2, 16, 3, 3), 1),
        ((2, 1, 3, 3, 0), "NC1HWC0", (2, 16, 3, 3), 1),
        ((2, 1, 3, 3, 16), "NC1HWC0", (1, 2, 16, 3, 3), 1),
        ((9, 1, 16, 16), "FRACTAL_Z", (), 1),
        ((9, 1, 16, 16), "FRACTAL_Z", (17, 16, 3, 3), 1),
        ((9, 1, 16, 16), "FRACTAL_Z", (16, 17, 3, 3), 1),
        ((9, 1, 16, 16), "FRACTAL_Z", (16, 16, 3, 2), 1),
        ((9, 1, 8, 16), "FRACTAL_Z", (8, 16, 3, 3), 1),
        ((9, 1, 16, 16), "FRACTAL_Z", (16, 16, 3, 3), 3),
        ((9, 16, 16), "FRACTAL_Z", (16, 16, 3, 3), 1),
        ((9, 1, 16, 16), "FRACTAL_Z", (16, 16, 3, 3), 0),
        ((1, 1, 16, 16), "FRACTAL_NZ", (17, 16), 1),
        ((1, 1, 16, 16), "FRACTAL_NZ", (2, 16, 16), 1),
        ((1, 16, 16), "FRACTAL_NZ", (16, 16), 1),
        ((1, 1, 0, 16), "FRACTAL_NZ", (0, 16), 1),
        ((2, 3, 4, 5), "NHWC", (2, 3, 4, 5), 1),
        ((2, 3, 4, 5), "CHWN", (2, 3, 4, 5), 1),
        ((2, 3, 4, 5), "NDC1HWC0", (), 1),
        ((2, 3, 4, 5), "FORMAT_41", (), 1),
    ],
)
def test_shapes_that_do_not_fit(shape, name, original, groups):
    with pytest.raises(DataError) as caught:
        to_nchw(np.zeros(shape, np.float32), name, original, groups)
    rows = caught.value.rows
    assert rows.get("found") == name or rows["shape"] == str(shape)


@pytest.mark.parametrize(
    ("shape", "name", "groups"),
    [((3, 4), "NC1HWC0", 1), ((3, 4, 5), "FRACTAL_Z", 1), ((3, 4, 5, 6), "FRACTAL_Z", 2), ((3,), "FRACTAL", 1)],
)
def test_tensors_that_have_no_such_format(shape, name, groups):
    with pytest.raises(DataError) as caught:
        from_nchw(np.zeros(shape, np.float32), name, groups)
    assert caught.value.rows.get("found") == name or caught.value.rows["shape"] == str(shape)


@pytest.mark.parametrize("name", ORACLES)
def test_empty_tensors(name):
    x = np.zeros((0, 3, 2, 2), np.float32)
    equal(to_nchw(from_nchw(x, name), name, x.shape), x)


@table("dtype", [np.float32, np.float16, np.bool_])
@table("shape", [(), (0, 3), (3,), (2, 3, 4, 5), (40, 70, 130), (3, 9000, 40), (300_000, 2), (2, 700_000)])
def test_in_order(shape, dtype):
    """Also those that are copied in blocks, the last of which is smaller."""
    x = np.asarray(RNG.integers(0, 100, shape) % 3).astype(dtype)
    assert to_c_order(x) is x
    for other in (np.moveaxis(x, -1, 0) if x.ndim else x, x.T, x[::-1] if x.ndim else x, x[..., ::2] if x.ndim else x):
        found = to_c_order(other)
        equal(found, other)
        assert found.flags.c_contiguous
