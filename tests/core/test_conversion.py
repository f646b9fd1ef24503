"""Operands of different element types: what they are converted to, in both modes, and their gradients."""

import itertools

import numpy as np
import pytest
from both_modes import MODES, step_of
from tables import table

from runner import Parameter, Tensor, dtype, nn, ops
from runner.core.gradients import gradients
from runner.core.operators import REGISTRY
from runner.core.recorder import Recorder
from runner.core.values import ORDER, Symbol, common_dtype
from runner.errors import ConfigError, ShapeError
from runner.ops.elementwise.arithmetic import Binary

# The element type of x + y in MindSpore 2.10, for each pair of these in this order, and of x + True, x + 2, x + 1.5.
NAMES = ["bool_", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]
SUMS = {
    "int8": "int8 int8 int16 int16 int32 int64 float16 float32 float64 int8 int8 float32",
    "uint8": "uint8 int16 uint8 int16 int32 int64 float16 float32 float64 uint8 uint8 float32",
    "int16": "int16 int16 int16 int16 int32 int64 float16 float32 float64 int16 int16 float32",
    "int32": "int32 int32 int32 int32 int32 int64 float16 float32 float64 int32 int32 float32",
    "int64": "int64 int64 int64 int64 int64 int64 float16 float32 float64 int64 int64 float32",
    "float16": "float16 float16 float16 float16 float16 float16 float16 float32 float64 float16 float16 float16",
    "float32": "float32 float32 float32 float32 float32 float32 float32 float32 float64 float32 float32 float32",
    "float64": "float64 float64 float64 float64 float64 float64 float64 float64 float64 float64 float64 float64",
}
X = [1, 2, 3]


def made(name):
    return np.array(X).astype(np.dtype(name.rstrip("_")))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SUMS)
def test_sums_have_the_type_of_the_table(mode, name):
    others = [Tensor(made(other)) for other in NAMES] + [True, 2, 1.5]
    run = step_of(lambda x: tuple(x + other for other in others) + tuple(other + x for other in others), mode)
    found, expected = run(made(name)), [np.dtype(kind) for kind in SUMS[name].split()]
    for result, other, kind in zip(found, others * 2, expected * 2, strict=True):
        assert result.dtype == kind
        number = np.float64(other.asnumpy() if isinstance(other, Tensor) else other)
        np.testing.assert_array_equal(np.float64(result), np.float64(made(name)) + number)


@pytest.mark.parametrize("mode", MODES)
def test_numbers_beside_bool(mode):
    x = np.array([True, False])
    for number, kind, expected in [(3, np.int64, [4, 3]), (3.25, np.float32, [4.25, 3.25])]:
        result = step_of(lambda x, number=number: x + number, mode)(x)[0]
        assert result.dtype == kind
        assert result.tolist() == expected
    assert step_of(lambda x: ops.Select()(x, 1, Tensor([7, 8])), mode)(x)[0].tolist() == [1, 8]


@table(
    ("x", "y"),
    [(dtype.uint16, dtype.uint8), (dtype.uint32, dtype.float32), (dtype.int64, dtype.uint64)],
)
def test_the_other_unsigned_types_are_not_converted(x, y):
    assert common_dtype((x, y)) is None
    with pytest.raises(ShapeError, match="must have the same element type") as caught:
        Tensor([1], x) + Tensor([1], y)
    assert "astype" in caught.value.rows["repair"]


def test_the_order_is_that_of_numpy_but_for_integers_beside_floats():
    """numpy's promotion for types of one kind, an oracle for all of these pairs."""
    for x, y in itertools.product(ORDER, repeat=2):
        if x.is_float == y.is_float:
            assert common_dtype((x, y)).numpy == np.promote_types(x.numpy, y.numpy)


def test_every_operator_of_two_operands_converts():
    for name, op in REGISTRY.items():
        assert op.one_dtype == issubclass(op, Binary), name


