"""What the providers are told, and which graphs get channels last on a GPU."""

import pytest

from runner import dtype, ops
from runner.compile.program import with_channels_last
from runner.compile.session import provider_options
from runner.core.trace import trace
from runner.device import Device
from runner.types import TensorType

GPU = {"device_id": "0", "cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0", "prefer_nhwc": "0"}
CANN = {"device_id": "0", "precision_mode": "must_keep_origin_dtype", "dump_om_model": "0"}
FAST = {"op_select_implmode": "high_performance", "optypelist_for_implmode": "Pooling"}


@pytest.mark.parametrize(
    ("device", "options"),
    [
        (Device("GPU"), GPU),
        (Device("GPU", 2), GPU | {"device_id": "2"}),
        (Device("GPU", tf32=True), GPU | {"use_tf32": "1"}),
        (Device("GPU", channels_last=True), GPU | {"prefer_nhwc": "1"}),
        (Device("Ascend", 1), CANN | {"device_id": "1"}),
        (Device("Ascend", precision_mode="force_fp32"), CANN),
        (Device("Ascend", precision_mode="cell_fp16"), CANN),
        (Device("Ascend", precision_mode="force_fp16"), CANN | {"precision_mode": "force_fp16"}),
        (Device("Ascend", precision_mode="allow_mix_precision"), CANN | {"precision_mode": "allow_mix_precision"}),
        (
            Device("Ascend", **FAST),
            CANN | {"op_select_impl_mode": "high_performance", "optypelist_for_implmode": "Pooling"},
        ),
    ],
)
def test_options(device, options):
    assert provider_options(device) == options


def graph_of(operator, kind, *shapes):
    return trace(operator, [TensorType(kind, shape) for shape in shapes], "graph")


CONVOLUTION = ops.Conv2D(4, 3), (1, 2, 8, 8), (4, 2, 3, 3)
PRODUCT = ops.MatMul(), (2, 3), (3, 4)


@pytest.mark.parametrize(
    ("given", "kind", "device", "expected"),
    [
        (CONVOLUTION, dtype.float32, Device("GPU"), False),
        (CONVOLUTION, dtype.float32, Device("GPU", tf32=True), True),
        (CONVOLUTION, dtype.float16, Device("GPU"), True),
        (PRODUCT, dtype.float16, Device("GPU", tf32=True), False),
        (CONVOLUTION, dtype.float16, Device("CPU"), False),
        (CONVOLUTION, dtype.float16, Device("Ascend"), False),
    ],
)
def test_channels_last_where_tensor_cores_compute_convolutions(given, kind, device, expected):
    operator, *shapes = given
    assert with_channels_last(device, graph_of(operator, kind, *shapes)).channels_last is expected
