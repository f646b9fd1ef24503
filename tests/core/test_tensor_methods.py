"""Operators and methods of tensors, in both modes and against numpy in Float64; and how tensors are printed."""

import numpy as np
import pytest
from both_modes import MODES, step_of
from tables import table

from runner import Parameter, Tensor, dtype as dt
from runner.common.initializer import One
from runner.errors import ConfigError, RunnerError, ShapeError

X = np.random.default_rng(3).normal(size=(2, 3, 4)).astype(np.float32) * 4
METHODS = [
    (lambda x: x % 3, lambda x: x % 3),
    (lambda x: x % -3, lambda x: x % -3),
    (lambda x: 7 % (x + 20), lambda x: 7 % (x + 20)),
    (lambda x: x // 0.5, lambda x: x // 0.5),
    (lambda x: 7 // (x + 20), lambda x: 7 // (x + 20)),
    (lambda x: 2 ** (x / 4), lambda x: 2 ** (x / 4)),
    (lambda x: +abs(-x), np.abs),
    (lambda x: ~(x > 1), lambda x: ~(x > 1)),
    (lambda x: x @ x.swapaxes(1, 2), lambda x: x @ x.swapaxes(1, 2)),
    (lambda x: (x > -9).all(), lambda x: (x > -9).all()),
    (lambda x: (x > 1).all(axis=1, keep_dims=True), lambda x: (x > 1).all(1, keepdims=True)),
    (lambda x: (x > 1).any((0, 2)), lambda x: (x > 1).any((0, 2))),
    (lambda x: x.abs(), np.abs),
    (lambda x: x.mean(), np.mean),
    (lambda x: x.mean((0, -1), True), lambda x: x.mean((0, -1), keepdims=True)),
    (lambda x: x.mean([1]), lambda x: x.mean(1)),
    (lambda x: x.sum(), np.sum),
    (lambda x: x.sum(1, keepdims=True, initial=3), lambda x: x.sum(1, keepdims=True) + 3),
    (lambda x: x.sum(0, dtype=dt.int32) * 0, lambda x: np.zeros((3, 4), np.int32)),
    (lambda x: (x > 0).sum(), lambda x: np.int32((x > 0).sum())),
    (lambda x: x.max(), np.max),
    (lambda x: x.max((0, 1), keepdims=True, initial=1), lambda x: x.max((0, 1), keepdims=True, initial=1)),
    (lambda x: x.min(-1), lambda x: x.min(-1)),
    (lambda x: x.min(0, initial=0), lambda x: x.min(0, initial=0)),
    (lambda x: x.argmax(), lambda x: np.int32(x.argmax())),
    (lambda x: x.argmin(1), lambda x: x.argmin(1).astype(np.int32)),
    (lambda x: x.var(), np.var),
    (lambda x: x.var((0, 2), 1, True), lambda x: x.var((0, 2), ddof=1, keepdims=True)),
    (lambda x: x.std(1), lambda x: x.std(1)),
    (lambda x: x.cumsum(), np.cumsum),
    (lambda x: x.cumsum(1), lambda x: x.cumsum(1)),
    (lambda x: x.ptp(2), lambda x: np.ptp(x, 2)),
    (lambda x: x.clip(-1, 2), lambda x: x.clip(-1, 2)),
    (lambda x: x.clip(None, 2), lambda x: x.clip(None, 2)),
    (lambda x: x.view(6, 4), lambda x: x.reshape(6, 4)),
    (lambda x: x.view((4, -1)), lambda x: x.reshape(4, 6)),
    (lambda x: x.reshape([2, -1]), lambda x: x.reshape(2, -1)),
    (lambda x: x.reshape(-1), np.ravel),
    (lambda x: x.ravel(), np.ravel),
    (lambda x: x.flatten(), np.ravel),
    (lambda x: x.flatten("F"), lambda x: x.flatten("F")),
    (lambda x: x.T, lambda x: x.T),
    (lambda x: x.transpose(1, 0, 2), lambda x: x.transpose(1, 0, 2)),
    (lambda x: x.transpose((-1, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    (lambda x: x.swapaxes(0, -1), lambda x: x.swapaxes(0, -1)),
    (lambda x: x[:1, :, None].squeeze(), lambda x: x[0]),
    (lambda x: x[:1, :, None].squeeze(2), lambda x: x[:1]),
    (lambda x: x[:1].expand_as(x), lambda x: np.broadcast_to(x[:1], x.shape)),
    (lambda x: x.repeat(2, 1), lambda x: x.repeat(2, 1)),
    (lambda x: x.repeat(3), lambda x: x.repeat(3)),
    (lambda x: x.astype(dt.int32), lambda x: x.astype(np.int32)),
    (lambda x: x.astype("Bool_"), lambda x: x.astype(bool)),
    (lambda x: x.astype(int), lambda x: x.astype(np.int64)),
    (lambda x: x.copy(), lambda x: x),
    (lambda x: x.fill(3), lambda x: np.full_like(x, 3)),
    (lambda x: x.fill(None), lambda x: np.full_like(x, np.nan)),
    (lambda x: x.item((1, 2, 3)), lambda x: x[1, 2, 3]),
    (lambda x: x.item(5), lambda x: x.ravel()[5]),
    (lambda x: x.itemset((1, 2, 3), 7), lambda x: np.append(x.ravel()[:-1], 7).reshape(x.shape)),
    (lambda x: x.itemset(0, 7), lambda x: np.append(7, x.ravel()[1:]).reshape(x.shape)),
]


@pytest.mark.parametrize("mode", MODES)
@table(("method", "expected"), METHODS, ids=[str(k) for k in range(len(METHODS))])
def test_a_method_computes_what_numpy_does(method, expected, mode):
    made, wide = step_of(method, mode)(X)[0], np.asarray(expected(X.astype(np.float64)))
    assert made.shape == wide.shape
    assert made.dtype == (np.float32 if wide.dtype.kind == "f" else wide.dtype)
    assert np.allclose(made, wide, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_what_a_tensor_says_about_itself():
    x = Tensor(X)
    assert (x.shape, x.dtype, x.size, x.ndim) == ((2, 3, 4), dt.float32, 24, 3)
    assert (x.itemsize, x.nbytes, x.strides) == (4, 96, X.strides)
    assert (len(x), [row.shape for row in x]) == (2, [(3, 4), (3, 4)])
    assert [*range(Tensor(3))] == [0, 1, 2]
    assert not Tensor([0.0])
    assert (x.has_init, x.init_data() is x, x.to_tensor() is x) == (False, True, True)
    assert x.astype(dt.float32, copy=False) is x
    assert Tensor.from_numpy(X).asnumpy() is X
    for many in (Tensor(1.5), x):
        with pytest.raises(TypeError, match="only one whole number is an index or a count"):
            range(many)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)


def test_an_initializer_fills_a_tensor():
    x = Tensor(shape=(2, 3), dtype=dt.float16, init=One())
    assert (x.shape, x.dtype, x.asnumpy().min()) == ((2, 3), dt.float16, 1)
    assert Tensor(shape=2, dtype=dt.float32, init="zeros").asnumpy().tolist() == [0, 0]


def test_methods_leave_their_tensor():
    x = Tensor(X)
    x.fill(0), x.itemset(0, 9), x.copy().asnumpy().fill(5)
    assert np.array_equal(x.asnumpy(), X)
    x.set_dtype(dt.int32)
    assert (x.dtype, x.asnumpy().dtype) == (dt.int32, np.int32)


@table(
    ("make", "what"),
    [
        (lambda: Tensor(X).flatten("K"), "unknown order of elements"),
        (lambda: Tensor(X).reshape(), "a shape is ints, or one tuple or list of them"),
        (lambda: Tensor(X).view(2.0, 12), "a shape is ints, or one tuple or list of them"),
        (lambda: Tensor(X).transpose(0, 0, 1), "Transpose: perm must name each axis once"),
        (lambda: Tensor(X).squeeze(1), "Squeeze: only axes of length 1 can be removed"),
        (lambda: Tensor(X).swapaxes(0, 3), "axis out of range or named twice"),
        (lambda: Tensor(X).item(), "only a value of one element has an element without an index"),
        (lambda: Tensor(X).item((0, 1)), "an element needs one number for each axis"),
        (lambda: Tensor(X).all(), "ReduceAll: the operand must be Bool"),
        (lambda: Tensor(X).astype("float31"), "not an element type of tensors"),
        (lambda: Tensor(X, shape=(24,)), "data has its own shape"),
        (lambda: Tensor(init="ones"), "a tensor is made of data, or of an initializer with shape and dtype"),
        (lambda: Parameter(True), "a parameter has numbers as elements"),
        (lambda: Parameter(X, layerwise_parallel=1), "layerwise_parallel is true or false"),
        (lambda: Parameter(X, "w").set_param_ps(), "runner has no parameter server"),
    ],
)
def test_what_is_refused(make, what):
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.what == what


def test_a_symbol_is_no_index_of_a_list():
    with pytest.raises(RunnerError) as caught:
        step_of(lambda k: [Tensor(1.0), Tensor(2.0)][k], "graph")(np.array(1, np.int32))
    assert caught.value.what == "graph mode has no number for a value that is only known when the graph runs"


# What MindSpore 2.10.0 prints, which formats as r1.2 does.
PRINTED = [
    (1.5, "1.5", "Tensor(shape=[], dtype=Float32, value= 1.5)"),
    (np.float32(1e10), "1e+10", "Tensor(shape=[], dtype=Float32, value= 1e+10)"),
    (np.array(True), "True", "Tensor(shape=[], dtype=Bool, value= True)"),
    (
        np.array([[0, -1.5], [2, 1e6]], np.float32),
        "[[ 0.0e+00 -1.5e+00]\n [ 2.0e+00  1.0e+06]]",
        "Tensor(shape=[2, 2], dtype=Float32, value=\n"
        "[[ 0.00000000e+00, -1.50000000e+00],\n [ 2.00000000e+00,  1.00000000e+06]])",
    ),
    (
        np.array([0.5, -2], np.float16),
        "[ 0.5 -2. ]",
        "Tensor(shape=[2], dtype=Float16, value= [ 5.0000e-01, -2.0000e+00])",
    ),
    (np.array([1, -20, 300]), "[  1 -20 300]", "Tensor(shape=[3], dtype=Int64, value= [  1, -20, 300])"),
    (
        np.array([[True], [False]]),
        "[[ True]\n [False]]",
        "Tensor(shape=[2, 1], dtype=Bool, value=\n[[ True],\n [False]])",
    ),
    (
        np.array([np.nan, np.inf], np.float32),
        "[nan inf]",
        "Tensor(shape=[2], dtype=Float32, value= [            nan,             inf])",
    ),
    (
        np.arange(14, dtype=np.uint8).reshape(2, 7),
        "[[ 0  1  2  3  4  5  6]\n [ 7  8  9 10 11 12 13]]",
        "Tensor(shape=[2, 7], dtype=UInt8, value=\n[[ 0,  1,  2 ...  4,  5,  6],\n [ 7,  8,  9 ... 11, 12, 13]])",
    ),
    (
        np.arange(7, dtype=np.int32).reshape(7, 1),
        "[[0]\n [1]\n [2]\n [3]\n [4]\n [5]\n [6]]",
        "Tensor(shape=[7, 1], dtype=Int32, value=\n[[0],\n [1],\n [2],\n ...\n [4],\n [5],\n [6]])",
    ),
    (
        np.ones((1, 2, 1), np.int32),
        "[[[1]\n  [1]]]",
        "Tensor(shape=[1, 2, 1], dtype=Int32, value=\n[[[1],\n  [1]]])",
    ),
    (np.zeros(12, bool), f"[{' '.join(['False'] * 12)}]".replace("False False False]", "False False\n False]"), None),
]


@table(("data", "text", "representation"), PRINTED)
def test_a_tensor_prints_as_in_the_reference(data, text, representation):
    if representation is None:
        line = ", ".join(["False"] * 12)
        assert repr(Tensor(data)) == f"Tensor(shape=[12], dtype=Bool, value= [{line}\n ])"
        return
    assert (str(Tensor(data)), repr(Tensor(data))) == (text, representation)


def test_a_shape_error_names_the_operands():
    with pytest.raises(ShapeError, match="FloorMod"):
        Tensor([1, 2]) % Tensor([1, 2, 3])
