"""Columns of windows that come in blocks: the same convolution and gradients, however few rows a block holds."""

import numpy as np
import pytest

from runner import ops
from runner.core.values import Tensor
from runner.ops.convolution import pool, windows
from runner.ops.convolution.pool import MaxPoolGrad
from runner.ops.convolution.windows import Windows

# x (N, C, H, W), filters, kernel, pad, stride, dilation, group. The gradient for x is gathered, spread, or handed on.
CASES = {
    "gathered": ((2, 4, 7, 6), 3, (3, 3), (1, 1, 1, 1), (1, 1), (1, 1), 1),
    "gathered, uneven": ((3, 2, 6, 8), 2, (2, 3), (1, 0, 0, 2), (1, 1), (1, 1), 1),
    "gathered, dilated": ((2, 3, 9, 9), 2, (3, 2), (2, 2, 1, 1), (1, 1), (2, 1), 1),
    "gathered, groups": ((2, 6, 5, 5), 4, (3, 3), (1, 1, 1, 1), (1, 1), (1, 1), 2),
    "spread, small result": ((2, 2, 6, 6), 5, (4, 4), (0, 0, 0, 0), (1, 1), (1, 1), 1),
    "spread, wide border": ((2, 4, 4, 4), 2, (2, 2), (3, 3, 3, 3), (1, 1), (1, 1), 1),
    "spread, stride": ((2, 4, 7, 8), 3, (3, 3), (1, 1, 1, 1), (2, 3), (1, 1), 1),
    "one element": ((2, 4, 5, 5), 3, (1, 1), (0, 0, 0, 0), (1, 1), (1, 1), 1),
    "one element, stride": ((2, 4, 6, 5), 2, (1, 1), (0, 0, 0, 0), (2, 2), (1, 1), 2),
    "one element, border": ((2, 4, 5, 5), 6, (1, 1), (1, 0, 2, 1), (1, 1), (1, 1), 1),
}


def definition(x: np.ndarray, w: np.ndarray, kernel, pad, stride, dilation, group) -> np.ndarray:
    """Cross-correlation as it is defined, offset by offset in float64."""
    n, _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), pad[:2], pad[2:]))
    out = [
        (length + sum(sides) - d * (k - 1) - 1) // s + 1
        for length, sides, d, k, s in zip((height, width), (pad[:2], pad[2:]), dilation, kernel, stride, strict=True)
    ]
    made = np.zeros((n, group, len(w) // group, *out))
    images = padded.reshape(n, group, -1, *padded.shape[2:])
    filters = w.reshape(group, len(w) // group, *w.shape[1:])
    for i, j in np.ndindex(*kernel):
        rows, columns = (
            slice(t * d, t * d + s * (o - 1) + 1, s) for t, d, s, o in zip((i, j), dilation, stride, out, strict=True)
        )
        made += np.einsum("ngchw,gkc->ngkhw", images[..., rows, columns], filters[..., i, j])
    return made.reshape(n, len(w), *out)


@pytest.mark.parametrize("columns", [1, 1 << 20], ids=["slab by slab", "at once"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_convolution_and_its_gradients(monkeypatch, case, columns):
    monkeypatch.setattr(windows, "SLAB_BYTES", 1)
    monkeypatch.setattr(windows, "SLAB_COLUMNS", columns)
    shape, count, kernel, pad, stride, dilation, group = case
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal(shape), rng.standard_normal((count, shape[1] // group, *kernel))
    y = definition(x, w, kernel, pad, stride, dilation, group)
    g = rng.standard_normal(y.shape)
    shared = {"pad_mode": "pad", "pad": pad, "stride": stride, "dilation": dilation, "group": group}
    made = ops.Conv2D(count, kernel, **shared).kernel(x, w)
    assert np.allclose(made, y, rtol=0, atol=1e-12)
    # Convolution is linear in both operands, so <y'(d), g> = <d, gradient> determines every element of the gradients.
    dx = ops.Conv2DBackpropInput(count, kernel, **shared, input_size=shape).kernel(g, w)
    dw = ops.Conv2DBackpropFilter(count, kernel, **shared, filter_size=w.shape).kernel(g, x)
    for place in [tuple(rng.integers(0, x.shape)) for _ in range(30)]:
        one = np.zeros_like(x)
        one[place] = 1
        assert np.isclose((definition(one, w, kernel, pad, stride, dilation, group) * g).sum(), dx[place], atol=1e-12)
    for place in np.ndindex(w.shape):
        one = np.zeros_like(w)
        one[place] = 1
        assert np.isclose((definition(x, one, kernel, pad, stride, dilation, group) * g).sum(), dw[place], atol=1e-12)


@pytest.mark.parametrize(("columns", "starts"), [(1, [0, 6, 12, 18]), (7, [0, 12]), (13, [0, 18]), (24, [0])])
def test_a_slab_is_whole_rows_and_wide_enough(monkeypatch, columns, starts):
    monkeypatch.setattr(windows, "SLAB_BYTES", 1)
    monkeypatch.setattr(windows, "SLAB_COLUMNS", columns)
    parts = list(Windows((5, 4), (2, 2)).im2col(np.ones((1, 5, 4, 2), np.float32), lambda _, columns: columns, 1))
    assert [part.start for part, _ in parts] == starts
    assert all(block.shape == (4, part.stop - part.start) for part, block in parts)


@pytest.mark.parametrize("stride", [2, 1], ids=["tiles", "overlapping"])
def test_the_gradient_of_a_maximum_in_blocks(monkeypatch, stride):
    rng, bits = np.random.default_rng(4), []
    x, op = rng.integers(0, 3, (2, 5, 8, 6)).astype(np.float32), ops.MaxPool(2, stride)
    dout = rng.standard_normal(op.kernel(x).shape, np.float32)
    for size in (1, 1 << 20):
        monkeypatch.setattr(pool, "BLOCK_BYTES", size)
        bits.append(op.sibling(MaxPoolGrad)(Tensor(x), Tensor(op.kernel(x)), Tensor(dout)).asnumpy().tobytes())
    assert bits[0] == bits[1]
