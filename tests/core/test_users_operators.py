"""Operators that are declared outside of runner: what their rules return is checked, in both modes."""

import numpy as np
import pytest
from both_modes import MODES, step_of
from tables import table

from runner import Tensor, ops
from runner.compile.onnx.lower import lower
from runner.core.gradients import gradients
from runner.core.operators import Primitive, primitive
from runner.core.trace import trace
from runner.core.values import Parameter
from runner.errors import RunnerError, ShapeError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def declared(**rules):
    """An operator that doubles, with some rules replaced or, by None, left out."""
    whole = {
        "infer": lambda self, x: x,
        "kernel": lambda self, x: x * 2,
        "grad": lambda self, inputs, outputs, douts: (douts[0] * 2.0,),
        "lower": lambda self, b, x: b.node("Add", (x, x)),
    }
    kept = {name: rule for name, rule in (whole | rules).items() if rule is not None}
    return primitive(type("Twice", (Primitive,), kept | {"__module__": "somewhere.else"}))()


def gradient(op, mode):
    w = Parameter(X, "w")
    return step_of(lambda x: gradients(ops.ReduceSum()(op(w) * x), [w])[0], mode)(X + 1)[0]


@pytest.mark.parametrize("mode", MODES)
def test_an_operator_that_fits_is_used(mode):
    op = declared()
    assert op.is_users
    assert not ops.Add().is_users
    assert np.array_equal(step_of(lambda x: op(op(x)), mode)(X)[0], 4 * X)
    assert np.array_equal(gradient(op, mode), 2 * (X + 1))


def test_declared_types_are_not_in_the_model():
    """A model may be generalized to batches of any size."""
    x = Tensor(X)
    graph = trace(lambda x: declared()(x) + x, [x.type], "network")
    assert not lower(graph).graph.value_info


@table(
    ("mode", "rules", "text"),
    [
        ("pynative", {"kernel": lambda self, x: x.sum()}, "kernel    Float32[]\n  infer     Float32[2, 3]"),
        ("pynative", {"kernel": lambda self, x: x.astype(np.float64)}, "kernel    Float64[2, 3]\n"),
        ("pynative", {"kernel": lambda self, x: (x, x)}, "kernel    Float32[2, 3], Float32[2, 3]\n"),
        ("pynative", {"kernel": lambda self, x: "x"}, "not an element type of tensors"),
        ("graph", {"lower": lambda self, b, x: b.node("ReduceSum", (x,), keepdims=0)}, "differ in rank: (0) vs (2)"),
        ("graph", {"lower": lambda self, b, x: b.node("Greater", (x, x))}, "Inferred elem type differs"),
        ("graph", {"lower": lambda self, b, x: b.node("Twofold", (x,))}, "No Op registered for Twofold"),
        ("pynative", {"kernel": None}, "Twice has no kernel for PyNative mode\n"),
        ("graph", {"lower": None}, "Twice has no lowering for graph mode\n"),
        ("pynative", {"infer": None}, "Twice has no type rule\n"),
        ("graph", {"infer": None}, "Twice has no type rule\n"),
    ],
    ids=str,
)
def test_outputs_that_are_not_those_of_the_type_rule_are_refused(mode, rules, text):
    """Read by another operator: only there would it be too late to notice."""
    op = declared(**rules)
    with pytest.raises(RunnerError) as caught:
        step_of(lambda x: op(x) + x, mode)(X)
    assert text in str(caught.value)
    assert "test_users_operators.py" in caught.value.rows["line"]


@pytest.mark.parametrize("mode", MODES)
@table(
    ("rule", "text"),
    [
        (
            lambda self, i, o, d: (np.ones(3),),
            "a gradient must be a tensor with the shape of its operand\n  gradient  ndarray",
        ),
        (
            lambda self, i, o, d: (ops.ReduceSum()(d[0]),),
            "\n  gradient  Float32[]\n  operand   Float32[2, 3]\n  number    0\n",
        ),
        (lambda self, i, o, d: (lambda: ops.ReduceSum()(d[0]),), "\n  gradient  Float32[]\n"),
        (lambda self, i, o, d: d[0], "grad returns one gradient for each operand\n  given     1\n  operands  1\n"),
        (
            lambda self, i, o, d: (d[0], None),
            "grad returns one gradient for each operand\n  given     2\n  operands  1\n",
        ),
        (lambda self, i, o, d: None, "grad returns one gradient for each operand\n"),
    ],
    ids=id,
)
def test_gradients_that_do_not_fit_are_refused(rule, text, mode):
    with pytest.raises(ShapeError) as caught:
        gradient(declared(grad=rule), mode)
    assert str(caught.value).startswith("ShapeError: Twice: ")
    assert text in str(caught.value)
    assert caught.value.rows["scope"].endswith("Twice-op0")


@pytest.mark.parametrize("mode", MODES)
def test_no_gradient_is_a_gradient(mode):
    assert np.array_equal(gradient(declared(grad=lambda self, i, o, d: (None,)), mode), np.zeros_like(X))


@pytest.mark.parametrize("mode", MODES)
def test_a_tuple_of_tensors_is_no_operand(mode):
    """numpy would make one array of them, without a gradient."""
    with pytest.raises(ShapeError) as caught:
        step_of(lambda x: (x, Tensor(X)) - x, mode)(X)
    assert str(caught.value) == (
        "ShapeError: an operator takes tensors, not a list or tuple of them\n"
        "  given   Float32[2, 3], Float32[2, 3]\n  repair  unpack it, or use ops.Stack"
    )
