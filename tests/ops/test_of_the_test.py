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
from second_order import check_second_order
from sizes import check_sizes
from unusual import check_digits, check_unusual_gradients, check_unusual_values

from runner import ops
from runner.core.operators import REGISTRY, Primitive
from runner.core.values import Tensor

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


class LosesNan(ops.ReduceMax):
    def lower(self, b, x):
        return b.node("ReduceMax", (x, b.const(list(self.axes(b.type(x))))), keepdims=int(self.keep_dims))


class OverflowsEarly(ops.Softplus):
    def kernel(self, x):
        return np.log(1 + np.exp(x))


class FlushesDenormals(ops.Neg):
    def kernel(self, x):
        return np.where(np.abs(x) < np.finfo(x.dtype).tiny, x.dtype.type(0), -x)


class LosesNanInTheGradient(ops.ReLU):
    def grad(self, inputs, outputs, douts):
        return (LosesNanInThisMode()(douts[0], outputs[0]),)


class LosesNanInThisMode(ops.ReluGrad):
    def kernel(self, dout, out):
        return np.asarray(np.where(out > 0, dout, dout.dtype.type(0)))


class SmallAsOnnxruntime(ops.Elu):
    def lower(self, b, x):
        return b.node("Elu", (x,), alpha=float(self.alpha))


class DividesByLength(ops.Neg):
    def kernel(self, x):
        return -x / len(x) * len(x) if len(x) != 1 else x


class CannotBeEmpty(ops.Neg):
    def kernel(self, x):
        return -x * (x.size // len(x))


class SecondOrderIsLost(ops.Tanh):
    def grad(self, inputs, outputs, douts):
        return (douts[0] * Tensor(1.0 - outputs[0].array * outputs[0].array),)


def test_the_broken_operators_are_not_registered():
    assert not {"WrongDtype", "SlightlySteep", "WrongPad"} & set(REGISTRY)


def of_kind(check, kind):
    return lambda op, arrays: check(op, arrays, kind)


def of_one_operand(op, arrays):
    check_digits(op)


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
        (of_kind(check_unusual_values, "nan"), ops.ReduceMax(axis=0), LosesNan(axis=0), X),
        (of_kind(check_unusual_values, "far"), ops.Softplus(), OverflowsEarly(), X),
        (of_kind(check_unusual_values, "denormal"), ops.Neg(), FlushesDenormals(), X),
        (of_kind(check_unusual_gradients, "nan"), ops.ReLU(), LosesNanInTheGradient(), X),
        (of_one_operand, ops.Elu(), SmallAsOnnxruntime(), X),
        (check_sizes, ops.Neg(), DividesByLength(), X),
        (check_second_order, ops.Tanh(), SecondOrderIsLost(), X),
        (check_not_differentiable, ops.GeLUGrad(), ops.ReluGrad(), X * 2),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Primitive) else "",
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_check_accepts_what_is_right_and_refuses_what_is_wrong(check, right, wrong, arrays):
    check(right, arrays)
    with pytest.raises(AssertionError):
        check(wrong, arrays)


def test_an_operator_without_a_size_is_refused():
    check_sizes(ops.Neg(), X)
    with pytest.raises(ZeroDivisionError):
        check_sizes(CannotBeEmpty(), X)


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
