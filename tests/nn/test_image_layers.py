"""Layers of images: numbers in both modes against plain numpy, and what they refuse."""

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from tables import table

from runner import nn, ops
from runner.core.gradients import gradients
from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError

RNG = np.random.default_rng(8)
X = RNG.random((2, 3, 7, 6)).astype(np.float32)


def patches(x, kernel, stride, rate):
    """The pixels of every patch, one at a time: (N, KH * KW * C, OH, OW)."""
    n, channels, height, width = x.shape
    extent = [r * (k - 1) + 1 for k, r in zip(kernel, rate, strict=True)]
    out = [(size - e) // s + 1 for size, e, s in zip((height, width), extent, stride, strict=True)]
    made = np.zeros((n, kernel[0] * kernel[1] * channels, *out))
    for i, j, u, v in np.ndindex(*out, *kernel):
        at = (u * kernel[1] + v) * channels
        made[:, at : at + channels, i, j] = x[:, :, i * stride[0] + u * rate[0], j * stride[1] + v * rate[1]]
    return made


@table("mode", MODES)
@table(
    ("layer", "expected"),
    [
        (nn.Pad(((0, 0), (1, 0), (2, 1), (0, 3))), lambda x: np.pad(x, ((0, 0), (1, 0), (2, 1), (0, 3)))),
        (
            nn.Pad(((0, 0), (0, 0), (2, 1), (3, 3)), "REFLECT"),
            lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1), (3, 3)), mode="reflect"),
        ),
        (
            nn.Pad(((0, 0), (3, 2), (0, 7), (1, 0)), mode="SYMMETRIC"),
            lambda x: np.pad(x, ((0, 0), (3, 2), (0, 7), (1, 0)), mode="symmetric"),
        ),
        (nn.Unfold([1, 2, 3, 1], [1, 1, 2, 1], [1, 2, 1, 1]), lambda x: patches(x, (2, 3), (1, 2), (2, 1))),
        (
            nn.Unfold((1, 3, 3, 1), (1, 2, 3, 1), (1, 1, 1, 1), "SAME"),
            lambda x: patches(np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0))), (3, 3), (2, 3), (1, 1)),
        ),
        (nn.CentralCrop(0.5), lambda x: x[:, :, 1:6, 1:5]),
        (nn.CentralCrop(1.0), lambda x: x),
        (
            nn.ImageGradients(),
            lambda x: (
                np.pad(np.diff(x, axis=2), ((0, 0), (0, 0), (0, 1), (0, 0))),
                np.pad(np.diff(x, axis=3), ((0, 0), (0, 0), (0, 0), (0, 1))),
            ),
        ),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Cell) else "",
)
def test_numbers(layer, expected, mode):
    wanted = expected(X.astype(np.float64))
    made = step_of(layer.construct, mode)(X)
    for found, want in zip(made, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert found.shape == want.shape
        assert relative(found, want) < 1e-6


@table("mode", MODES)
def test_resize_bilinear(mode):
    x = np.array([[[[1, 2, 3, 4], [5, 6, 7, 8]]]], np.float32)
    halves = step_of(lambda x: nn.ResizeBilinear()(x, (3, 4)), mode)(x)[0]
    assert relative(halves[0, 0, :, 0], np.array([1, 1 + 8 / 3, 5])) < 1e-6  # rows at 0, 2/3 and 4/3
    aligned = step_of(lambda x: nn.ResizeBilinear()(x, (3, 7), None, True), mode)(x)[0]
    assert relative(aligned[0, 0], np.array([1, 3, 5])[:, None] + np.arange(7) / 2) < 1e-6
    double = step_of(lambda x: nn.ResizeBilinear()(x, None, 2), mode)(x)[0]
    assert double.shape == (1, 1, 4, 8)
    assert double[0, 0, 0].tolist() == [1, 1.5, 2, 2.5, 3, 3.5, 4, 4]


# MindSpore 2.10.0 printed these rows and columns for arange(8) as (1, 1, 2, 4), to (5, 3).
@table("mode", MODES)
@table(
    ("aligned", "expected"),
    [
        (False, [[0, 1, 2]] * 3 + [[4, 5, 6]] * 2),
        (True, [[0, 2, 3]] * 2 + [[4, 6, 7]] * 3),
    ],
)
def test_nearest_neighbours_are_the_references(aligned, expected, mode):
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)
    assert step_of(ops.ResizeNearestNeighbor((5, 3), aligned), mode)(x)[0][0, 0].tolist() == expected


