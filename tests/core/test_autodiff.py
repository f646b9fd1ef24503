"""The reverse walk: sums over shared values, zeros, only what is needed, and the place of what has no gradient."""

import weakref
from collections import Counter

import numpy as np
import pytest
from both_modes import MODES, nodes_of, step_of

from runner import nn, ops
from runner.core.gradients import gradients
from runner.core.interpreter import Eager
from runner.core.values import Parameter, Tensor
from runner.errors import ConfigError, NotDifferentiable

X = np.array([1.0, 2.0, 3.0], np.float32)


def weight(*values: float, name: str = "w") -> Parameter:
    return Parameter(Tensor([float(v) for v in values]), name)


@pytest.mark.parametrize("mode", MODES)
def test_a_value_that_is_used_twice_collects_both_gradients(mode):
    w = weight(1, 2, 3)

    def step(x):
        y = w * x
        return gradients(ops.ReduceSum()(y * y + y), [w])

    # d/dw sum((wx)^2 + wx) = 2 w x^2 + x
    assert step_of(step, mode)(X)[0].tolist() == [3, 18, 57]


@pytest.mark.parametrize("mode", MODES)
def test_a_parameter_that_is_used_twice_in_one_operator(mode):
    w = weight(1, 2, 3)
    assert step_of(lambda x: gradients(w * w * x, [w]), mode)(X)[0].tolist() == [2, 8, 18]


@pytest.mark.parametrize("mode", MODES)
def test_the_loss_is_summed_and_scaled(mode):
    w = weight(1, 2, 3)
    assert step_of(lambda x: gradients(w * x, [w], 4.0), mode)(X)[0].tolist() == [4, 8, 12]


@pytest.mark.parametrize("mode", MODES)
def test_a_parameter_that_the_loss_does_not_need_gets_zeros(mode):
    used, unused, late = weight(1, 2, 3), weight(5, 6, name="unused"), weight(1, 1, 1, name="late")

    def step(x):
        loss = used * x
        loss * late  # after the loss, and not part of it
        return gradients(loss, [unused, used, late])

    made = step_of(step, mode)(X)
    assert [a.tolist() for a in made] == [[0, 0], [1, 2, 3], [0, 0, 0]]


