"""Image transforms of Pillow's images, and those of arrays [C, H, W]: formulas in Float64, and numbers of Pillow."""

import colorsys
import io

import numpy as np
import pytest
from argument_errors import refused_argument
from PIL import Image, ImageEnhance, ImageOps
from tables import table

import runner.dataset as ds
from runner import dtype as dt, set_seed
from runner.dataset.transforms import py_transforms as PT
from runner.dataset.transforms.c_transforms import OneHot
from runner.dataset.vision import Border, Inter, py_transforms as P
from runner.dataset.visits import Visits
from runner.errors import ConfigError, DataError
from runner.types import TensorType

PIXELS = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
PICTURE = Image.fromarray(PIXELS)
PLANES = (PIXELS.transpose(2, 0, 1) / 255.0).astype(np.float32)
FILTERS = {
    Inter.NEAREST: Image.Resampling.NEAREST,
    Inter.ANTIALIAS: Image.Resampling.LANCZOS,
    Inter.BILINEAR: Image.Resampling.BILINEAR,
    Inter.BICUBIC: Image.Resampling.BICUBIC,
}


def same(made, expected) -> None:
    assert isinstance(made, Image.Image)
    np.testing.assert_array_equal(np.asarray(made), np.asarray(expected))


@pytest.mark.parametrize("interpolation", FILTERS)
def test_resize_has_pillows_filters(interpolation) -> None:
    same(P.Resize((13, 5), interpolation)(PICTURE), PICTURE.resize((5, 13), FILTERS[interpolation]))
    same(P.Resize(14, interpolation)(PIXELS), PICTURE.resize((14, 18), FILTERS[interpolation]))
    assert P.Resize(7)(PICTURE) is PICTURE


def test_crops_and_borders() -> None:
    same(P.CenterCrop((5, 3))(PICTURE), PIXELS[2:7, 2:5])
    np.testing.assert_array_equal(np.asarray(P.CenterCrop((11, 7))(PICTURE))[1:10], PIXELS)
    five = P.FiveCrop((4, 3))(PICTURE)
    parts = [PIXELS[:4, :3], PIXELS[:4, 4:], PIXELS[5:, :3], PIXELS[5:, 4:], PIXELS[2:6, 2:5]]
    for made, part in zip(five, parts, strict=True):
        same(made, part)
    for made, part in zip(P.TenCrop((4, 3), True)(PICTURE)[5:], P.FiveCrop((4, 3))(PIXELS[::-1].copy()), strict=True):
        same(made, part)
    for made, part in zip(P.TenCrop((4, 3))(PICTURE)[5:], P.FiveCrop((4, 3))(PIXELS[:, ::-1].copy()), strict=True):
        same(made, part)
    for mode in (Border.EDGE, Border.REFLECT, Border.SYMMETRIC):
        same(P.Pad((1, 2, 3, 4), 0, mode)(PICTURE), np.pad(PIXELS, ((2, 4), (1, 3), (0, 0)), mode.value))
    same(P.Pad((1, 2), (5, 6, 7))(PICTURE), ImageOps.expand(PICTURE, (1, 1, 2, 2), (5, 6, 7)))
    same(P.Pad(2, 9)(PICTURE.convert("L")), np.pad(np.asarray(PICTURE.convert("L")), 2, constant_values=9))
    same(P.RandomCrop((9, 7))(PICTURE), PIXELS)
    assert P.RandomCrop(12, None, True)(PICTURE).size == (12, 12)
    same(P.RandomHorizontalFlip(1.0)(PICTURE), PIXELS[:, ::-1])
    same(P.RandomVerticalFlip(1.0)(PICTURE), PIXELS[::-1])
    same(P.RandomResizedCrop((9, 7), (1.0, 1.0), (7 / 9, 7 / 9))(PICTURE), PIXELS)


def test_colours() -> None:
    same(P.Grayscale()(PICTURE), PICTURE.convert("L"))
    same(P.Grayscale(3)(PICTURE), PICTURE.convert("L").convert("RGB"))
    same(P.RandomGrayscale(1.0)(PICTURE), PICTURE.convert("L").convert("RGB"))
    same(P.RandomColor((0.3, 0.3))(PICTURE), ImageEnhance.Color(PICTURE).enhance(0.3))
    same(P.RandomSharpness((1.7, 1.7))(PICTURE), ImageEnhance.Sharpness(PICTURE).enhance(1.7))
    same(P.AutoContrast(5.0, 10)(PICTURE), ImageOps.autocontrast(PICTURE, 5.0, [10]))
    same(P.Equalize()(PICTURE), ImageOps.equalize(PICTURE))
    same(P.Invert()(PICTURE), 255 - PIXELS)
    grey = PICTURE.convert("L")
    same(P.RandomColorAdjust((0.5, 0.5), hue=(0.2, 0.2))(grey), ImageEnhance.Brightness(grey).enhance(0.5))


