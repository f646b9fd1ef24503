"""Resize and Upsample against stock onnxruntime, and their gradients against differences."""

import itertools

import numpy as np
import pytest
from one_node import RNG, Constant, check_gradients, check_outputs, node
from tables import table

from runner.errors import ConfigError

COORDINATES = "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"
SYMMETRIC = "half_pixel_symmetric"
NEAREST = "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def floats(*numbers: float) -> Constant:
    return Constant(np.array(numbers, np.float32))


def scaled(shape, scales, opset=13, **attributes):
    inputs = [normal(*shape), floats(), floats(*scales)] if opset > 10 else [normal(*shape), floats(*scales)]
    return node("Resize", *inputs, opset=opset, **attributes)


def sized(shape, sizes, opset=13, **attributes):
    none = None if opset > 12 else floats()
    inputs = [normal(*shape), none, none, Constant(np.array(sizes, np.int64))]
    return node("Resize", *inputs, opset=opset, **attributes)


def upsampled(shape, scales, **attributes):
    return node("Upsample", normal(*shape), floats(*scales), opset=9, **attributes)


SIZES = (1, 1, 7, 3), (1, 1, 4, 9), (1, 1, 10, 10), (1, 1, 1, 1)
ROWS = [
    *(
        sized((1, 1, 5, 6), sizes, mode="nearest", coordinate_transformation_mode=coordinates, nearest_mode=nearest)
        for sizes, coordinates, nearest in itertools.product(SIZES, COORDINATES, NEAREST)
    ),
    *(
        scaled((1, 2, 4, 5), scales, mode=mode, coordinate_transformation_mode=coordinates)
        for mode in ("nearest", "linear", "cubic")
        for scales in ((1, 1, 2, 2), (1, 1, 0.6, 1.7), (1, 1, 3, 1), (1, 1, 1.3, 1.1))
        for coordinates in COORDINATES
    ),
    *(
        sized((2, 1, 5, 4), sizes, mode=mode, coordinate_transformation_mode=coordinates)
        for mode in ("linear", "cubic")
        for sizes in ((2, 1, 10, 8), (2, 1, 3, 2), (2, 1, 7, 5))
        for coordinates in COORDINATES
    ),
    sized((1, 1, 4, 5), (1, 1, 7, 9), mode="linear", opset=19, coordinate_transformation_mode=SYMMETRIC),
    scaled((1, 1, 4, 5), (1, 1, 1.6, 2.3), mode="linear", opset=19, coordinate_transformation_mode=SYMMETRIC),
    sized((1, 1, 4, 5), (1, 1, 7, 9), mode="nearest", coordinate_transformation_mode="tf_half_pixel_for_nn", opset=11),
    scaled((1, 1, 5, 6), (1, 1, 1.5, 2.5), mode="cubic", cubic_coeff_a=-0.5),
    scaled((1, 1, 5, 6), (1, 1, 1.5, 2.5), mode="cubic", exclude_outside=1),
    scaled((2, 3, 4), (1, 1, 2), mode="nearest"),
    sized((1, 2, 9, 8), (1, 2, 4, 5), 18, mode="linear", antialias=1, coordinate_transformation_mode="align_corners"),
    *(
        sized((1, 2, 9, 8), sizes, 18, mode=mode, antialias=1, exclude_outside=excluded)
        for mode in ("linear", "cubic")
        for sizes in ((1, 2, 3, 4), (1, 2, 4, 3), (1, 2, 5, 11), (1, 2, 1, 7), (1, 2, 13, 16))
        for excluded in (0, 1)
    ),
    scaled(
        (1, 2, 4, 5), (1, 1, 2, 2), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    scaled((1, 2, 3, 3), (1, 1, 2, 2), opset=11, mode="linear", coordinate_transformation_mode="align_corners"),
    sized((1, 2, 3, 3), (1, 2, 5, 6), opset=11, mode="linear"),
    *(
        scaled((1, 2, 4, 6), scales, opset=10, mode=mode)
        for mode in ("nearest", "linear")
        for scales in ((1, 1, 2, 2), (1, 1, 0.5, 0.7))
    ),
    *(upsampled((1, 2, 3, 4), (1, 1, 2, 3), mode=mode) for mode in ("nearest", "linear")),
    upsampled((1, 1, 3, 4), (1, 1, 1.7, 2.4), mode="nearest"),
]
AXES = [
    node("Resize", normal(2, 3, 4), None, floats(2.0), axes=[2], mode="nearest"),
    node("Resize", normal(1, 2, 4, 6), None, None, Constant(np.array([7, 9])), axes=[2, 3], mode="linear"),
    *(
        node(
            "Resize",
            normal(1, 1, 4, 6),
            None,
            None,
            Constant(np.array(sizes)),
            axes=[2, 3],
            mode="linear",
            keep_aspect_ratio_policy=policy,
        )
        for policy in ("not_larger", "not_smaller", "stretch")
        for sizes in ((8, 8), (3, 5))
    ),
]


@table("one", ROWS + AXES, ids=str)
def test_outputs(one, tmp_path):
    check_outputs(one, tmp_path, most=2e-5)


def test_one_and_three_axes_of_linear_interpolation(tmp_path):
    check_outputs(scaled((2, 2, 5), (1, 1, 2.5), mode="linear"), tmp_path)
    check_outputs(scaled((1, 1, 2, 3, 4), (1, 1, 2, 1.5, 2), mode="linear"), tmp_path)


@table("one", [*ROWS[1:64:9], *ROWS[64:113:5], *AXES[:4]], ids=str)
def test_gradients(one, tmp_path):
    check_gradients(one, tmp_path)


def test_whole_numbers_have_nearest_neighbours_only(tmp_path):
    x = RNG.integers(-9, 9, (1, 1, 3, 4)).astype(np.int32)
    check_outputs(node("Resize", x, None, floats(1, 1, 2, 1.5), ints=(0,), mode="nearest"), tmp_path)
    assert "interpolates floats only" in refused(
        node("Resize", x, None, floats(1, 1, 2, 2), ints=(0,), mode="linear"), tmp_path
    )


def refused(one, folder):
    with pytest.raises(ConfigError) as caught:
        one.network(one.write(folder)).run("pynative")
    return str(caught.value)


def test_what_is_refused(tmp_path):
    crop = "tf_crop_and_resize"
    text = refused(sized((1, 1, 4, 4), (1, 1, 8, 8), mode="linear", coordinate_transformation_mode=crop), tmp_path)
    assert "coordinate_transformation_mode" in text
    assert crop in text
    assert "a positive scale for each axis" in refused(scaled((1, 1, 4, 4), (2, 2), mode="linear"), tmp_path)
    assert "a positive size for each axis" in refused(sized((1, 1, 4, 4), (1, 1, 0, 2), mode="linear"), tmp_path)
    assert "a positive scale for each axis" in refused(scaled((1, 1, 4, 4), (1, 1, np.inf, 2), mode="linear"), tmp_path)


@table("mode", ["nearest", "linear"])
def test_sizes_are_checked_before_memory_is_taken(mode, tmp_path):
    """What a file says must not fill the memory."""
    assert "not enough memory" in refused(sized((1, 1, 4, 4), (1, 1, 2**40, 4), mode=mode), tmp_path)
    assert "not enough memory" in refused(scaled((1, 1, 4, 4), (1, 1, 1e30, 1), mode=mode), tmp_path)