@pytest.mark.parametrize("mode", MODES)
def test_gradients_have_the_types_of_the_operands(mode):
    """d(x * y) = y dx + x dy; the Cast of the narrower operand passes its gradient on, rounded to its type."""
    half, single = np.float16([0.5, 2.0]), np.float32([3.0, -1.25])
    w, v = Parameter(Tensor(half), "w"), Parameter(Tensor(single), "v")

    def step(k):
        loss = (w * v * k).sum()
        return (loss, *gradients(loss, [w, v]))

    loss, by_w, by_v = step_of(step, mode)(np.int32([2, 4]))
    assert (loss.dtype, by_w.dtype, by_v.dtype) == (np.float32, np.float16, np.float32)
    np.testing.assert_array_equal(loss, 0.5 * 3 * 2 + 2 * -1.25 * 4)
    np.testing.assert_array_equal(by_w, [6, -5])
    np.testing.assert_array_equal(by_v, [1, 8])


@pytest.mark.parametrize("mode", MODES)
def test_a_parameter_takes_narrower_values_and_refuses_wider_ones(mode):
    single, whole = Parameter(Tensor([1.0, 2.0]), "single"), Parameter(Tensor([1, 2]), "whole")

    def step(x, n):
        ops.Assign()(single, n)
        ops.AssignAdd()(single, x)
        ops.ScatterUpdate()(single, Tensor([1]), Tensor([9]))
        return x

    step_of(step, mode)(np.float16([0.5, 0.25]), np.int32([3, 4]))
    assert single.asnumpy().tolist() == [3.5, 9]
    for apply in (ops.Assign(), ops.AssignSub(), ops.assign):
        with pytest.raises(ShapeError, match="keeps its type") as caught:
            step_of(lambda x, apply=apply: apply(whole, x), mode)(np.float32([1, 2]))
        assert caught.value.rows["allowed"] == "Bool, Int8, Int16, Int32, UInt8"
        assert caught.value.rows["repair"] == "value.astype('int32')"
    with pytest.raises(ShapeError, match="keeps its type"):
        ops.ScatterUpdate()(whole, Tensor([1]), Tensor([9.5]))


def test_an_assignment_to_an_attribute_is_converted():
    class Counting(nn.Cell):
        def __init__(self):
            super().__init__()
            self.total = Parameter(Tensor([0.0]), "total")

        def construct(self, x):
            self.total = x
            return x

    net = Counting()
    net(Tensor([3], dtype.int32))
    assert (net.total.dtype, net.total.asnumpy().tolist()) == (dtype.float32, [3])
    with pytest.raises(ConfigError):
        net(Tensor([3], dtype.float64))


OPERATORS = [
    ("Less", lambda x, w: x < w),
    ("LessEqual", lambda x, w: x <= w),
    ("Greater", lambda x, w: x > w),
    ("GreaterEqual", lambda x, w: x >= w),
    ("Equal", lambda x, w: x == w),
    ("NotEqual", lambda x, w: x != w),
]


@table(("name", "compare"), OPERATORS)
def test_a_comparison_with_a_parameter_is_one_operator_in_both_modes(name, compare):
    """Python calls the method of the parameter first; the record has the operator and order of the program."""
    w, x, constant = Parameter(Tensor([2.0, 2.0, 2.0]), "w"), np.float32([1, 2, 3]), Tensor([1.0, 2.0, 3.0])
    expected = getattr(
        np,
        {"LessEqual": "less_equal", "GreaterEqual": "greater_equal", "NotEqual": "not_equal"}.get(name, name.lower()),
    )(x, np.float32(2))
    for mode in MODES:
        found = step_of(lambda x: (compare(x, w), compare(constant, w), compare(w, x), compare(constant, x)), mode)(x)
        np.testing.assert_array_equal(found[0], expected)
        np.testing.assert_array_equal(found[1], expected)
    inputs = (Tensor(x),)
    with Recorder(inputs) as recorder:
        results = tuple(compare(*pair) for pair in ((inputs[0], w), (constant, w), (constant, inputs[0] * 1.0)))
        graph = recorder.graph("comparisons", results)
    compared = [node for node in graph.nodes if node.op.name != "Mul"]
    assert [node.op.name for node in compared] == [name] * 3
    assert [isinstance(node.inputs[1], Symbol) and node.inputs[1].name for node in compared[:2]] == ["w", "w"]
