"""The functions of `ops.functional` and `ops.composite`, against numpy."""

import math

import numpy as np
import pytest
from both_modes import MODES, step_of
from compositions import Composed, check_gradients, check_values
from operands import coarse, normal, positive, whole
from tables import check_rows, table

from runner import dtype as dt, ops
from runner.core.operators import Primitive
from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError
from runner.mindspore.ops import functional as F


def products():
    for x, y in (
        ((2, 3), (3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((2, 3), (5, 3, 4)),
        ((4, 1, 2, 3), (5, 3, 4)),
        ((3,), (3, 4)),
    ):
        yield Composed(f"matmul-{x}-{y}", ops.matmul, (normal(*x), normal(*y)), np.matmul)
    for x, y in (((2, 3), (3,)), ((3,), (3,)), ((5, 2, 3), (3,)), ((3,), (5, 3, 4))):
        yield Composed(f"matmul-{x}-{y}", ops.matmul, (normal(*x), normal(*y)), np.matmul)
    for x, y in (((2, 3), (3, 4)), ((5, 2, 3), (6, 3, 4))):
        yield Composed(f"dot-{x}-{y}", ops.dot, (normal(*x), normal(*y)), np.dot)
    for axes in (0, 1, 2, ((1, 2), (0, 1)), ((0,), (2,)), (2, 1)):
        name, numpy_axes = f"tensor_dot-{axes}", axes
        pair = normal(4, 2, 3), normal(2, 3, 4)
        if axes == 1:
            pair = normal(4, 2), normal(2, 5)
        yield Composed(
            name, lambda x, y, a=axes: ops.tensor_dot(x, y, a), pair, lambda x, y, a=numpy_axes: np.tensordot(x, y, a)
        )
    yield Composed("batch_dot", ops.batch_dot, (normal(5, 2, 3), normal(5, 3, 4)), lambda x, y: x @ y)
    vectors = normal(5, 3), normal(5, 3)
    yield Composed("batch_dot-vectors", ops.batch_dot, vectors, lambda x, y: (x * y).sum(1, keepdims=True))
    pair = normal(5, 3, 2), normal(5, 4, 3)
    turned = lambda x, y: np.einsum("nka,nbk->nab", x, y)  # noqa: E731
    yield Composed("batch_dot-axes", lambda x, y: ops.batch_dot(x, y, (1, 2)), pair, turned)


def others():
    for axis, keep in (((), False), (0, True), ((0, 1), False)):
        yield Composed(
            f"count_nonzero-{axis}",
            lambda x, a=axis, k=keep: ops.count_nonzero(x, a, k),
            (coarse(3, 4),),
            lambda x, a=axis, k=keep: np.count_nonzero(x, a if a != () else None, keepdims=k),
            smooth=False,
        )
    for axis in (0, 1, -1):
        repeat = lambda x, a=axis: np.repeat(x, 3, a)  # noqa: E731
        yield Composed(f"repeat-{axis}", lambda x, a=axis: ops.repeat_elements(x, 3, a), (normal(2, 3),), repeat)
    lengths = whole(2, 3, low=0, high=6)
    mask = lambda n: np.arange(6) < n[..., None]  # noqa: E731
    yield Composed("sequence_mask", lambda n: ops.sequence_mask(n, 6), (lengths,), mask)
    xs = normal(2, 3), normal(4)

    def clipped(x, y, limit):
        norm = np.sqrt((x * x).sum() + (y * y).sum())
        return x * limit / max(norm, limit), y * limit / max(norm, limit)

    for limit in (0.5, 100.0):
        clip = lambda x, y, n=limit: ops.clip_by_global_norm((x, y), n)  # noqa: E731
        yield Composed(f"clip_by_global_norm-{limit}", clip, xs, lambda x, y, n=limit: clipped(x, y, n))


COMPOSED = [*products(), *others()]


def test_the_numbers_in_both_modes():
    check_rows(COMPOSED, check_values)


def test_the_gradients_in_both_modes():
    check_rows([r for r in COMPOSED if r.smooth and r.arrays[0].dtype.kind == "f"], check_gradients)


def test_wrong_operands_of_products():
    x = Tensor(normal(2, 3))
    for wrong in (
        lambda: ops.dot(Tensor(normal(3)), x),
        lambda: ops.tensor_dot(x, x, 1),
        lambda: ops.tensor_dot(x, x, 3),
        lambda: ops.batch_dot(x, x, (0, 1)),
        lambda: ops.matmul(x, 2.0),
        lambda: ops.repeat_elements(x, 0),
        lambda: ops.clip_by_global_norm((), 1.0),
        lambda: ops.clip_by_global_norm((x,), 0.0),
    ):
        with pytest.raises(ShapeError):
            wrong()


BINARY = {
    "tensor_add": np.add,
    "tensor_sub": np.subtract,
    "tensor_mul": np.multiply,
    "tensor_div": np.divide,
    "tensor_pow": np.power,
    "atan2": np.arctan2,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "tensor_lt": np.less,
    "tensor_ge": np.greater_equal,
}
UNARY = {
    "absolute": np.abs,
    "neg_tensor": np.negative,
    "square": np.square,
    "sqrt": np.sqrt,
    "log": np.log,
    "tensor_exp": np.exp,
    "tensor_expm1": np.expm1,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "floor": np.floor,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "atan": np.arctan,
    "isnan": np.isnan,
    "isfinite": np.isfinite,
    "zeros_like": np.zeros_like,
    "ones_like": np.ones_like,
    "reduce_sum": np.sum,
    "reduce_max": np.max,
    "reduce_mean": np.mean,
    "reduce_min": np.min,
    "transpose": lambda x: x.T,
}


@table("mode", MODES)
@table("name", {**BINARY, **UNARY})
def test_operators_as_functions(name: str, mode: str):
    x, y = positive(3, 4), positive(3, 4)
    operands = (x, y) if name in BINARY else (x,)
    call = getattr(ops, name)
    apply = (lambda v: call(v, (1, 0))) if name == "transpose" else call
    (made,) = step_of(apply, mode)(*operands)
    assert np.allclose(made, {**BINARY, **UNARY}[name](*operands), rtol=1e-5, atol=1e-6)


def served() -> dict[str, object]:
    """What the table has for `runner.ops`, by its name there."""
    return {name: value for name, value in vars(F).items() if name in ops.__all__ and getattr(ops, name) is value}


def test_every_function_is_an_operator_under_another_name():
    functions = {name: value for name, value in served().items() if not isinstance(value, type)}
    assert len(functions) > 80
    for name, function in functions.items():
        assert callable(function), name
        assert name == name.lower()
    assert isinstance(F.tensor_add, Primitive)


def test_functions_of_python_values():
    p = F
    assert (p.scalar_add(2, 3), p.scalar_pow(2, 3), p.scalar_usub(2), p.scalar_log(math.e)) == (5, 8, -2, 1.0)
    assert (p.scalar_floordiv(7, 2), p.scalar_mod(7, 2), p.scalar_ne(1, 2)) == (3, 1, True)
    assert p.tuple_getitem((1, 2, 3), 1) == 2
    assert p.tuple_setitem((1, 2, 3), 0, 9) == (9, 2, 3)
    assert p.list_setitem([1, 2], 1, 9) == [1, 9]
    assert p.tuple_reversed((1, 2)) == (2, 1)
    assert p.tuple_div((4, 6), (2, 3)) == (2, 2)
    assert p.make_range(1, 4) == (1, 2, 3)
    assert p.make_tuple(1, 2) == (1, 2)
    assert p.make_list(1, 2) == [1, 2]
    assert p.make_dict(("a",), (1,)) == {"a": 1}
    assert p.dict_setitem({"a": 1}, "b", 2) == {"a": 1, "b": 2}
    assert p.in_dict("a", {"a": 1})
    assert p.not_in_dict("b", {"a": 1})
    assert p.bool_and(True, False) is False
    assert p.bool_or(True, False) is True
    assert p.is_(None, None)
    assert p.shape_mul((2, 3)) == 6
    assert p.reduced_shape((2, 3, 4), (0, -1)) == (1, 3, 1)
    assert str(p.typeof(Tensor(1.0))) == "Tensor[Float32]"  # as MindSpore 2.10 and the release's documentation print it
    assert p.typeof(1) is dt.int64
    assert p.typeof("x") is dt.string
    assert ops.issubclass_(p.typeof(Tensor(1.0)), dt.tensor)
    assert not ops.issubclass_(p.typeof(1), dt.tensor)
    assert ops.issubclass_(dt.float16, dt.float_)
    assert p.hastype(Tensor(1.0), dt.float32)
    assert p.array_to_scalar(Tensor(2.5)) == 2.5
    x, flag = p.mixed_precision_cast(dt.float16, (Tensor(1.0), {"n": Tensor(1)}))
    assert x.dtype is dt.float16
    assert flag["n"].dtype is dt.int32
    with pytest.raises(ConfigError):
        p.tuple_div((5,), (2,))


def test_synonyms():
    names = {name for name, value in served().items() if isinstance(value, type) and value.__name__ != name}
    assert names == {
        "FastGelu",
        "GatherV2",
        "Gelu",
        "Inv",
        "Pack",
        "SparseGatherV2",
        "TensorAdd",
        "Unpack",
        "identity",
        "make_slice",
    }
    assert ops.TensorAdd is ops.Add
    assert ops.GatherV2()(Tensor([1.0, 2.0]), Tensor([1]), 0).asnumpy().tolist() == [2.0]
