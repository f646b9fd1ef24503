"""Convolutions in tiles by Winograd's transforms, and both gradients, against correlations in Float64."""

import numpy as np
import pytest

from runner import Model, context, nn, ops, set_seed
from runner.dataset import NumpySlicesDataset
from runner.device import Device
from runner.host.threads import kernel_threads
from runner.ops.convolution.windows import Windows
from runner.ops.convolution.winograd import winograd_kernels

BOUND = 5e-6  # of the largest result; the direct products stay below 1e-6

# Batch, channels of x, height, width, filters, (top, bottom, left, right), size of the tiles that are chosen.
CASES = {
    "whole tiles": (4, 32, 16, 16, 48, (1, 1, 1, 1), 4),
    "slabs of tiles": (32, 32, 16, 12, 32, (1, 1, 1, 1), 4),
    "uneven": (8, 33, 14, 11, 32, (0, 1, 2, 0), 4),
    "smaller tiles": (16, 64, 4, 4, 64, (1, 1, 1, 1), 2),
    "no padding": (16, 32, 10, 18, 40, (0, 0, 0, 0), 4),
}


def rows_of(case):
    """x, filters, output gradient, and the operators; x stays in memory as (N, C, H, W)."""
    batch, ins, height, width, outs, pad, _ = case
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((batch, ins, height, width), np.float32), rng.standard_normal((outs, ins, 3, 3))
    w = (w / np.sqrt(9 * ins)).astype(np.float32)
    same = {"kernel_size": 3, "pad_mode": "pad", "pad": pad}
    forward = ops.Conv2D(outs, **same)
    dout = rng.standard_normal((batch, outs, *forward.windows(x.shape).out), np.float32)
    backward = ops.Conv2DBackpropInput(outs, **same, input_size=x.shape)
    filters = ops.Conv2DBackpropFilter(outs, **same, filter_size=w.shape)
    return [(forward, (x, w)), (backward, (dout, w)), (filters, (dout, x))]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results_are_those_of_direct_products(case):
    assert (
        rows_of(case)[0][0]
        .tiled(
            Windows.resolve(case[2:4], (3, 3), (1, 1), "pad", case[5]),
            (case[4], case[1]),
            np.empty(case[0], np.float32),
        )
        .matrices.tile
        == case[-1]
    )
    for op, operands in rows_of(case):
        expected = op.kernel(*(array.astype(np.float64) for array in operands))
        found, largest = op.kernel(*operands), np.abs(expected).max()
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=0, atol=BOUND * largest, err_msg=op.name)
        with winograd_kernels(False):
            direct = op.kernel(*operands)
        np.testing.assert_allclose(direct, expected, rtol=0, atol=BOUND / 5 * largest, err_msg=op.name)
        assert (found != direct).any(), f"{op.name} did not use the transforms"


@pytest.mark.parametrize("case", [CASES["slabs of tiles"], (16, 256, 8, 8, 256, (1, 1, 1, 1), 4)])
def test_bits_do_not_depend_on_threads(case):
    for op, operands in rows_of(case):
        made = []
        for threads in (1, 2, 3):
            with kernel_threads(threads):
                made.append(op.kernel(*operands).tobytes())
        assert made[0] == made[1] == made[2], op.name


@pytest.mark.parametrize(
    "change",
    [{"stride": 2}, {"dilation": 2}, {"group": 2}, {"kernel_size": 5}, {"pad": 0, "pad_mode": "valid"}],
    ids=str,
)
def test_other_convolutions_are_direct(change):
    """`valid` leaves 2x3 results of a 4x5 image, which fill a tile badly."""
    settings = {"kernel_size": 3, "pad_mode": "pad", "pad": 2, **change}
    op = ops.Conv2D(64, **settings)
    x = np.ones((8, 64, 4, 5) if "pad_mode" in change else (8, 64, 12, 12), np.float32)
    w = np.ones((64, 64 // op.group, *op.kernel_size), np.float32)
    assert op.tiled(op.windows(x.shape), w.shape, x) is None


def test_float64_and_few_channels_are_direct():
    op, windows = ops.Conv2D(64, 3), Windows((16, 16), (3, 3))
    x = np.ones((8, 64, 16, 16), np.float32)
    assert op.tiled(windows, (64, 64, 3, 3), x) is not None
    assert op.tiled(windows, (64, 64, 3, 3), x.astype(np.float64)) is None
    assert op.tiled(windows, (64, 16, 3, 3), x) is None
    assert op.tiled(windows, (64, 64, 3, 3), x[:1]) is None


def trained(mode, winograd):
    """The parameters after a step of a network with a convolution that suits the transforms."""
    set_seed(1)
    network = nn.SequentialCell(nn.Conv2d(32, 32, 3, weight_init="he_normal"), nn.Flatten(), nn.Dense(32 * 64, 3))
    rng = np.random.default_rng(2)
    data = NumpySlicesDataset((rng.standard_normal((16, 32, 8, 8), np.float32), np.arange(16, dtype=np.int32) % 3))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    model = Model(network, loss, optimizer, mode=mode, device=Device(winograd=winograd))
    model.train(1, data.batch(16), dataset_sink_mode=False)
    return [p.asnumpy() for p in network.get_parameters()]


def test_a_training_uses_them_unless_they_are_off():
    pynative = [trained(context.PYNATIVE_MODE, choice) for choice in ("auto", "off", "auto")]
    graph = trained(context.GRAPH_MODE, "off")
    for auto, off, again, expected in zip(*pynative, graph, strict=True):
        np.testing.assert_array_equal(auto, again)
        np.testing.assert_allclose(auto, expected, rtol=0, atol=BOUND)
        np.testing.assert_allclose(off, expected, rtol=0, atol=BOUND)
    assert (pynative[0][0] != pynative[1][0]).any()
