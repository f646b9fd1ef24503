"""Image transforms; resizing is compared with exact fractions, pixel by pixel."""

import tracemalloc
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from argument_errors import refused_argument
from hypothesis import given, settings, strategies as st
from tables import table

from runner import dtype as dt
from runner.dataset.vision import Inter, c_transforms as CV, resize
from runner.errors import ConfigError
from runner.types import TensorType

SIDE = st.integers(1, 9)


def between(old: int, new: int, k: int) -> tuple[int, int, Fraction]:
    """The two old pixels beside new pixel k, centres at halves, and the weight of the second."""
    place = Fraction(2 * k + 1, 2) * Fraction(old, new) - Fraction(1, 2)
    low = floor(place)
    return max(low, 0), min(low + 1, old - 1), place - low


def by_hand(image: np.ndarray, height: int, width: int) -> list[list[Fraction]]:
    """Bilinear interpolation of [H, W] whole numbers, exactly."""
    result = []
    for y in range(height):
        top, bottom, down = between(image.shape[0], height, y)
        line = []
        for x in range(width):
            left, right, across = between(image.shape[1], width, x)
            upper = int(image[top, left]) * (1 - across) + int(image[top, right]) * across
            lower = int(image[bottom, left]) * (1 - across) + int(image[bottom, right]) * across
            line.append(upper * (1 - down) + lower * down)
        result.append(line)
    return result


@settings(max_examples=150)
@given(SIDE, SIDE, SIDE, SIDE, st.integers(0, 10**6))
def test_linear_bytes_are_the_exact_value_rounded(h: int, w: int, height: int, width: int, number: int) -> None:
    images = np.random.default_rng(number).integers(0, 256, (2, h, w, 3), dtype=np.uint8)
    made = CV.Resize((height, width))(images)
    assert made.dtype == np.uint8
    assert made.shape == (2, height, width, 3)
    for b, c in ((0, 0), (1, 2)):
        expected = [[floor(v + Fraction(1, 2)) for v in line] for line in by_hand(images[b, :, :, c], height, width)]
        assert made[b, :, :, c].tolist() == expected


@pytest.mark.parametrize(("old", "new"), [((28, 28), (32, 32)), ((8, 8), (32, 32)), ((32, 32), (224, 17))])
def test_linear_floats_are_the_exact_value(old: tuple[int, int], new: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, old)
    made = CV.Resize(new)(image.astype(np.float32)[None, :, :, None])
    assert made.dtype == np.float32
    expected = np.array(by_hand(image, *new), dtype=np.float64)
    np.testing.assert_allclose(made[0, :, :, 0], expected, rtol=1e-5, atol=1e-4)


def test_nearest_takes_the_pixel_to_the_left() -> None:
    image = np.arange(6, dtype=np.uint8).reshape(1, 2, 3, 1)
    made = CV.Resize((4, 6), Inter.NEAREST)(image)[0, :, :, 0]
    assert made.tolist() == [[0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2], [3, 3, 4, 4, 5, 5], [3, 3, 4, 4, 5, 5]]
    assert CV.Resize((1, 2), Inter.NEAREST)(image).ravel().tolist() == [0, 1]


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).integers(0, 256, (23, 28, 28, 1), dtype=np.uint8)
    whole = CV.Resize((32, 32))(images)
    monkeypatch.setattr(resize, "CHUNK_PIXELS", 5 * 32 * 32)
    np.testing.assert_array_equal(CV.Resize((32, 32))(images), whole)


def test_extra_memory_does_not_grow_with_the_stack() -> None:
    images = np.zeros((8000, 28, 28, 1), np.uint8)
    tracemalloc.start()
    made = CV.Resize((32, 32))(images)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - made.nbytes < 4 << 20


def test_largest_weights_do_not_overflow() -> None:
    image = np.full((1, 3, 3, 1), 255, np.uint8)
    assert (CV.Resize((1021, 509))(image) == 255).all()


def test_images_of_the_right_size_are_not_copied() -> None:
    images = np.zeros((2, 5, 6, 1), np.uint8)
    assert CV.Resize((5, 6))(images) is images


def test_one_number_is_the_shorter_side() -> None:
    assert CV.Resize(8).infer(TensorType(dt.uint8, (4, 6, 3))).shape == (8, 12, 3)
    assert CV.Resize(8)(np.zeros((1, 6, 4, 3), np.uint8)).shape == (1, 12, 8, 3)


def test_inter_has_the_references_numbers() -> None:
    assert (Inter.NEAREST, Inter.LINEAR) == (0, 2)
    assert Inter.BILINEAR is Inter.LINEAR


@table(
    ("make", "argument"),
    [
        (lambda: CV.Resize((0, 4)), "size"),
        (lambda: CV.Resize((4, 4, 4)), "size"),
        (lambda: CV.Resize(1.5), "size"),
        (lambda: CV.Resize(None), "size"),
        (lambda: CV.Resize((4, 4), 2), "interpolation"),
        (lambda: CV.Rescale(float("nan"), 0), "rescale"),
        (lambda: CV.Rescale(1.0, "0"), "shift"),
        (lambda: CV.Rescale(1e39, 0), "rescale"),
        (lambda: CV.Rescale(10**400, 0), "rescale"),
        (lambda: CV.Normalize([0.5], [0.0]), "std"),
        (lambda: CV.Normalize([0.5, 0.5], [1.0]), "std"),
        (lambda: CV.Normalize([], []), "std"),
        (lambda: CV.Normalize(None, 1.0), "mean"),
    ],
)
def test_arguments_are_checked(make: object, argument: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert refused_argument(caught.value)[0] == argument


def test_normalize() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 3), dtype=np.uint8)
    mean, deviation = [120.0, 110.0, 100.0], [60.0, 50.0, 40.0]
    made = CV.Normalize(mean, deviation)(images)
    np.testing.assert_allclose(made, (images - np.array(mean)) / np.array(deviation), rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match="the number of means differs from the number of channels"):
        CV.Normalize(mean, deviation).infer(TensorType(dt.uint8, (3, 4, 1)))


def test_channels_first() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 3), dtype=np.uint8)
    made = CV.HWC2CHW()(images)
    assert made.flags.c_contiguous
    assert made[1, 2, 0, 3] == images[1, 0, 3, 2]
    grey = images[..., :1].copy()
    assert np.shares_memory(CV.HWC2CHW()(grey), grey)


@pytest.mark.parametrize("transform", [CV.Resize((4, 4)), CV.HWC2CHW(), CV.Normalize([0.5], [0.5])])
def test_images_have_three_axes(transform: CV.Resize) -> None:
    with pytest.raises(ConfigError, match=r"images \[height, width, channels\]"):
        transform.infer(TensorType(dt.uint8, (28, 28)))


def test_resize_takes_bytes_and_floats() -> None:
    with pytest.raises(ConfigError, match="UInt8 or Float32"):
        CV.Resize((4, 4)).infer(TensorType(dt.int64, (28, 28, 1)))
