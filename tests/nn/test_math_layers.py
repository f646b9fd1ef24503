"""Mathematical layers, norms and matrices: numbers in both modes against Float64, and what they refuse."""

import math

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from tables import table

from runner import dtype as dt, nn
from runner.core.gradients import gradients
from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError

RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def positive_definite(n: int) -> np.ndarray:
    root = normal(n, n)
    return root @ root.T + n * np.eye(n, dtype=np.float32)


X, SQUARE = normal(3, 4, 5), normal(2, 3, 3)
STACK = np.stack([positive_definite(4), positive_definite(4)])


def set_diagonal(x: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
    x, k = x.copy(), np.arange(min(x.shape[-2:]))
    x[..., k, k] = diagonal
    return x


def log_gamma(x: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda n: math.lgamma(float(n)))(x)


def digamma(x: np.ndarray) -> np.ndarray:
    h = 1e-4  # fourth order: the error is 1e-11
    steps = zip((1, -8, 8, -1), (-2, -1, 1, 2), strict=True)
    return sum(weight * log_gamma(x + k * h) for weight, k in steps) / (12 * h)


@table("mode", MODES)
@table(
    ("layer", "operands", "expected"),
    [
        (nn.ReduceLogSumExp(1), [X], lambda x: np.log(np.exp(x).sum(1))),
        (nn.ReduceLogSumExp([0, 2], True), [X], lambda x: np.log(np.exp(x).sum((0, 2), keepdims=True))),
        (nn.ReduceLogSumExp(()), [X + 200], lambda x: np.log(np.exp(x - 200).sum()) + 200),
        (nn.Moments(), [X], lambda x: (x.mean(), x.var())),
        (nn.Moments((0, 2), True), [X + 50], lambda x: (x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True))),
        (nn.Norm(), [X], lambda x: np.sqrt((x**2).sum())),
        (nn.Norm(1), [X], lambda x: np.sqrt((x**2).sum(1))),
        (nn.Norm((0, 2), True), [X], lambda x: np.sqrt((x**2).sum((0, 2), keepdims=True))),
        (nn.L1Regularizer(0.5), [X], lambda x: 0.5 * np.abs(x).sum()),
        (nn.ClipByNorm(), [X, np.float32([2])], lambda x, c: x * c / max(np.sqrt((x**2).sum()), c[0])),
        (nn.ClipByNorm(), [X, np.float32(100)], lambda x, c: x),
        (
            nn.ClipByNorm(2),
            [X, np.float32(1.5)],
            lambda x, c: x * c / np.maximum(np.sqrt((x**2).sum(2, keepdims=True)), c),
        ),
        (nn.Tril(), [X], np.tril),
        (nn.Triu(), [X], np.triu),
        (nn.MatrixDiag(), [X], lambda x: x[..., None] * np.eye(5)),
        (nn.MatrixDiagPart(), [X], lambda x: np.diagonal(x, axis1=1, axis2=2)),
        (nn.MatrixDiagPart(), [X[:, :, :2]], lambda x: np.diagonal(x, axis1=1, axis2=2)),
        (nn.MatrixSetDiag(), [X, X[:, :, 1]], set_diagonal),
        (nn.MatrixSetDiag(), [X[:, :, :2], X[:, :2, 1]], set_diagonal),
        (nn.MatrixSetDiag(), [SQUARE, SQUARE[:, 0]], set_diagonal),
        (nn.MatMul(), [X[0], X[1].T], np.matmul),
        (nn.MatMul(transpose_x2=True), [X[0], X[1]], lambda a, b: a @ b.T),
        (nn.MatMul(transpose_x1=True), [X, X], lambda a, b: a.swapaxes(1, 2) @ b),
        (nn.MatMul(), [X[:, None], X[0].T], np.matmul),
        (nn.MatMul(), [X[0, 0], X[0, 1]], np.matmul),
        (nn.MatMul(True, True), [X, X[0, 0, :4]], lambda a, b: a.swapaxes(1, 2) @ b),
        (nn.MatMul(), [X[0, :, 0], X], np.matmul),
        (nn.MatInverse(), [STACK[0]], np.linalg.inv),
        (nn.MatInverse(), [STACK], np.linalg.inv),
        (nn.MatDet(), [STACK[0]], np.linalg.det),
        (nn.MatDet(), [STACK], np.linalg.det),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Cell) else "",
)
def test_numbers(layer, operands, expected, mode):
    wanted = expected(*[x.astype(np.float64) for x in operands])
    made = step_of(layer.construct, mode)(*operands)
    for found, want in zip(made, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert found.shape == np.shape(want)
        assert relative(found, want) < 3e-6


GAMMA = np.concatenate([np.linspace(-5.7, 0.4, 20), np.linspace(0.55, 30, 40), [100, 1e4]]).astype(np.float32)


@table("mode", MODES)
def test_the_family_of_the_gamma_function(mode):
    made = step_of(nn.LGamma().construct, mode)(GAMMA)[0]
    exact = log_gamma(GAMMA.astype(np.float64))
    assert (np.abs(made - exact) < 5e-6 * np.maximum(np.abs(exact), 1)).all()
    made = step_of(nn.DiGamma().construct, mode)(GAMMA)[0]
    exact = digamma(GAMMA.astype(np.float64))
    assert (np.abs(made - exact) < 3e-5 * np.maximum(np.abs(exact), 1)).all()
    poles = np.array([0, -1, -7, np.inf, -np.inf], np.float32)
    assert step_of(nn.LGamma().construct, mode)(poles)[0].tolist() == [np.inf] * 5
    assert np.isnan(step_of(nn.DiGamma().construct, mode)(poles[1:3])[0]).all()


@table("mode", MODES)
def test_log_beta_loses_nothing_where_its_terms_cancel(mode):
    x, y = (np.array(v, np.float32) for v in ([2, 0.5, 4, 7, 9, 20, 3, 1e3], [2, 0.3, 3, 14, 15, 8, 1e4, 2e3]))
    exact = np.array([_log_beta(float(a), float(b)) for a, b in zip(x, y, strict=True)])
    made = step_of(nn.LBeta().construct, mode)(x, y)[0]
    assert (np.abs(made - exact) < 1e-5 * np.maximum(np.abs(exact), 1)).all()


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


@table("mode", MODES)
@table(
    ("arguments", "expected"),
    [((5,), np.arange(5)), ((1, 8, 2), np.arange(1, 8, 2)), ((1, 2.5, 0.5), [1, 1.5, 2]), ((3, 0, -1), [3, 2, 1])],
)
def test_range(arguments, expected, mode):
    made = step_of(nn.Range(*arguments).construct, mode)()[0]
    assert made.tolist() == list(expected)
    assert made.dtype == (np.int32 if all(isinstance(n, int) for n in arguments) else np.float32)


@table("mode", MODES)
def test_diagonals_of_ints_and_other_diagonals(mode):
    whole = np.arange(12, dtype=np.int32).reshape(3, 4)
    assert np.array_equal(step_of(lambda x: nn.Tril()(x, 1), mode)(whole)[0], np.tril(whole, 1))
    assert np.array_equal(step_of(lambda x: nn.Triu()(x, -1), mode)(whole)[0], np.triu(whole, -1))
    assert step_of(nn.MatrixDiag().construct, mode)(whole[0])[0].dtype == np.int32


@table("mode", MODES)
def test_gradients_of_norms_at_zero_and_of_an_inverse(mode):
    zero = np.zeros((2, 3), np.float32)
    scale = nn.Dense(3, 3, weight_init="ones", has_bias=False)
    slope = step_of(lambda x: gradients(nn.ClipByNorm()(scale(x), Tensor(1.0)), [scale.weight])[0], mode)(zero)[0]
    assert np.array_equal(slope, np.zeros((3, 3)))
    weight = nn.Dense(4, 4, weight_init=Tensor(STACK[0]), has_bias=False).weight
    slope = step_of(lambda: gradients(nn.MatInverse()(weight), [weight])[0], mode)()[0]
    inverse = np.linalg.inv(STACK[0].astype(np.float64))
    assert relative(slope, -np.outer(inverse.sum(1), inverse.sum(0)).T) < 1e-5


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.L1Regularizer(0), ConfigError, "scale must be a number above 0"),
        (lambda: nn.Range(0, 3, 0), ConfigError, "the range has no numbers"),
        (lambda: nn.Range(3, 1), ConfigError, "the range has no numbers"),
        (lambda: nn.MatMul(1), ConfigError, "transpose_x1 must be True or False"),
        (lambda: nn.MatInverse()(Tensor(X)), ShapeError, "square matrices"),
        (lambda: nn.MatrixSetDiag()(Tensor(X), Tensor(X)), ShapeError, "not the diagonal of x"),
        (lambda: nn.Tril()(Tensor(1.0)), ShapeError, "at least two axes"),
        (lambda: nn.LGamma()(Tensor(1)), ShapeError, "needs floats"),
        (lambda: nn.Norm(0, 1), ConfigError, "keep_dims must be True or False"),
    ],
)
def test_what_they_refuse(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_moments_of_float16_are_computed_in_float32():
    x = np.full((1000,), 300, np.float16)
    mean, variance = nn.Moments()(Tensor(x))
    assert (mean.dtype, float(mean), float(variance)) == (dt.float16, 300.0, 0.0)
