"""The text of prints: as MindSpore 2.10 writes it in graph mode on a CPU, recorded below."""

import numpy as np
import pytest

from runner import dtype as dt
from runner.ops.effects import text

# What MindSpore's Print wrote for these tensors. It wraps rows of more than 12 floats or 24 whole numbers; here a row
# is a line.
RECORDED = [
    (np.ones((2, 1), np.int32), "Tensor(shape=[2, 1], dtype=Int32, value=\n[[1]\n [1]])"),
    (
        np.array([[1, -200], [30, 4]], np.int32),
        "Tensor(shape=[2, 2], dtype=Int32, value=\n[[   1 -200]\n [  30    4]])",
    ),
    (np.array([True, False]), "Tensor(shape=[2], dtype=Bool, value=[ True False])"),
    (
        (np.arange(6).reshape(2, 3) / 7).astype(np.float32),
        "Tensor(shape=[2, 3], dtype=Float32, value=\n"
        "[[ 0.00000000e+00  1.42857149e-01  2.85714298e-01]\n"
        " [ 4.28571433e-01  5.71428597e-01  7.14285731e-01]])",
    ),
    (
        np.array([1.5, np.nan, -np.inf, 1e-30], np.float16),
        "Tensor(shape=[4], dtype=Float16, value=[ 1.5000e+00         nan        -inf  0.0000e+00])",
    ),
]


@pytest.mark.parametrize(("array", "expected"), RECORDED, ids=lambda x: str(getattr(x, "dtype", "")))
def test_as_the_reference_writes_it(array, expected):
    assert text([array]) == expected


def test_what_has_no_axes_is_written_out():
    assert text([np.float32(0.1)[()] * np.ones((), np.float32)]) == "Tensor(shape=[], dtype=Float32, value=0.1)"
    assert text([np.array(True)]) == "Tensor(shape=[], dtype=Bool, value=True)"
    assert text([np.array(-3, np.int64)]) == "Tensor(shape=[], dtype=Int64, value=-3)"


def test_strings_stand_as_they_are():
    assert text(["a\nb ", "", "%s {0} ü", np.zeros(1, np.int8)]) == (
        "a\nb \n\n%s {0} ü\nTensor(shape=[1], dtype=Int8, value=[0])"
    )


def test_inner_blocks_are_indented():
    assert text([np.arange(8, dtype=np.uint8).reshape(2, 2, 2) * 20]) == (
        "Tensor(shape=[2, 2, 2], dtype=UInt8, value=\n[[[  0  20]\n  [ 40  60]]\n [[ 80 100]\n  [120 140]]])"
    )


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_nothing_to_show(shape):
    expected = {(0,): "[]", (0, 3): "\n[]", (2, 0): "\n[[]\n []]"}[shape]
    assert text([np.zeros(shape, np.float32)]) == f"Tensor(shape={list(shape)}, dtype=Float32, value={expected})"


def test_nothing_is_left_out():
    array = np.arange(5000, dtype=np.int64)
    _, _, shown = text([array]).partition("value=[")
    assert [int(word) for word in shown.rstrip("])").split()] == array.tolist()


@pytest.mark.parametrize("kind", [kind for kind in dt.ALL if kind not in (dt.bool_, dt.float64)], ids=str)
def test_the_digits_are_enough_to_read_the_elements_back(kind):
    """Float64 has more, as in MindSpore; Float16 has enough with four."""
    rng = np.random.default_rng(0)
    if kind.is_float:
        array = (rng.normal(size=(40, 5)) * 10.0 ** rng.integers(-3, 4, (40, 5))).astype(kind.numpy)
    else:
        limits = np.iinfo(kind.numpy)
        array = rng.integers(limits.min, limits.max, (40, 5), kind.numpy, endpoint=True)
    shown = text([array]).partition("value=")[2].replace("[", " ").replace("]", " ").replace(")", " ")
    read = np.array([kind.numpy.type(word) for word in shown.split()], kind.numpy).reshape(array.shape)
    assert np.array_equal(read, array)


def test_memory_order_does_not_matter():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert text([np.asfortranarray(array)]) == text([array])
    assert text([array.T]) == text([array.T.copy()])
