"""The contract can fail: each check refuses an operator that is a little wrong."""

import numpy as np
import pytest
from contract import (
    check_gradient,
    check_inputs_unchanged,
    check_layout,
    check_not_differentiable,
    check_onnx,
    check_precision,
    check_repeatable,
    check_repr,
    check_types,
)
from operands import normal

from runner import ops
from runner.core.primitive import REGISTRY, Primitive

X = (normal(3, 4),)
IMAGE = (normal(1, 2, 6, 6), normal(3, 2, 3, 3))
CONV = {"out_channel": 3, "kernel_size": (3, 3), "pad_mode": "pad", "pad": (1, 0, 0, 1)}


class WrongDtype(ops.Tanh):
    def kernel(self, x):
        return np.tanh(x).astype(np.float64)


class WrongShape(ops.ReduceSum):
    def kernel(self, x):
        return x.sum(0, keepdims=True)


class SlightlySteep(ops.Tanh):
    def grad(self, inputs, outputs, douts):
        return (super().grad(inputs, outputs, douts)[0] * 1.001,)


class Lost(ops.Tanh):
    def grad(self, inputs, outputs, douts):
        return (None,)


class LostSecond(ops.Mul):
    def grad(self, inputs, outputs, douts):
        return super().grad(inputs, outputs, douts)[0], None


class WrongPad(ops.Conv2D):
    def lower(self, b, x, w):
        top, left, bottom, right = self.windows(b.type(x).shape).onnx()["pads"]
        return b.node("Conv", (x, w), pads=(bottom, right, top, left))


class Imprecise(ops.Exp):
    def kernel(self, x):
        return np.exp(x.astype(np.float16) if x.dtype == np.float32 else x).astype(x.dtype)


class Greedy(ops.Neg):
    def kernel(self, x):
        x *= -1
        return x


class LikesOneLayout(ops.Neg):
    def kernel(self, x):
        return -np.frombuffer(x.tobytes("A"), x.dtype).reshape(x.shape)


class Moody(ops.Neg):
    def kernel(self, x):
        return x * np.random.default_rng().normal()


class Talkative(ops.Neg):
    def __repr__(self):
        return "ReLU()"


def test_the_broken_operators_are_not_registered():
    assert not {"WrongDtype", "SlightlySteep", "WrongPad"} & set(REGISTRY)


@pytest.mark.parametrize(
    ("check", "right", "wrong", "arrays"),
    [
        (check_types, ops.Tanh(), WrongDtype(), X),
        (check_types, ops.ReduceSum(axis=0), WrongShape(axis=0), X),
        (check_gradient, ops.Tanh(), SlightlySteep(), X),
        (check_gradient, ops.Tanh(), Lost(), X),
        (check_gradient, ops.Mul(), LostSecond(), X * 2),
        (check_onnx, ops.Conv2D(**CONV), WrongPad(**CONV), IMAGE),
        (check_precision, ops.Exp(), Imprecise(), X),
        (check_onnx, ops.Exp(), Imprecise(), X),
        (check_layout, ops.Neg(), LikesOneLayout(), X),
        (check_repeatable, ops.Neg(), Moody(), X),
        (check_not_differentiable, ops.BiasAddGrad(), ops.Tanh(), X),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Primitive) else "",
)
def test_a_check_accepts_what_is_right_and_refuses_what_is_wrong(check, right, wrong, arrays):
    check(right, arrays)
    with pytest.raises(AssertionError):
        check(wrong, arrays)


def test_writing_to_an_operand_is_refused():
    check_inputs_unchanged(ops.Neg(), X)
    with pytest.raises(ValueError, match="read-only"):
        check_inputs_unchanged(Greedy(), X)


def test_a_wrong_text_is_refused():
    check_repr(ops.Neg())
    with pytest.raises(AssertionError):
        check_repr(Talkative())


def test_the_wrong_pad_has_the_right_shape():
    """So that it is the values that gave it away."""
    right, wrong = ops.Conv2D(**CONV), WrongPad(**CONV)
    check_types(right, IMAGE)
    check_types(wrong, IMAGE)
    assert right.windows(IMAGE[0].shape).onnx()["pads"] == (1, 0, 0, 1)