def test_a_hue_turned_by_a_third_exchanges_the_channels() -> None:
    colours = np.array([[[200, 40, 40], [40, 200, 40]]], np.uint8)
    made = np.asarray(P.RandomColorAdjust(hue=(1 / 3, 1 / 3))(colours)).astype(int)
    assert abs(made - np.roll(colours.astype(int), 1, axis=2)).max() <= 4


def test_rotations() -> None:
    same(P.RandomRotation((90, 90), expand=True)(PICTURE), np.rot90(PIXELS))
    turned = PICTURE.rotate(30, Image.Resampling.BILINEAR, False, (1, 2), fillcolor=(1, 2, 3))
    same(P.RandomRotation((30, 30), Inter.BILINEAR, False, (1, 2), (1, 2, 3))(PICTURE), turned)
    same(P.RandomAffine(0)(PICTURE), PIXELS)
    turned = np.asarray(P.RandomAffine((90, 90))(PIXELS[:7]))  # about (4, 4), as MindSpore does
    np.testing.assert_array_equal(turned[:, 1:], np.rot90(PIXELS[:7], -1)[:, :-1])
    same(P.RandomPerspective(0.0, 1.0, Inter.NEAREST)(PICTURE), PIXELS)
    same(P.RandomPerspective(0.5, 0.0)(PICTURE), PIXELS)
    assert not np.array_equal(np.asarray(P.RandomPerspective(0.9, 1.0)(PICTURE)), PIXELS)


def test_bytes_pictures_and_tensors() -> None:
    file = io.BytesIO()
    PICTURE.save(file, "PNG")
    content = np.frombuffer(file.getvalue(), np.uint8)
    same(P.Decode()(content), PIXELS)
    with pytest.raises(DataError):
        P.Decode()(content[:40])
    same(P.ToPIL()(PIXELS), PIXELS)
    assert P.ToPIL()(PIXELS[..., :1]).mode == "L"
    for value in (PICTURE, PIXELS):
        tensor = P.ToTensor()(value)
        assert tensor.dtype == np.float32
        np.testing.assert_allclose(tensor, PIXELS.transpose(2, 0, 1) / 255.0, rtol=1e-7)
    assert P.ToTensor(np.float16)(PIXELS[..., 0]).shape == (1, 9, 7)
    assert P.ToType(dt.int32)(PLANES).dtype == np.int32