@pytest.mark.parametrize("mode", MODES)
def test_the_loss_may_be_the_parameter_itself(mode):
    w = weight(1, 2, 3)
    assert step_of(lambda x: (*gradients(w, [w]), x), mode)(X)[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("mode", MODES)
def test_both_outputs_of_an_operator_count(mode):
    w = weight(1, 2, 3)

    def step(x):
        y, mask = ops.Dropout(keep_prob=0.5, Seed0=3)(w * x, Tensor(np.int64(0)))
        return (*gradients(y + mask * w, [w]), mask)

    slope, mask = step_of(step, mode)(X)
    assert slope.tolist() == (mask * X * 2 + mask).tolist()


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_differentiated_that_leads_to_no_parameter(mode):
    """Neither the data nor the operators before the first parameter."""
    first, second = weight(0.5, name="a"), weight(0.25, name="b")

    def step(x):
        data = ops.Tanh()(ops.Exp()(x))
        return gradients(ops.Sigmoid()(data * first) * second, [first, second])

    counts = Counter(node.op.name for node in nodes_of(step, mode, X) if node.name.startswith("Gradients/"))
    # Mul by second: two products; Sigmoid: 1 - y and two products; Mul by first: one product and none for the data;
    # each of the two parameters (one element) is the sum over what it was repeated to.
    assert counts == {"Mul": 5, "Sub": 1, "ReduceSum": 2, "Reshape": 2}


@pytest.mark.parametrize("mode", MODES)
def test_only_the_wanted_parameters_cost_anything(mode):
    conv = nn.Conv2d(1, 2, 3)
    image = np.ones((1, 1, 4, 4), np.float32)

    def step(wanted, x):
        return gradients(conv(x), wanted)

    def operators(*wanted):
        return [n.op.name for n in nodes_of(lambda x: step(wanted, x), mode, image) if n.name.startswith("Gradients/")]

    assert operators(conv.weight) == ["Conv2DBackpropFilter"]
    assert operators(weight(1, name="other")) == []


@pytest.mark.parametrize("mode", MODES)
def test_whole_numbers_carry_no_gradient(mode):
    w = weight(1.5, 2.5, 3.5)

    def step(x):
        floor = ops.Cast()(ops.Cast()(w, Tensor([1]).dtype), w.dtype)
        return gradients(floor * x + w, [w])

    assert step_of(step, mode)(X)[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("mode", MODES)
def test_gradients_may_be_asked_for_again_unless_they_were_the_last(mode):
    w = weight(1, 2, 3)

    def twice(x):
        y = w * x * w
        first = gradients(y, [w])[0]
        return first, gradients(first, [w])[0], gradients(y, [w], last=True)[0]  # 2wx, 2x, 2wx

    assert [a.tolist() for a in step_of(twice, mode)(X)] == [[2, 8, 18], [2, 4, 6], [2, 8, 18]]

    def too_late(x):
        y = w * x
        return gradients(y, [w], last=True)[0] + gradients(y, [w])[0]

    with pytest.raises(ConfigError, match="the record of this step was released") as caught:
        step_of(too_late, mode)(X)
    assert "last=True" in caught.value.rows["hint"]


def test_activations_die_as_soon_as_their_gradient_rule_has_run(monkeypatch):
    """When the rule of the k-th layer from the front runs, what the layers behind it made is gone."""
    w = weight(0.5, 0.25, 0.125)
    made, alive = [], []
    rule = ops.Tanh.grad

    def watching(self, inputs, outputs, douts):
        alive.append(sum(array() is not None for array in made))
        return rule(self, inputs, outputs, douts)

    monkeypatch.setattr(ops.Tanh, "grad", watching)

    def step(last):
        made.clear()
        alive.clear()
        value = w * Tensor(X)
        for _ in range(4):
            value = ops.Tanh()(value)
            made.append(weakref.ref(value.array))
        loss = ops.ReduceSum()(value)
        del value
        return gradients(loss, [w], last=last)[0].asnumpy()

    with Eager():
        kept = step(last=False)
    assert alive == [4, 4, 4, 4]
    with Eager():
        freed = step(last=True)
    assert alive == [4, 3, 2, 1]
    assert np.array_equal(kept, freed)


class Pool(nn.Cell):
    """A network of the user whose gradient needs the gradient of a gradient."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor(np.ones((1, 1, 4, 4), np.float32)))
        self.grad = ops.MaxPoolGrad(2, 2)

    def construct(self, x):
        out = ops.MaxPool(2, 2)(x)
        return gradients(self.grad(self.w * x, out, out), [self.w])


@pytest.mark.parametrize("mode", MODES)
def test_an_operator_without_gradient_is_named_with_its_place(mode):
    network = Pool()
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    with pytest.raises(NotDifferentiable) as caught:
        step_of(network.construct, mode)(image)
    assert caught.value.what == "MaxPoolGrad has no gradient"
    assert caught.value.rows["scope"] == "Default/MaxPoolGrad-op2"
    assert caught.value.exit_code == 2
    if mode == "graph":
        assert caught.value.rows["line"].endswith("  return gradients(self.grad(self.w * x, out, out), [self.w])")
        assert caught.value.rows["line"].startswith(f"{__file__}:")


def test_the_line_of_not_differentiable_is_the_users_and_not_that_of_a_layer(monkeypatch):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layer = nn.Tanh()
            self.w = Parameter(Tensor([1.0, 2.0, 3.0]))

        def construct(self, x):
            return gradients(self.layer(self.w * x), [self.w])

    def refuse(*_):
        raise NotDifferentiable("Tanh has no gradient")

    monkeypatch.setattr(ops.Tanh, "grad", refuse)
    with pytest.raises(NotDifferentiable) as caught:
        step_of(Net().construct, "graph")(X)
    assert caught.value.rows["line"].endswith("  return gradients(self.layer(self.w * x), [self.w])")
    assert caught.value.rows["scope"] == "Default/layer-Tanh/Tanh-op1"


@pytest.mark.parametrize("mode", MODES)
def test_the_factor_of_a_loss_of_several_elements_may_be_a_value(mode):
    """As a loss scale is, which is only known when the step runs."""
    weight = Parameter(np.array([1, 2, 3], np.float32), name="weight")

    def step(scale):
        return gradients(ops.Reshape((3, 1))(weight * weight), [weight], sens=scale)[0]

    (found,) = step_of(step, mode)(np.float32(0.5))
    assert found.tolist() == [1, 2, 3]
