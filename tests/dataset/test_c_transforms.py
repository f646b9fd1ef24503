"""Image transforms of arrays: the numbers of a real MindSpore, formulas in Float64, direct calls, and refusals."""

import base64
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from argument_errors import refused_argument
from tables import table

import runner.dataset as ds
from runner import dtype as dt, set_seed
from runner.dataset.transforms.c_transforms import OneHot
from runner.dataset.vision import Border, ImageBatchFormat, Inter, c_transforms as CV
from runner.dataset.visits import Visits
from runner.errors import ConfigError, DataError
from runner.mindspore.dataset import kernels
from runner.types import TensorType

REFERENCE = json.loads((Path(__file__).parent / "mindspore_images.json").read_text())
IMAGE = np.array(REFERENCE["image"], np.uint8)
JPEG = np.frombuffer(base64.b64decode(REFERENCE["jpeg"]), np.uint8)
NEAREST, LINEAR = Inter.NEAREST, Inter.LINEAR


def rotated(degrees, *arguments):
    return CV.RandomRotation((degrees, degrees), *arguments)


def moved(interpolation):
    return CV.RandomAffine((20, 20), (0.1, 0.1, -0.2, -0.2), (1.3, 1.3), (10, 10, 5, 5), interpolation, (1, 2, 3))


DETERMINISTIC = {
    **{f"brightness {f}": CV.RandomColorAdjust(brightness=(f, f)) for f in (0.3, 1.7)},
    **{f"contrast {f}": CV.RandomColorAdjust(contrast=(f, f)) for f in (0.3, 1.7)},
    **{f"saturation {f}": CV.RandomColor((f, f)) for f in (0.3, 1.7)},
    **{f"sharpness {f}": CV.RandomSharpness((f, f)) for f in (0.3, 1.7)},
    **{f"hue {f}": CV.RandomColorAdjust(hue=(f, f)) for f in (-0.2, 0.33)},
    "posterize 3": CV.RandomPosterize(3),
    "solarize 90 200": lambda image: kernels.solarize(image, 90, 200),
    "solarize 128 128": CV.RandomSolarize((128, 128)),
    "equalize": CV.Equalize(),
    "auto contrast 0": CV.AutoContrast(),
    "auto contrast 10": CV.AutoContrast(10, [60]),
    "invert": CV.Invert(),
    "rotate 30 NEAREST": rotated(30),
    "rotate -75.5 NEAREST expand": rotated(-75.5, NEAREST, True, None, 9),
    "rotate 30 LINEAR": rotated(30, LINEAR),
    "rotate -75.5 LINEAR expand": rotated(-75.5, LINEAR, True, None, 9),
    "rotate 30 LINEAR center": rotated(30, LINEAR, False, (1, 3), 7),
    "affine NEAREST": moved(NEAREST),
    "affine LINEAR": moved(LINEAR),
    **{f"cubic {h} {w}": CV.Resize((h, w), Inter.BICUBIC) for h, w in ((7, 3), (9, 9), (2, 2))},
    **{f"center {h} {w}": CV.CenterCrop((h, w)) for h, w in ((3, 2), (8, 2), (4, 6), (2, 1))},
    **{f"pad {mode.name}": CV.Pad((1, 2, 3, 1), (5, 6, 7), mode) for mode in Border},
}


def test_the_numbers_of_mindspore() -> None:
    assert DETERMINISTIC.keys() == REFERENCE["results"].keys()
    different = []
    for name, transform in DETERMINISTIC.items():
        made = transform(IMAGE)
        if made.dtype != np.uint8 or made.tolist() != REFERENCE["results"][name]:
            different.append(name)
    assert different == []


def test_cubic_floats_are_not_rounded() -> None:
    """The kernel of OpenCV, a = -0.75, written out in Float64."""
    row = np.array([3.0, 10.0, -4.0, 7.0])
    made = CV.Resize((1, 8), Inter.CUBIC)(row.astype(np.float32).reshape(1, 4, 1)).ravel()

    def kernel(x: float) -> float:
        x = abs(x)
        near, far = 1.25 * x**3 - 2.25 * x**2 + 1, -0.75 * (x**3 - 5 * x**2 + 8 * x - 4)
        return near if x <= 1 else far if x < 2 else 0.0

    for k in range(8):
        place = (k + 0.5) / 2 - 0.5
        around = range(int(np.floor(place)) - 1, int(np.floor(place)) + 3)
        expected = sum(row[min(max(n, 0), 3)] * kernel(place - n) for n in around)
        assert made[k] == pytest.approx(expected, abs=1e-5)


