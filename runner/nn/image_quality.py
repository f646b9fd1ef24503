"""Measures of how similar two batches of images are: PSNR, SSIM and MS-SSIM."""

import math
from collections.abc import Sequence

import numpy as np

from runner import dtype as dt, ops
from runner.core.value import Tensor, Value
from runner.nn.cell import Cell
from runner.nn.container import CellList
from runner.nn.convolution import Conv2d
from runner.nn.pooling import AvgPool2d
from runner.ops.array import require
from runner.types import TensorType
from runner.validation.arguments import above, whole

__all__ = ["MSSSIM", "PSNR", "SSIM"]


class _Comparison(Cell):
    """Base: two batches of images (N, C, H, W) with pixels from 0 to `max_val`; ints are scaled to 0..1."""

    def __init__(self, max_val: float) -> None:
        super().__init__()
        above({"layer": type(self).__name__}, 0.0, max_val=max_val)
        self.max_val = max_val

    def _scaled(self, img1: Value, img2: Value) -> tuple[Value, Value, float]:
        """Both batches in Float32, and the largest value of a pixel."""
        require(img1.ndim == 4 and img1.type == img2.type, "needs two (N, C, H, W)", img1=img1.type, img2=img2.type)
        scale = _unit(img1.type)
        both = [image.astype(dt.float32) * scale for image in (img1, img2)]
        return both[0], both[1], self.max_val * scale


def _unit(image: TensorType) -> float:
    return 1.0 if image.dtype.is_float else 1.0 / float(np.iinfo(image.dtype.numpy).max)


class PSNR(_Comparison):
    """Peak signal-to-noise ratio in decibels, for each image: 10 log10(max_val^2 / mean squared error), (N,)."""

    def __init__(self, max_val: float = 1.0) -> None:
        super().__init__(max_val)
        self.mean, self.square, self.log = ops.ReduceMean(axis=(1, 2, 3)), ops.Square(), ops.Log()

    def construct(self, img1: Value, img2: Value) -> Value:
        first, second, peak = self._scaled(img1, img2)
        error = self.mean(self.square(first - second))
        output: Value = self.log(Tensor(peak**2, dt.float32) / error) * (10.0 / math.log(10.0))
        return output


class _Structure(_Comparison):
    """Base of SSIM and MSSSIM: local means, variances and covariance under a Gaussian window."""

    def __init__(self, max_val: float, filter_size: int, filter_sigma: float, k1: float, k2: float) -> None:
        super().__init__(max_val)
        whole({"layer": type(self).__name__}, 1, filter_size=filter_size)
        above({"layer": type(self).__name__}, 0.0, filter_sigma=filter_sigma)
        self.filter_size, self.filter_sigma, self.k1, self.k2 = filter_size, filter_sigma, k1, k2
        self.mean = ops.ReduceMean(axis=(2, 3))

    def _window(self) -> Conv2d:
        """A convolution with the Gaussian window, which is not trained."""
        size = self.filter_size
        places = np.arange(-size // 2 + 1, size // 2 + 1, dtype=np.float32)
        bell = np.exp(-(places[:, None] ** 2 + places**2) / (2 * self.filter_sigma**2))
        weight = Tensor((bell / bell.sum()).astype(np.float32)[None, None])
        convolution = Conv2d(1, 1, size, pad_mode="valid", weight_init=weight)
        convolution.weight.requires_grad = False
        return convolution

    def _compare(self, x: Value, y: Value, peak: float, blur: Cell) -> tuple[Value, Value]:
        """Similarity, and its part without luminance, for each image and channel: (N, C)."""
        fits = min(x.shape[2:]) >= self.filter_size
        require(fits, "the images are smaller than the window", images=x.type, filter_size=self.filter_size)
        batch, channels = x.shape[:2]
        x, y = (ops.Reshape()(image, (batch * channels, 1, *image.shape[2:])) for image in (x, y))
        mean_x, mean_y = blur(x), blur(y)
        spread = blur(x * x) - mean_x * mean_x + (blur(y * y) - mean_y * mean_y)
        covariance = blur(x * y) - mean_x * mean_y
        c1, c2 = (self.k1 * peak) ** 2, (self.k2 * peak) ** 2
        structure = (covariance * 2.0 + c2) / (spread + c2)
        luminance = (mean_x * mean_y * 2.0 + c1) / (mean_x * mean_x + mean_y * mean_y + c1)
        similar, structural = (
            ops.Reshape()(self.mean(z), (batch, channels)) for z in (luminance * structure, structure)
        )
        return similar, structural


class SSIM(_Structure):
    """Structural similarity (Wang and others, 2004), the mean over channels, for each image: (N,)."""

    def __init__(
        self,
        max_val: float = 1.0,
        filter_size: int = 11,
        filter_sigma: float = 1.5,
        k1: float = 0.01,
        k2: float = 0.03,
    ) -> None:
        super().__init__(max_val, filter_size, filter_sigma, k1, k2)
        self.conv, self.over_channels = self._window(), ops.ReduceMean(axis=-1)

    def construct(self, img1: Value, img2: Value) -> Value:
        output: Value = self.over_channels(self._compare(*self._scaled(img1, img2), self.conv)[0])
        return output


class MSSSIM(_Structure):
    """Multi-scale structural similarity (Wang and others, 2003): images are halved between the scales; (N,).

    `power_factors` are the weights of the scales, the first of the full size.
    """

    def __init__(
        self,
        max_val: float = 1.0,
        power_factors: Sequence[float] = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333),
        filter_size: int = 11,
        filter_sigma: float = 1.5,
        k1: float = 0.01,
        k2: float = 0.03,
    ) -> None:
        super().__init__(max_val, filter_size, filter_sigma, k1, k2)
        self.power_factors = tuple(power_factors)
        self.multi_convs_list = CellList([self._window() for _ in self.power_factors])
        self.halve, self.relu = AvgPool2d(2, 2), ops.ReLU()
        self.stack, self.pow, self.prod = ops.Stack(-1), ops.Pow(), ops.ReduceProd(axis=-1)
        self.over_channels = ops.ReduceMean(axis=-1)

    def construct(self, img1: Value, img2: Value) -> Value:
        x, y, peak = self._scaled(img1, img2)
        scales = list[Value]()
        for blur in self.multi_convs_list:
            if scales:
                x, y = self.halve(x), self.halve(y)
            similar, structural = self._compare(x, y, peak, blur)
            scales.append(structural)
        scales[-1] = similar
        weighed = self.pow(
            self.stack([self.relu(z) for z in scales]), Tensor(np.asarray(self.power_factors, np.float32))
        )
        output: Value = self.over_channels(self.prod(weighed))
        return output
