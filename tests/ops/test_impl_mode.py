"""`impl_mode` of pooling: Float16 is summed in Float32 and rounded once, or every sum is rounded; in both modes."""

import numpy as np
import pytest

from runner import dtype as dt, nn, ops
from runner.compile.passes import PASSES
from runner.compile.program import Program
from runner.config.check import check
from runner.config.groups.entries import NETWORKS
from runner.core.interpreter import Eager
from runner.core.values import Tensor
from runner.device import Device
from runner.errors import ShapeError
from runner.experiment import build
from runner.nn.convolution import set_impl_mode
from runner.types import TensorType

CPU = Device("CPU", threads=1)
GEOMETRIES = [
    ((12, 12), 12, 12, "valid"),
    ((7, 7), 3, 2, "valid"),
    ((7, 6), 3, 2, "same"),
    ((9, 5), (4, 2), (4, 2), "same"),
]
PRECISE, FAST = "high_precision", "high_performance"


def image(size: tuple[int, int]) -> np.ndarray:
    """Numbers of one sign, whose sums lose digits in Float16."""
    return np.random.default_rng(2).uniform(0.5, 1.5, (2, 3, *size)).astype(np.float16)


def in_eager(op: ops.AvgPool, x: np.ndarray) -> np.ndarray:
    with Eager():
        made = op(Tensor(x))
    return made.array


def in_graph(op: ops.AvgPool, x: np.ndarray, passes=None) -> np.ndarray:
    return Program(lambda value: op(value), [TensorType.of(x)], CPU, "net", passes=passes)([x])[0]


