"""Winograd forms of convolutions: where they are offered, and how far they are from Float64."""

from collections.abc import Iterator

import numpy as np
import pytest
from contract import computed, distance, in_float64, ran
from tables import check_rows

from runner import ops
from runner.compile.onnx.lower import lower
from runner.compile.passes import PASSES, default_passes, optimize
from runner.compile.passes.order import layout_for
from runner.core.operators import Primitive
from runner.core.trace import trace
from runner.core.values import Value
from runner.device import Device
from runner.dtype import float32
from runner.errors import ConfigError
from runner.types import Shape, TensorType

BOUNDS = {"winograd2x2": 2e-6, "winograd4x4": 5e-6}  # measured: 0.6e-6 and 3.0e-6 at most, direct forms 0.7e-6
SAME = {"kernel_size": (3, 3), "pad_mode": "same"}


def operators(op: ops.Conv2D, shape: Shape) -> tuple[tuple[Primitive, tuple[Shape, Shape]], ...]:
    """A convolution of images of this shape and both gradients, with the shapes of their operands."""
    filters, out = (op.out_channel, shape[1], 3, 3), (shape[0], op.out_channel, *op.windows(shape).out)
    return (
        (op, (shape, filters)),
        (ops.Conv2DBackpropInput(**op.common_attributes(), input_size=shape), (out, filters)),
        (ops.Conv2DBackpropFilter(**op.common_attributes(), filter_size=filters), (out, shape)),
    )


def lowerings(op: ops.Conv2D, shape: Shape) -> list[list[str]]:
    """The names of the forms, the best first: of the convolution, the gradient of images, the gradient of filters."""
    return [
        [lowering.name for lowering in each.lowerings(*(TensorType(float32, operand) for operand in shapes))]
        for each, shapes in operators(op, shape)
    ]


@pytest.mark.parametrize(
    ("channels", "shape", "first"),
    [
        (64, (32, 64, 32, 32), ("winograd4x4", "winograd4x4", "winograd4x4")),
        (128, (32, 128, 16, 16), ("winograd4x4", "winograd4x4", "winograd4x4")),
        (512, (32, 512, 4, 4), ("winograd2x2", "winograd2x2", "winograd2x2")),  # tiles of 4x4 are too few
        (512, (8, 512, 4, 4), ("gathered", "transposed", "gathered")),  # and here those of 2x2
        (32, (32, 32, 16, 16), ("convolved", "turned", "winograd4x4")),  # few channels
        (64, (32, 64, 6, 6), ("winograd2x2", "winograd2x2", "winograd2x2")),  # four tiles of 4x4 multiply as much
    ],
)
def test_the_first_lowering_is_the_fastest_measured_one(channels: int, shape: Shape, first: tuple[str, ...]):
    assert tuple(names[0] for names in lowerings(ops.Conv2D(channels, **SAME), shape)) == first


def unsuitable() -> Iterator[tuple[ops.Conv2D, Shape]]:
    wide = 32, 64, 16, 16
    yield ops.Conv2D(64, (5, 5), pad_mode="same"), wide
    yield ops.Conv2D(64, (3, 3), pad_mode="same", stride=(2, 2)), wide
    yield ops.Conv2D(64, (3, 3), pad_mode="same", stride=(2, 1)), wide
    yield ops.Conv2D(64, (3, 3), pad_mode="same", dilation=(2, 2)), wide
    yield ops.Conv2D(8, **SAME), wide
    yield ops.Conv2D(64, **SAME), (32, 8, 16, 16)
    yield ops.Conv2D(64, **SAME), (32, 64, 5, 5)
    yield ops.Conv2D(64, **SAME), (7, 64, 16, 16)  # plain images
    yield ops.Conv2D(64, **SAME), (4096, 64, 64, 64)  # more memory than the forms may take


def test_other_convolutions_have_no_winograd_lowering():
    for op, shape in unsuitable():
        filters = op.out_channel, shape[1], *op.kernel_size
        names = [lowering.name for lowering in op.lowerings(TensorType(float32, shape), TensorType(float32, filters))]
        assert not [name for name in names if name.startswith("winograd")], (op, shape)
    depthwise = ops.Conv2D(64, **SAME, group=64)
    found = depthwise.lowerings(TensorType(float32, (32, 64, 16, 16)), TensorType(float32, (64, 1, 3, 3)))
    assert not any(lowering.winograd for lowering in found)


@pytest.mark.parametrize("shape", [(8, 16, 8, 8), (9, 24, 7, 10), (8, 256, 4, 4)])
def test_rounding_errors_stay_within_the_documented_bounds(shape: Shape):
    """Against Float64, relative to the largest result; images as they come from a ReLU, and from both sides of 0."""
    rng, op = np.random.default_rng(0), ops.Conv2D(shape[1], **SAME)

    def check(row: tuple[Primitive, tuple[Shape, Shape]]) -> None:
        made = tuple(rng.standard_normal(size, np.float32) for size in row[1])
        for arrays in (made, tuple(np.maximum(array, 0) for array in made)):
            exact = computed(*in_float64(row[0], arrays))
            for lowering in row[0].lowerings(*map(TensorType.of, arrays)):
                assert distance(ran(row[0], arrays, lowering), exact) <= BOUNDS.get(
                    lowering.name, BOUNDS["winograd2x2"]
                ), lowering

    check_rows(operators(op, shape), check, name=lambda row: row[0].name)


def chosen(device: Device, batch: int = 8) -> list[bool]:
    """Whether the two convolutions of a graph, with 64 and with 8 results, have Winograd's form."""
    types = [TensorType(float32, shape) for shape in ((batch, 64, 8, 8), (64, 64, 3, 3), (8, 64, 3, 3))]
    graph = trace(lambda x, w, v: (ops.Conv2D(64, **SAME)(x, w), ops.Conv2D(8, **SAME)(x, v)), types, "two")
    return [bool(node.lowering and node.lowering.winograd) for node in optimize(graph, default_passes(device)).nodes]


def test_the_device_says_whether_the_lowering_is_chosen():
    assert chosen(Device(), batch=16) == [True, False]
    assert chosen(Device(winograd="off"), batch=16) == [False, False]
    with pytest.raises(ConfigError, match=r"no such choice\n.*session.winograd\n.*always\n.*auto, off"):
        Device(winograd="always")


@pytest.mark.parametrize(("size", "gathers"), [(16, 3), (8, 2)])
def test_only_small_tiles_are_kept_for_the_gradient_of_the_filter(size: int, gathers: int):
    """Tiles of x, of dout, and those of x again; 64 channels of 8x8 have 1.2 MB of them, of 16x16 4.7 MB."""
    op, shape = ops.Conv2D(64, **SAME), (32, 64, size, size)

    def both(x: Value, w: Value, dout: Value) -> tuple[Value, ...]:
        gradients = ops.Conv2DBackpropInput(**op.common_attributes(), input_size=shape)(dout, w)
        return op(x, w), gradients, ops.Conv2DBackpropFilter(**op.common_attributes(), filter_size=w.shape)(dout, x)

    graph = trace(both, [TensorType(float32, s) for s in (shape, (64, 64, 3, 3), shape)], "step")
    placed = optimize(graph, (*PASSES, layout_for(Device())))
    assert [node.lowering.name for node in placed.nodes if node.lowering] == ["winograd4x4"] * 3
    assert [node.op_type for node in lower(placed).graph.node].count("Gather") == gathers