def test_decode_is_that_of_mindspore_and_random_crops_of_it_are_parts() -> None:
    decoded = CV.Decode()(JPEG)
    assert decoded.dtype == np.uint8
    assert list(decoded.shape) == REFERENCE["decoded_shape"]
    assert hashlib.sha256(decoded.tobytes()).hexdigest() == REFERENCE["decoded_sha256"]
    whole = {"scale": (1.0, 1.0), "ratio": (1.2, 1.2)}
    np.testing.assert_array_equal(CV.RandomCropDecodeResize((10, 12), **whole)(JPEG), decoded)
    np.testing.assert_array_equal(CV.SoftDvppDecodeResizeJpeg((4, 5))(JPEG), CV.Resize((4, 5))(decoded))
    soft = CV.SoftDvppDecodeRandomCropResizeJpeg((10, 12), **whole)
    np.testing.assert_array_equal(soft(JPEG), decoded)


@table(
    ("content", "error"),
    [
        (JPEG[:200], DataError),
        (np.zeros(20, np.uint8), DataError),
        (np.zeros(0, np.uint8), DataError),
        (IMAGE, ConfigError),
        (JPEG.astype(np.int32), ConfigError),
    ],
)
def test_what_is_no_image_file(content, error) -> None:
    with pytest.raises(error):
        CV.Decode()(content)


def test_without_pillow_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError) as caught:
        CV.Decode()(JPEG)
    assert caught.value.rows["repair"] == "pip install 'runner-ml[images]'"
    assert CV.Resize((2, 2))(IMAGE).shape == (2, 2, 3)


@pytest.mark.parametrize(
    "transform", [*(CV.Resize((3, 7), i) for i in Inter if i != Inter.ANTIALIAS), CV.CenterCrop((3, 7)), CV.Pad(2, 5)]
)
def test_called_with_one_image_it_gives_one(transform) -> None:
    from PIL import Image

    whole = transform(IMAGE[np.newaxis])[0]
    np.testing.assert_array_equal(transform(IMAGE), whole)
    np.testing.assert_array_equal(transform(Image.fromarray(IMAGE)), whole)
    np.testing.assert_array_equal(transform(IMAGE[..., 1]), transform(IMAGE[..., 1:2])[..., 0])


def test_channels_first_of_one_image() -> None:
    np.testing.assert_array_equal(CV.HWC2CHW()(IMAGE), IMAGE.transpose(2, 0, 1))
    np.testing.assert_array_equal(CV.HWC2CHW()(IMAGE[..., 0]), IMAGE[..., 0])


def test_normalize_pad_has_a_channel_of_zeros() -> None:
    made = CV.NormalizePad([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], "float16")(IMAGE[np.newaxis])
    expected = (IMAGE.astype(np.float64) - [1, 2, 3]) / [4, 5, 6]
    assert made.dtype == np.float16
    np.testing.assert_allclose(made[0, ..., :3], expected, rtol=1e-3)
    assert not made[..., 3].any()
    assert CV.NormalizePad([1.0], [2.0]).infer(TensorType(dt.uint8, (5, 4, 3))).shape == (5, 4, 4)


RANDOM = [
    CV.RandomCrop((3, 3), (1, 2), False, 9),
    CV.RandomHorizontalFlip(),
    CV.RandomVerticalFlip(),
    CV.RandomResizedCrop((3, 3)),
    CV.RandomResize((9, 7)),
    CV.RandomColor(),
    CV.RandomColorAdjust(0.5, 0.5, 0.5, 0.2),
    CV.RandomSharpness((0.0, 5.0)),
    CV.RandomPosterize((1, 8)),
    CV.RandomSolarize(),
    CV.RandomRotation(90, LINEAR),
    CV.RandomAffine(30, (-0.5, 0.5, -0.5, 0.5), (0.5, 2.0), (-20, 20)),
    CV.CutOut(2, 2),
    CV.RandomSelectSubpolicy([[(CV.Invert(), 0.5), (CV.RandomPosterize((1, 8)), 0.7)], [(CV.Equalize(), 1)]]),
    CV.UniformAugment([CV.Invert(), CV.RandomPosterize((1, 8)), CV.RandomSharpness((3, 9))]),
]


