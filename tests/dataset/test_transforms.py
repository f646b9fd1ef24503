"""Transforms of any column, and what arithmetic promises."""

import numpy as np
import pytest
from argument_errors import refused_argument

from runner import dtype as dt
from runner.dataset.transforms import Affine, c_transforms as CT
from runner.errors import ConfigError
from runner.types import TensorType


def test_type_cast() -> None:
    cast = CT.TypeCast(dt.int32)
    labels = np.array([3, 250], np.uint8)
    assert cast(labels).dtype == np.int32
    assert cast(labels).tolist() == [3, 250]
    assert cast.infer(TensorType(dt.uint8, (2, 3))) == TensorType(dt.int32, (2, 3))
    ready = labels.astype(np.int32)
    assert cast(ready) is ready


def test_type_cast_to_something_that_tensors_cannot_hold() -> None:
    with pytest.raises(ConfigError, match="not an element type"):
        CT.TypeCast("complex64")


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_one_hot(shape: tuple[int, ...]) -> None:
    labels = np.array([0, 3, 1, 3], np.int32).reshape(shape)
    hot = CT.OneHot(4)
    assert hot.infer(TensorType(dt.int32, shape[1:])) == TensorType(dt.int32, (4,))
    assert hot(labels).dtype == np.int32
    np.testing.assert_array_equal(hot(labels), np.eye(4)[[0, 3, 1, 3]])


@pytest.mark.parametrize("label", [-1, 4])
def test_one_hot_refuses_a_label_that_is_not_a_class(label: int) -> None:
    with pytest.raises(ConfigError) as caught:
        CT.OneHot(4)(np.array([1, label], np.int32))
    assert caught.value.rows == {"argument": "num_classes", "value": str(label), "allowed": "0 to 3"}


@pytest.mark.parametrize("sample", [TensorType(dt.float32, ()), TensorType(dt.int32, (2, 2))])
def test_one_hot_takes_integers(sample: TensorType) -> None:
    with pytest.raises(ConfigError, match="one integer"):
        CT.OneHot(4).infer(sample)


@pytest.mark.parametrize("number", [0, -1, 2.0, True, "3", None])
def test_one_hot_checks_its_argument(number: object) -> None:
    with pytest.raises(ConfigError) as caught:
        CT.OneHot(number)
    assert refused_argument(caught.value) == ("num_classes", repr(number))


def test_affine_joins_in_double_precision() -> None:
    together = Affine(1 / 255, 0.0).then(Affine(1 / 0.3081, -0.1307 / 0.3081))
    assert together.scale == np.float32(1 / 255 / 0.3081)
    assert together.shift == np.float32(-0.1307 / 0.3081)


def test_affine_leaves_its_input_alone_and_gives_float32() -> None:
    pixels = np.array([[1, 2]], np.uint8)
    for kind in (np.uint8, np.int64, np.float64, np.float32):
        given = pixels.astype(kind)
        assert Affine(2.0, 1.0)(given).dtype == np.float32
        np.testing.assert_array_equal(given, pixels)


def test_affine_moves_with_the_channels() -> None:
    per_channel = Affine(np.array([1.0, 2.0]), np.array([0.5, 0.25]))
    images = np.random.default_rng(0).random((3, 4, 5, 2), np.float32)
    expected = per_channel(images).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(per_channel.channels_first()(images.transpose(0, 3, 1, 2)), expected)


def test_affine_needs_one_number_per_channel() -> None:
    with pytest.raises(ConfigError, match="the number of values differs from the number of channels"):
        Affine(np.ones(3), np.zeros(3)).infer(TensorType(dt.uint8, (4, 4, 2)))
    with pytest.raises(ConfigError, match="the number of values differs from the number of channels"):
        Affine(np.ones(3), np.zeros(3)).infer(TensorType(dt.uint8, ()))
