"""Convolutions over three axes in both modes, against every product one at a time, and what they refuse."""

import itertools

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from tables import table

from runner import nn
from runner.core.gradients import gradients
from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError

X = np.random.default_rng(3).normal(size=(2, 4, 4, 5, 3)).astype(np.float32)


def convolved(x, weight, stride, dilation, group, pads):
    """Windows of the padded x, one at a time."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *pads))
    extent = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    out = [(n - e) // s + 1 for n, e, s in zip(x.shape[2:], extent, stride, strict=True)]
    made, per = np.zeros((len(x), len(weight), *out)), len(weight) // group
    for at in np.ndindex(*out):
        cut = tuple(slice(i * s, i * s + e, d) for i, s, e, d in zip(at, stride, extent, dilation, strict=True))
        block = x[:, :, *cut].reshape(len(x), group, -1)
        for k in range(len(weight)):
            made[:, k, *at] = block[:, k // per] @ weight[k].astype(np.float64).reshape(-1)
    return made


def transposed(x, weight, stride, dilation, group, before, size):
    """Every product of a transposed convolution, one at a time."""
    made = np.zeros((len(x), weight.shape[1] * group, *size))
    channels, filters, *kernel = weight.shape
    for c, k, tap, at in itertools.product(
        range(channels), range(filters), np.ndindex(*kernel), np.ndindex(*x.shape[2:])
    ):
        numbers = zip(at, stride, tap, dilation, before, strict=True)
        place = [i * s + u * d - b for i, s, u, d, b in numbers]
        if all(0 <= p < n for p, n in zip(place, size, strict=True)):
            made[:, c * group // channels * filters + k, *place] += x[:, c, *at].astype(np.float64) * weight[c, k, *tap]
    return made


@table("mode", MODES)
@table(
    ("options", "pads"),
    [
        ({}, [(1, 1)] * 3),
        ({"stride": 2}, [(0, 1), (1, 1), (1, 1)]),
        ({"pad_mode": "valid", "stride": (1, 2, 1), "has_bias": True, "bias_init": "ones"}, [(0, 0)] * 3),
        ({"pad_mode": "pad", "padding": (1, 0, 0, 2, 1, 1), "group": 2}, [(1, 0), (0, 2), (1, 1)]),
        ({"pad_mode": "pad", "padding": 2, "dilation": (2, 1, 2)}, [(2, 2)] * 3),
    ],
    ids=lambda v: str(v) if isinstance(v, dict) else "",
)
def test_convolution(options, pads, mode):
    layer = nn.Conv3d(4, 6, 3, weight_init="xavier_uniform", **options)
    expected = convolved(X, layer.weight.asnumpy(), layer.stride, layer.dilation, layer.group, pads)
    expected += 1.0 * layer.has_bias
    made = step_of(layer.construct, mode)(X)[0]
    assert made.shape == expected.shape
    assert relative(made, expected) < 1e-6


@table("mode", MODES)
@table(
    ("options", "size", "before"),
    [
        ({}, (4, 5, 3), (1, 1, 1)),
        ({"stride": 2}, (8, 10, 6), (0, 0, 0)),
        ({"pad_mode": "valid", "stride": (2, 1, 3), "has_bias": True, "bias_init": "ones"}, (9, 7, 9), (0, 0, 0)),
        ({"pad_mode": "pad", "padding": (1, 0, 0, 1, 1, 1), "group": 2}, (5, 6, 3), (1, 0, 1)),
        ({"pad_mode": "pad", "padding": 1, "stride": 2, "output_padding": 1}, (8, 10, 6), (1, 1, 1)),
    ],
    ids=lambda v: str(v) if isinstance(v, dict) else "",
)
def test_transposed_convolution(options, size, before, mode):
    layer = nn.Conv3dTranspose(4, 6, 3, weight_init="xavier_uniform", **options)
    expected = transposed(X, layer.weight.asnumpy(), layer.stride, layer.dilation, layer.group, before, size)
    expected += 1.0 * layer.has_bias
    made = step_of(layer.construct, mode)(X)[0]
    assert made.shape == expected.shape
    assert relative(made, expected) < 1e-6


@table("mode", MODES)
@table("kind", [nn.Conv3d, nn.Conv3dTranspose])
def test_the_gradient_of_the_weight(kind, mode):
    layer = kind(4, 2, 3, 2)
    adjoint = np.random.default_rng(5).normal(size=layer(Tensor(X)).shape).astype(np.float32)
    slope = step_of(lambda x, a: gradients(layer(x) * a, [layer.weight])[0], mode)(X, adjoint)[0]
    # The result is linear in the weight: its product with the adjoint is that of weight and gradient.
    total = (layer(Tensor(X)).asnumpy().astype(np.float64) * adjoint).sum()
    assert abs((layer.weight.asnumpy().astype(np.float64) * slope).sum() - total) < 1e-5 * abs(total) + 1e-5
    assert (slope != 0).all()


def test_printed_form():
    layer = nn.Conv3d(1, 2, (1, 2, 3))
    window = "kernel_size=(1, 2, 3),stride=(1, 1, 1),  pad_mode=same, padding=0, dilation=(1, 1, 1), group=1"
    initial = "weight_init=normal, bias_init=zeros, format=NCDHW"
    assert repr(layer) == f"Conv3d<input_channels=1, output_channels=2, {window}, has_bias=False{initial}>"


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.Conv3d(1, 1, (2, 2)), ConfigError, "kernel_size does not fit"),
        (lambda: nn.Conv3d(1, 1, 3, padding=1), ConfigError, "padding needs pad_mode"),
        (lambda: nn.Conv3d(3, 2, 3, group=2), ConfigError, "group must divide in_channels"),
        (lambda: nn.Conv3d(1, 1, 3, data_format="NDHWC"), ConfigError, "data_format is not one of the choices"),
        (lambda: nn.Conv3dTranspose(1, 1, 3, output_padding=1), ConfigError, "output_padding needs pad_mode"),
        (lambda: nn.Conv3d(1, 1, 3)(Tensor(X)), ShapeError, "Conv3d needs floats"),
        (lambda: nn.Conv3dTranspose(4, 1, 1, pad_mode="pad", padding=3)(Tensor(X)), ShapeError, "leaves no result"),
    ],
)
def test_what_they_refuse(make, error, text):
    with pytest.raises(error, match=text):
        make()