@pytest.mark.parametrize("transform", RANDOM, ids=lambda transform: type(transform).__name__)
def test_random_numbers_are_of_the_sample(transform) -> None:
    """The same in any batch, other ones in each pass and place, and the source stays as it is."""
    images = np.random.default_rng(0).integers(0, 256, (12, 5, 4, 3), dtype=np.uint8)
    kept = images.copy()
    whole = transform.apply(images, Visits.of(np.arange(12), 12))
    assert whole.shape[1:] == transform.infer(TensorType(dt.uint8, (5, 4, 3))).shape
    part = transform.apply(images[5:7], Visits.of(np.arange(5, 7), 12))
    np.testing.assert_array_equal(part, whole[5:7])
    later = transform.apply(images, Visits.of(np.arange(12, 24), 12))
    elsewhere = transform.at_position(1).apply(images, Visits.of(np.arange(12), 12))
    assert len({array.tobytes() for array in (whole, later, elsewhere)}) == 3
    np.testing.assert_array_equal(images, kept)


def test_direct_calls_draw_new_numbers_from_the_seed() -> None:
    crop, turn = CV.RandomCrop((2, 2)), CV.RandomRotation(180)
    set_seed(4)
    made = [(crop(IMAGE).tobytes(), turn(IMAGE).tobytes()) for _ in range(8)]
    assert len(set(made)) > 4
    set_seed(4)
    assert [(crop(IMAGE).tobytes(), turn(IMAGE).tobytes()) for _ in range(8)] == made


def test_pipelines_give_the_same_with_any_number_of_threads() -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    steps = [
        CV.RandomResizedCrop((6, 6)),
        CV.RandomColorAdjust(0.4, 0.4, 0.4, 0.1),
        CV.RandomRotation(15),
        CV.HWC2CHW(),
    ]

    def batches(workers: int) -> list[np.ndarray]:
        data = ds.NumpySlicesDataset({"image": images}).map(steps, "image", workers).batch(6)
        return [batch[0] for epoch in range(2) for batch in data.read(epoch)]

    one, three = batches(1), batches(3)
    assert one[0].shape == (6, 3, 6, 6)
    for first, second in zip(one, three, strict=True):
        np.testing.assert_array_equal(first, second)
    assert one[0].tobytes() != one[4].tobytes()


def test_a_part_of_the_image_has_the_area_and_ratio_that_it_should() -> None:
    image = np.stack(np.meshgrid(np.arange(200), np.arange(100)), -1).astype(np.uint8)
    image = np.concatenate([image, image[..., :1]], -1)
    crop = CV.RandomResizedCrop((2, 2), (0.2, 0.5), (0.5, 2.0), NEAREST)
    for number in range(50):
        set_seed(number)
        (left, top), (_, _), (_, _), (right, bottom) = crop(image)[..., :2].reshape(4, 2).astype(int)
        width, height = 2 * (right - left), 2 * (bottom - top)
        assert 0.17 <= width * height / 20000 <= 0.53
        assert 0.45 <= width / height <= 2.2


def test_a_ratio_that_no_part_has_gives_the_middle() -> None:
    crop = CV.RandomResizedCrop((4, 4), (1.0, 1.0), (1.0, 1.0))
    image = np.arange(40, dtype=np.uint8).reshape(4, 10, 1)
    np.testing.assert_array_equal(crop(image), image[:, 3:7])


def test_mix_up_is_a_mean_of_two_rows() -> None:
    images, labels = np.arange(24, dtype=np.uint8).reshape(3, 2, 2, 2), OneHot(3)(np.arange(3, dtype=np.int32))
    mixed, weights = CV.MixUpBatch(0.9)(images, labels)
    assert mixed.dtype == weights.dtype == np.float32
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(mixed, np.tensordot(weights, images.astype(np.float64), 1), rtol=1e-5)


@pytest.mark.parametrize("layout", ImageBatchFormat)
def test_cut_mix_replaces_a_part_and_weighs_labels_by_area(layout) -> None:
    sources = np.repeat(np.arange(1, 5, dtype=np.uint8), 300).reshape(4, 10, 10, 3)
    images = sources if layout is ImageBatchFormat.NHWC else np.ascontiguousarray(sources.transpose(0, 3, 1, 2))
    labels = OneHot(4)(np.arange(4, dtype=np.int32))
    mixed, weights = CV.CutMixBatch(layout, 1.0)(images, labels)
    assert mixed.dtype == np.uint8
    shares = [[(row == value).mean() for value in (1, 2, 3, 4)] for row in mixed]
    np.testing.assert_allclose(weights, shares, atol=1e-6)
    assert (weights.max(1) < 1).any()
    unchanged, same = CV.CutMixBatch(layout, 1.0, 0.0)(images, labels)
    np.testing.assert_array_equal(unchanged, images)
    np.testing.assert_array_equal(same, labels)