def test_arrays() -> None:
    mean, std = np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.5, 0.6])
    expected = (PLANES.astype(np.float64) - mean[:, None, None]) / std[:, None, None]
    np.testing.assert_allclose(P.Normalize(mean, std)(PLANES), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(P.Normalize([0.1], [0.4])(PLANES), (PLANES - 0.1) / 0.4, rtol=1e-5, atol=1e-6)
    more = P.NormalizePad(mean, std)(PLANES)
    np.testing.assert_allclose(more[:3], expected, rtol=1e-5, atol=1e-6)
    assert not more[3].any()
    np.testing.assert_array_equal(P.HWC2CHW()(PIXELS), PIXELS.transpose(2, 0, 1))
    matrix, center = np.random.default_rng(1).standard_normal((27, 27)), np.arange(27.0)
    part = PLANES[:, :3, :3]
    made = P.LinearTransformation(matrix, center)(part)
    np.testing.assert_allclose(made, ((part.ravel() - center) @ matrix).reshape(3, 3, 3), rtol=1e-12)


def test_hsv_is_that_of_python() -> None:
    colours = np.concatenate([PLANES.astype(np.float64).reshape(3, -1).T, [[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.2]]])
    expected = np.array([colorsys.rgb_to_hsv(*colour) for colour in colours])
    made = P.RgbToHsv(is_hwc=True)(colours[np.newaxis])
    np.testing.assert_allclose(made[0], expected, rtol=1e-12)
    np.testing.assert_allclose(P.HsvToRgb(is_hwc=True)(made)[0], colours, atol=1e-12)
    planes = P.RgbToHsv()(np.stack([PLANES, PLANES]))
    assert planes.dtype == np.float32
    np.testing.assert_allclose(P.HsvToRgb()(planes)[1], PLANES, atol=1e-6)


def test_parts_are_erased() -> None:
    ones = np.ones((3, 20, 30), np.float32)
    for number in range(20):
        set_seed(number)
        erased = P.RandomErasing(1.0, (0.1, 0.3), (0.5, 2.0), (7, 8, 9))(ones)
        share = (erased[0] == 7).mean()
        assert 0.05 < share < 0.36
        assert ((erased[1] == 8) == (erased[0] == 7)).all()
        assert P.Cutout(6, 3)(ones).min() == 0
    noise = P.RandomErasing(1.0, value="random")(ones)
    assert len(np.unique(noise[noise != 1])) > 3
    assert P.RandomErasing(0.0)(ones).all()
    assert ones.all()


@pytest.mark.parametrize("is_single", [True, False])
def test_mix_up(is_single: bool) -> None:
    images, labels = PLANES[np.newaxis].repeat(3, 0) * np.arange(3)[:, None, None, None], OneHot(3)(np.arange(3))
    mix = P.MixUp(3, 0.5, is_single)
    first = mix(images, labels)
    np.testing.assert_allclose(first[1].sum(1), 1)
    second = mix(images, labels)
    for made, weights in (first, second) if is_single else (first, mix(images, np.eye(3))):
        expected = np.tensordot(weights, images, 1)
        assert made.shape == images.shape
        if is_single:
            np.testing.assert_allclose(made, expected, rtol=1e-6)
    if not is_single:
        np.testing.assert_array_equal(first[0], images)
        assert not np.array_equal(second[0], images) or np.array_equal(second[1], labels)


RANDOM = [
    P.RandomCrop(4),
    P.RandomHorizontalFlip(),
    P.RandomVerticalFlip(),
    P.RandomResizedCrop(4),
    P.RandomColorAdjust(0.5, 0.5, 0.5, 0.3),
    P.RandomColor(),
    P.RandomSharpness((0.0, 9.0)),
    P.RandomRotation(90),
    P.RandomAffine(30, (0.2, 0.2), (0.5, 2.0), 20),
    P.RandomPerspective(0.9),
    P.RandomGrayscale(0.5),
    P.UniformAugment([P.Invert(), P.RandomRotation(90), P.Equalize()]),
    PT.Compose([P.RandomRotation(90), np.array, P.ToTensor(), P.RandomErasing()]),
]


@pytest.mark.parametrize("transform", RANDOM, ids=lambda transform: type(transform).__name__)
def test_random_numbers_are_of_the_sample(transform) -> None:
    images = np.random.default_rng(0).integers(0, 256, (10, 6, 6, 3), dtype=np.uint8)
    whole = transform.apply(images, Visits.of(np.arange(10), 10))
    assert whole.shape[1:] == transform.infer(TensorType(dt.uint8, (6, 6, 3))).shape
    np.testing.assert_array_equal(transform.apply(images[3:5], Visits.of(np.array([3, 4]), 10)), whole[3:5])
    assert transform.apply(images, Visits.of(np.arange(10, 20), 10)).tobytes() != whole.tobytes()


def test_a_chain_in_a_pipeline() -> None:
    def decode(image):
        return Image.fromarray(image)

    chain = PT.Compose([decode, P.Resize((10, 10)), P.RandomHorizontalFlip(0.5), P.ToTensor()])
    images = np.random.default_rng(0).integers(0, 256, (6, 9, 7, 3), dtype=np.uint8)
    (made,) = next(ds.NumpySlicesDataset({"image": images}).map(chain, "image").batch(6).read(0))
    assert made.dtype == np.float32
    assert made.shape == (6, 3, 10, 10)
    for array, image in zip(made, images, strict=True):
        resized = np.asarray(Image.fromarray(image).resize((10, 10), Image.Resampling.BILINEAR)) / 255.0
        distances = [abs(array - side.transpose(2, 0, 1)).max() for side in (resized, resized[:, ::-1])]
        assert min(distances) < 1e-6


@table(
    ("make", "argument"),
    [
        (lambda: P.Resize(0), "size"),
        (lambda: P.Resize(4, 2), "interpolation"),
        (lambda: P.Grayscale(2), "num_output_channels"),
        (lambda: P.RandomGrayscale(2), "prob"),
        (lambda: P.RandomRotation(3, Inter.ANTIALIAS), "resample"),
        (lambda: P.RandomAffine(3, 0.1), "translate"),
        (lambda: P.RandomAffine(3, (0.1, 1.1)), "translate"),
        (lambda: P.RandomPerspective(1.5), "distortion_scale"),
        (lambda: P.Normalize([1.0], [0.0]), "std"),
        (lambda: P.Normalize([1.0, 2.0], [1.0]), "std"),
        (lambda: P.RandomErasing(value="none"), "value"),
        (lambda: P.RandomErasing(value=(1, 2)), "value"),
        (lambda: P.Cutout(0), "length"),
        (lambda: P.Cutout(9)(PLANES), "length"),
        (lambda: P.LinearTransformation(np.eye(3), np.zeros(4)), "mean_vector"),
        (lambda: P.MixUp(0, 1.0), "batch_size"),
        (lambda: P.UniformAugment([P.Invert()], 3), "num_ops"),
        (lambda: P.FiveCrop(10)(PICTURE), "size"),
        (lambda: P.RandomCrop(10)(PICTURE), "size"),
        (lambda: P.Normalize([1.0, 2.0], [1.0, 2.0])(PLANES), "mean"),
    ],
)
def test_arguments_are_checked(make, argument: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert refused_argument(caught.value)[0] == argument


@table(
    ("transform", "value"),
    [
        (P.Resize(3), PLANES),
        (P.ToPIL(), "picture"),
        (P.ToTensor(), np.zeros(3)),
        (P.HWC2CHW(), PIXELS[..., 0]),
        (P.RgbToHsv(), PIXELS),
        (P.RandomErasing(1.0), PIXELS[..., 0]),
    ],
)
def test_other_values_are_refused(transform, value) -> None:
    with pytest.raises(ConfigError):
        transform(value)