def similarity(x, y, peak, size=11, sigma=1.5):
    """SSIM and its structural part of two images of one channel, window by window."""
    at = np.arange(size) - (size - 1) // 2
    bell = np.exp(-(at[:, None] ** 2 + at**2) / (2 * sigma**2))
    bell /= bell.sum()
    c1, c2, made = (0.01 * peak) ** 2, (0.03 * peak) ** 2, []
    for i, j in np.ndindex(x.shape[0] - size + 1, x.shape[1] - size + 1):
        a, b = x[i : i + size, j : j + size], y[i : i + size, j : j + size]
        ma, mb = (bell * a).sum(), (bell * b).sum()
        va, vb, ab = (bell * a * a).sum() - ma**2, (bell * b * b).sum() - mb**2, (bell * a * b).sum() - ma * mb
        structure = (2 * ab + c2) / (va + vb + c2)
        made.append(((2 * ma * mb + c1) / (ma**2 + mb**2 + c1) * structure, structure))
    return np.mean(made, 0)


@table("mode", MODES)
def test_psnr_and_ssim(mode):
    first, second = RNG.random((2, 3, 13, 12)), RNG.random((2, 3, 13, 12))
    second[1] = first[1] * 0.9
    x, y = first.astype(np.float32), second.astype(np.float32)
    error = ((x.astype(np.float64) - y) ** 2).mean((1, 2, 3))
    assert relative(step_of(nn.PSNR().construct, mode)(x, y)[0], 10 * np.log10(1 / error)) < 1e-6
    a, b = (255 * x).astype(np.uint8), (255 * y).astype(np.uint8)
    error = ((a / 255.0 - b / 255.0) ** 2).mean((1, 2, 3))
    assert relative(step_of(nn.PSNR(255).construct, mode)(a, b)[0], 10 * np.log10(1 / error)) < 1e-6
    expected = [
        np.mean([similarity(p, q, 1.0)[0] for p, q in zip(u, v, strict=True)]) for u, v in zip(x, y, strict=True)
    ]
    assert relative(step_of(nn.SSIM().construct, mode)(x, y)[0], np.array(expected)) < 3e-5
    layer = nn.SSIM(filter_size=4)
    assert [(p.name, p.requires_grad) for p in layer.get_parameters()] == [("conv.weight", False)]
    assert step_of(layer.construct, mode)(x, x)[0].tolist() == [1, 1]


@table("mode", MODES)
def test_msssim(mode):
    x = RNG.random((1, 2, 12, 12))
    y = np.clip(x + 0.2 * RNG.random(x.shape), 0, 1)
    powers = (0.3, 0.7)
    made = step_of(nn.MSSSIM(power_factors=powers, filter_size=5).construct, mode)(*np.float32([x, y]))[0]
    expected = []
    for p, q in zip(x[0], y[0], strict=True):
        small = [image.reshape(6, 2, 6, 2).mean((1, 3)) for image in (p, q)]
        structure, whole = similarity(p, q, 1.0, 5)[1], similarity(*small, 1.0, 5)[0]
        expected.append(max(structure, 0) ** powers[0] * max(whole, 0) ** powers[1])
    assert relative(made, np.array([np.mean(expected)])) < 1e-4


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.Pad(((1, 1),), "WRAP"), ConfigError, "mode is not one of the choices"),
        (lambda: nn.Pad(((1,),)), ConfigError, "paddings are pairs of ints"),
        (lambda: nn.Pad(((1, -1),)), ConfigError, "after must be a whole number"),
        (lambda: nn.Pad(((0, 0), (4, 0)), "REFLECT")(Tensor(X[0, 0, :, :4])), ShapeError, "too short to mirror"),
        (lambda: nn.Unfold([1, 2, 2, 2], [1] * 4, [1] * 4), ConfigError, "ksizes are four numbers"),
        (lambda: nn.ResizeBilinear().construct(Tensor(X)), ConfigError, "either size or scale_factor"),
        (lambda: nn.ResizeBilinear().construct(Tensor(X), (0, 2)), ShapeError, "size must be two positive ints"),
        (lambda: nn.CentralCrop(0.0), ConfigError, "central_fraction must be a number above 0"),
        (lambda: nn.CentralCrop(0.5)(Tensor(X[0, 0])), ShapeError, "CentralCrop needs"),
        (lambda: nn.PSNR()(Tensor(X), Tensor(X[:, :1])), ShapeError, "needs two"),
        (lambda: nn.SSIM()(Tensor(X), Tensor(X)), ShapeError, "smaller than the window"),
        (lambda: nn.SSIM(max_val=0), ConfigError, "max_val must be a number above 0"),
    ],
)
def test_what_they_refuse(make, error, text):
    with pytest.raises(error, match=text):
        make()


@table("mode", MODES)
def test_bilinear_images_of_float16_are_float32(mode: str):
    x = np.arange(16, dtype=np.float16).reshape(1, 1, 4, 4)

    def resized(x):
        made = ops.ResizeBilinear((2, 3))(x)
        return made, gradients(ops.ReduceSum()(made), [x])[0]

    made, gradient = step_of(resized, mode)(x)
    assert np.allclose(made[0, 0], np.array([[0.0], [8.0]]) + np.arange(3) * 4 / 3, rtol=1e-6)
    assert (made.dtype, gradient.dtype, gradient.sum()) == (np.float32, np.float16, 6)