def windows(x: np.ndarray, op: ops.AvgPool):
    """Row, column, and the elements (N, C, count) of each window in row-major order, without padding."""
    (height, width), (kh, kw), (sh, sw) = x.shape[2:], op.kernel_size, op.strides
    same = op.pad_mode == "same"
    rows, columns = (-(-height // sh), -(-width // sw)) if same else ((height - kh) // sh + 1, (width - kw) // sw + 1)
    top = max(0, (rows - 1) * sh + kh - height) // 2 if same else 0
    left = max(0, (columns - 1) * sw + kw - width) // 2 if same else 0
    for i in range(rows):
        for j in range(columns):
            low, first = i * sh - top, j * sw - left
            part = x[:, :, max(0, low) : low + kh, max(0, first) : first + kw]
            yield i, j, part.reshape(*x.shape[:2], -1)


@pytest.mark.parametrize(("size", "kernel", "stride", "mode"), GEOMETRIES)
def test_every_sum_is_rounded(size, kernel, stride, mode):
    op, x = ops.AvgPool(kernel, stride, mode, impl_mode=FAST), image(size)
    made = in_eager(op, x)
    assert made.dtype == np.float16
    for i, j, elements in windows(x, op):
        total = np.zeros(x.shape[:2], np.float16)
        for k in range(elements.shape[2]):
            total = (np.float32(total) + np.float32(elements[:, :, k])).astype(np.float16)
        expected = (np.float32(total) / np.float32(elements.shape[2])).astype(np.float16)
        np.testing.assert_array_equal(made[:, :, i, j], expected)
    np.testing.assert_array_equal(in_graph(op, x), made)
    np.testing.assert_array_equal(in_graph(op, x, PASSES), made)  # as onnxruntime optimises it


@pytest.mark.parametrize(("size", "kernel", "stride", "mode"), GEOMETRIES)
def test_only_the_mean_is_rounded(size, kernel, stride, mode):
    op, x = ops.AvgPool(kernel, stride, mode), image(size)
    made = in_eager(op, x)
    for i, j, elements in windows(x, op):
        exact = np.float64(elements).mean(2)
        np.testing.assert_allclose(np.float64(made[:, :, i, j]), exact, rtol=2.0**-11 + 1e-6)
    np.testing.assert_allclose(np.float64(in_graph(op, x)), np.float64(made), rtol=2.0**-10)


def test_the_choice_is_seen_in_the_numbers():
    x = image((12, 12))
    exact = np.float64(x).mean((2, 3))
    precise, fast = (
        np.abs(np.float64(in_eager(ops.AvgPool(12, 12, "valid", impl_mode=mode), x)[:, :, 0, 0]) - exact).max()
        for mode in (PRECISE, FAST)
    )
    assert fast > 4 * precise


@pytest.mark.parametrize("mode", [PRECISE, FAST])
def test_other_types_do_not_care(mode):
    x = image((6, 6)).astype(np.float32)
    usual = ops.AvgPool(2, 2)
    np.testing.assert_array_equal(in_eager(ops.AvgPool(2, 2, "valid", impl_mode=mode), x), in_eager(usual, x))
    np.testing.assert_array_equal(in_graph(ops.AvgPool(2, 2, "valid", impl_mode=mode), x), in_graph(usual, x))


def test_an_unknown_mode():
    with pytest.raises(ShapeError) as caught:
        ops.AvgPool(2, 2, "valid", impl_mode="fast")
    assert caught.value.rows == {"given": "fast", "allowed": "high_precision, high_performance"}


class Pools(nn.Cell):
    """Two pools, one of them deeper, and one that keeps its maximum."""

    def __init__(self, **_: object) -> None:
        super().__init__()
        self.first, self.inner = nn.MaxPool2d(2, 2), nn.SequentialCell(nn.AvgPool2d(2, 2))
        self.pool, self.flatten, self.fc = ops.AvgPool(2, 2), nn.Flatten(), nn.Dense(64, 10)

    def construct(self, x):
        return self.fc(self.flatten(self.pool(self.inner(self.first(x)))))


DATA = {"dataset": {"name": "synthetic", "num_samples": 8, "batch_size": 4}}


def modes(network: nn.Cell) -> list[str]:
    operators = [op for _, cell in network.cells_and_names() for op in vars(cell).values()]
    return [op.impl_mode for op in operators if isinstance(op, ops.AvgPool)]


def test_all_pools_of_a_network_are_chosen():
    network = Pools()
    set_impl_mode(network, FAST)
    assert modes(network) == [FAST, FAST]
    x = TensorType(dt.float16, (1, 1, 8, 8))
    assert network.first.max_pool == ops.MaxPool(2, 2)
    assert ops.AvgPool(2, 2, "valid", impl_mode=FAST).infer(x) == TensorType(dt.float16, (1, 1, 4, 4))


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        ({}, PRECISE),
        ({"op_select_implmode": FAST}, PRECISE),
        ({"op_select_implmode": FAST, "optypelist_for_implmode": "Pooling"}, FAST),
        ({"op_select_implmode": PRECISE, "optypelist_for_implmode": "Pooling"}, PRECISE),
        ({"optypelist_for_implmode": "Pooling"}, FAST),
    ],
)
def test_the_keys_of_a_session(session, expected, monkeypatch):
    monkeypatch.setattr(NETWORKS.kind["lenet5"], "call", lambda keys, facts: Pools())
    built = build.build(check({"session": session, **DATA}))
    assert modes(built.model.network) == [expected, expected]


@pytest.mark.parametrize(
    ("session", "warning"),
    [
        ({}, ""),
        ({"op_select_implmode": PRECISE, "optypelist_for_implmode": "Pooling"}, ""),
        (
            {"op_select_implmode": PRECISE},
            "session.op_select_implmode has no effect without session.optypelist_for_implmode=Pooling",
        ),
    ],
)
def test_a_mode_without_operators_is_reported(session, warning, monkeypatch, caplog):
    monkeypatch.setattr(NETWORKS.kind["lenet5"], "call", lambda keys, facts: Pools())
    build.build(check({"session": session, **DATA}))
    assert "\n".join(caplog.messages) == warning


def test_operators_that_a_network_does_not_have_are_reported(caplog):
    build.build(check({"session": {"optypelist_for_implmode": "Pooling"}, **DATA}))
    assert caplog.messages == ["session.optypelist_for_implmode has no effect: the network has no layer AvgPool2d"]
