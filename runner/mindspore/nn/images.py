"""Layers that cut, pad and resize images, and measures of how similar two batches of images are."""

import math
from collections.abc import Sequence

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.errors import ConfigError
from runner.nn.basic import CellList
from runner.nn.cell import Cell
from runner.nn.convolution import AvgPool2d, Conv2d
from runner.ops.array import require
from runner.ops.convolution.windows import Pair, Windows
from runner.types import Shape, TensorType
from runner.validation.arguments import above, at_most, one_of, whole

MIRRORS = {"REFLECT": "reflect", "SYMMETRIC": "symmetric"}  # numpy's names


class Pad(Cell):
    """x padded by `paddings`, (before, after) for each axis: with zeros (CONSTANT), or with x mirrored.

    REFLECT does not repeat the elements at the edge, SYMMETRIC does. Raises ConfigError for another mode or other
    paddings, ShapeError for more than an axis has to mirror.
    """

    def __init__(self, paddings: tuple[tuple[int, int], ...], mode: str = "CONSTANT") -> None:
        super().__init__()
        one_of({"layer": "Pad"}, ("CONSTANT", *MIRRORS), mode=mode)
        pairs = paddings if isinstance(paddings, tuple | list) else ()
        if not pairs or any(len(pair) != 2 for pair in pairs):
            allowed = "((before, after), ...), one pair for each axis"
            raise ConfigError("paddings are pairs of ints", layer="Pad", given=repr(paddings), allowed=allowed)
        for pair in pairs:
            whole({"layer": "Pad"}, 0, before=pair[0], after=pair[1])
        self.mode, self.paddings = mode, tuple((pair[0], pair[1]) for pair in pairs)
        self.pad = ops.Pad(self.paddings)

    def construct(self, x: Value) -> Value:
        require(len(self.paddings) == x.ndim, "one pair of paddings for each axis", x=x.type, paddings=self.paddings)
        if self.mode == "CONSTANT":
            return self.pad(x)
        for axis, pair in enumerate(self.paddings):
            limit = x.shape[axis] - (self.mode == "REFLECT")
            require(max(pair) <= limit, "the axis is too short to mirror", x=x.type, padding=pair, axis=axis)
            if any(pair):
                places = np.pad(np.arange(x.shape[axis]), pair, mode=MIRRORS[self.mode])  # type: ignore[call-overload]
                x = ops.Gather(axis)(x, Tensor(places))
        return x


class Unfold(Cell):
    """Patches of images (N, C, H, W): (N, KH * KW * C, OH, OW), the channels of the upper left pixel first.

    `ksizes`, `strides` and `rates` (distance of the pixels of a patch) are [1, rows, columns, 1]; `padding` is `valid`
    or `same`. Raises ConfigError for others.
    """

    def __init__(
        self,
        ksizes: tuple[int, ...] | list[int],
        strides: tuple[int, ...] | list[int],
        rates: tuple[int, ...] | list[int],
        padding: str = "valid",
    ) -> None:
        super().__init__()
        one_of({"layer": "Unfold"}, ("valid", "same"), padding=str(padding).lower())
        self._window = tuple(self._middle(name, x) for name, x in (("ksizes", ksizes), ("strides", strides)))
        self._rates, self._padding = self._middle("rates", rates), str(padding).lower()

    def construct(self, x: Value) -> Value:
        require(x.ndim == 4, "Unfold needs (N, C, H, W)", x=x.type)
        kernel, strides = self._window
        windows = Windows.resolve((x.shape[2], x.shape[3]), kernel, strides, self._padding, (0, 0, 0, 0), self._rates)
        top, bottom, left, right = windows.pads
        padded = ops.Pad(((0, 0), (0, 0), (top, bottom), (left, right)))(x) if any(windows.pads) else x
        parts = [padded[:, :, rows, columns] for rows in windows.offsets(0) for columns in windows.offsets(1)]
        return parts[0] if len(parts) == 1 else ops.Concat(1)(parts)

    @staticmethod
    def _middle(name: str, given: tuple[int, ...] | list[int]) -> Pair:
        sizes = tuple(given) if isinstance(given, tuple | list) else ()
        if len(sizes) != 4 or any(type(n) is not int or n < 1 for n in sizes) or (sizes[0], sizes[3]) != (1, 1):
            allowed = "[1, rows, columns, 1] with positive ints"
            raise ConfigError(f"{name} are four numbers", layer="Unfold", given=repr(given), allowed=allowed)
        return sizes[1], sizes[2]


class ResizeBilinear(Cell):
    """Images (N, C, H, W) of another size: (x, size) or (x, scale_factor=...), and `align_corners`.

    See `ops.ResizeBilinear` for the positions. Raises ConfigError unless exactly one of both is given.
    """

    def construct(
        self, x: Value, size: Shape | None = None, scale_factor: int | None = None, align_corners: bool = False
    ) -> Value:
        require(x.ndim == 4, "ResizeBilinear needs (N, C, H, W)", x=x.type)
        if (size is None) == (scale_factor is None):
            raise ConfigError("needs either size or scale_factor", size=repr(size), scale_factor=repr(scale_factor))
        if scale_factor is not None:
            whole({"layer": "ResizeBilinear"}, 1, scale_factor=scale_factor)
            size = (scale_factor * x.shape[2], scale_factor * x.shape[3])
        return ops.ResizeBilinear(size or (), align_corners)(x)


class CentralCrop(Cell):
    """The middle of images (C, H, W) or (N, C, H, W): the share `central_fraction` of height and width."""

    def __init__(self, central_fraction: float) -> None:
        super().__init__()
        where = {"layer": type(self).__name__}
        above(where, 0.0, central_fraction=central_fraction)
        at_most(where, 1.0, central_fraction=central_fraction)
        self.central_fraction, self.slice = central_fraction, ops.Slice()

    def construct(self, image: Value) -> Value:
        require(image.ndim in (3, 4), "CentralCrop needs (C, H, W) or (N, C, H, W)", image=image.type)
        if self.central_fraction == 1.0:
            return image
        lead = image.ndim - 2
        edges = [int((n - float(np.float32(n * self.central_fraction))) / 2) for n in image.shape[lead:]]
        sizes = [n - 2 * edge for n, edge in zip(image.shape[lead:], edges, strict=True)]
        return self.slice(image, (*[0] * lead, *edges), (*image.shape[:lead], *sizes))


class ImageGradients(Cell):
    """Differences of neighbouring rows and of neighbouring columns: (N, C, H, W) to two of the same shape.

    The last row of the first and the last column of the second are 0.
    """

    def construct(self, images: Value) -> tuple[Value, Value]:
        require(images.ndim == 4, "ImageGradients needs (N, C, H, W)", images=images.type)
        return self._differences(images, 2), self._differences(images, 3)

    def _differences(self, images: Value, axis: int) -> Value:
        lead, length = (slice(None),) * axis, images.shape[axis]
        if length == 1:
            return ops.ZerosLike()(images)
        steps = images[(*lead, slice(1, None))] - images[(*lead, slice(None, length - 1))]
        return ops.Pad(tuple((0, int(k == axis)) for k in range(4)))(steps)


# Measures of similarity: PSNR, SSIM and MS-SSIM.


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
        return self.log(Tensor(peak**2, dt.float32) / error) * (10.0 / math.log(10.0))


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
        return self.over_channels(self._compare(*self._scaled(img1, img2), self.conv)[0])


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
        return self.over_channels(self.prod(weighed))