def test_padding_if_needed_and_modes_of_crops() -> None:
    crop = CV.RandomCrop((9, 9), None, True, (1, 2, 3))
    assert crop(IMAGE).shape == (9, 9, 3)
    edge = CV.RandomCrop((7, 6), 1, padding_mode=Border.EDGE)(IMAGE)
    np.testing.assert_array_equal(edge, np.pad(IMAGE, ((1, 1), (1, 1), (0, 0)), "edge"))
    with pytest.raises(ConfigError, match="larger than the padded image"):
        CV.RandomCrop((9, 9))(IMAGE)


@table(
    ("make", "argument"),
    [
        (lambda: CV.CenterCrop(0), "size"),
        (lambda: CV.Pad(-1), "padding"),
        (lambda: CV.Pad((1, 2, 3)), "padding"),
        (lambda: CV.Pad(1, 256), "fill_value"),
        (lambda: CV.Pad(1, (1, 2)), "fill_value"),
        (lambda: CV.Pad(1, 0, "edge"), "padding_mode"),
        (lambda: CV.Resize(3, Inter.ANTIALIAS), "interpolation"),
        (lambda: CV.RandomCrop(3, pad_if_needed=1), "pad_if_needed"),
        (lambda: CV.RandomResizedCrop(3, (0.5, 0.1)), "scale"),
        (lambda: CV.RandomResizedCrop(3, ratio=(0, 1)), "ratio"),
        (lambda: CV.RandomResizedCrop(3, max_attempts=0), "max_attempts"),
        (lambda: CV.RandomColorAdjust(-1), "brightness"),
        (lambda: CV.RandomColorAdjust(hue=0.6), "hue"),
        (lambda: CV.RandomColor((2, 1)), "degrees"),
        (lambda: CV.RandomPosterize(9), "bits"),
        (lambda: CV.RandomSolarize((0, 300)), "threshold"),
        (lambda: CV.RandomRotation("a"), "degrees"),
        (lambda: CV.RandomRotation(10, Inter.ANTIALIAS), "resample"),
        (lambda: CV.RandomRotation(10, center=(1, 2, 3)), "center"),
        (lambda: CV.RandomAffine(10, (0.1, 2.0)), "translate"),
        (lambda: CV.RandomAffine(10, scale=(-1, 1)), "scale"),
        (lambda: CV.AutoContrast(50.0), "cutoff"),
        (lambda: CV.AutoContrast(1.0, [256]), "ignore"),
        (lambda: CV.CutOut(0), "length"),
        (lambda: CV.CutMixBatch("NHWC"), "image_batch_format"),
        (lambda: CV.CutMixBatch(ImageBatchFormat.NHWC, prob=2), "prob"),
        (lambda: CV.MixUpBatch(0.0), "alpha"),
        (lambda: CV.RandomSelectSubpolicy([]), "policy"),
        (lambda: CV.RandomSelectSubpolicy([[(CV.Invert(), 2)]]), "policy"),
        (lambda: CV.RandomSelectSubpolicy([[CV.Invert()]]), "policy"),
        (lambda: CV.UniformAugment([]), "transforms"),
        (lambda: CV.UniformAugment([CV.Invert()], 2), "num_ops"),
        (lambda: CV.NormalizePad([1.0], [1.0], "int32"), "dtype"),
        (lambda: CV.Decode(False), "rgb"),
    ],
)
def test_arguments_are_checked(make, argument: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert refused_argument(caught.value)[0] == argument


@table(
    ("transform", "value"),
    [
        (CV.Invert(), IMAGE.astype(np.float32)),
        (CV.Invert(), np.zeros(5, np.uint8)),
        (CV.Equalize(), "image"),
        (CV.Resize(3), np.zeros((2, 3, 4, 5, 6), np.uint8)),
        (CV.Pad(9, 0, Border.REFLECT), IMAGE),
        (CV.MixUpBatch(), IMAGE[np.newaxis]),
    ],
)
def test_other_values_are_refused(transform, value) -> None:
    with pytest.raises(ConfigError):
        transform(value, np.arange(1)) if isinstance(transform, CV.MixUpBatch) else transform(value)
