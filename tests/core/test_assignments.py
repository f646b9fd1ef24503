"""The order of assignments and reads in a step, which is the same in both modes."""

import numpy as np
import pytest
from both_modes import MODES, step_of

from runner import Parameter, Tensor, context, nn, ops
from runner.core.gradients import gradients
from runner.core.interpreter import current
from runner.errors import ConfigError, ShapeError

X = np.array([3.0], np.float32)


def parameter(*numbers, name="w"):
    return Parameter(Tensor(np.array(numbers, np.float32)), name)


@pytest.mark.parametrize("mode", MODES)
def test_reads_before_between_and_after(mode):
    w = parameter(2.0)

    def step(x):
        before = w * 1.0
        returned = ops.AssignAdd()(w, x)
        between = w * 1.0
        ops.AssignSub()(w, 1.0)
        ops.assign(w, w * 10.0)
        return before, returned, between, w * 1.0

    run = step_of(step, mode)
    assert [r.tolist() for r in run(X)] == [[2], [5], [5], [40]]
    assert w.asnumpy().tolist() == [40]
    assert [r.tolist() for r in run(X)] == [[40], [43], [43], [420]]


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_of_the_values_that_were_read(mode):
    """As in MindSpore 2.10: no gradient passes through an assignment, and w counts wherever it was read."""
    w = parameter(2.0)

    def function(x):
        product = w * x
        ops.Assign()(w, x * 3.0)
        return product * w

    def step(x):
        (of_x,), (of_w,) = ops.GradOperation(get_all=True, get_by_list=True)(function, [w])(x)
        return of_x, of_w, w * 1.0

    # w x w' with w' = 3 x as a value: d/dx = w w', d/dw = x w' + w x
    assert [r.tolist() for r in step_of(step, mode)(X)] == [[18], [27 + 6], [9]]


@pytest.mark.parametrize("mode", MODES)
def test_gradients_after_an_update_are_of_the_new_value(mode):
    w = parameter(2.0)

    def step(x):
        grad = ops.GradOperation(get_by_list=True)(lambda x: w * w * x, [w])
        (first,) = grad(x)
        ops.AssignSub()(w, first)
        (second,) = grad(x)
        return first, second

    assert [r.tolist() for r in step_of(step, mode)(X)] == [[12], [-60]]
    assert w.asnumpy().tolist() == [-10]


@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_after_an_assignment_uses_what_the_forward_pass_read(mode):
    v, w = parameter(2.0, name="v"), parameter(5.0)

    def step(x):
        y = v * w * x
        current().assign(w, x)
        return gradients(y, [v])

    assert step_of(step, mode)(X)[0].tolist() == [15]


@pytest.mark.parametrize("mode", MODES)
def test_a_step_that_raises_assigns_nothing(mode):
    w = parameter(2.0)

    def step(x):
        ops.AssignAdd()(w, x)
        raise ShapeError("here")

    with pytest.raises(ShapeError):
        step_of(step, mode)(X)
    assert w.asnumpy().tolist() == [2]


@pytest.mark.parametrize("mode", [context.PYNATIVE_MODE, context.GRAPH_MODE])
def test_outside_of_networks_an_assignment_takes_effect_at_once(mode):
    context.set_context(mode=mode)
    w, other = parameter(2.0), parameter(7.0, name="other")
    assert ops.AssignAdd()(w, Tensor([1.0])).asnumpy().tolist() == [3]
    assert w.asnumpy().tolist() == [3]
    ops.Assign()(w, other)
    ops.Assign()(other, 0.0)
    assert [w.asnumpy().tolist(), other.asnumpy().tolist()] == [[7], [0]]


def test_bad_assignments():
    w = parameter(2.0, 3.0)
    with pytest.raises(ShapeError, match="keeps the shape"):
        ops.AssignAdd()(w, Tensor(np.ones((2, 2), np.float32)))
    with pytest.raises(ShapeError, match="keeps the shape"):
        ops.Assign()(w, Tensor(np.ones(3, np.float32)))
    with pytest.raises(ConfigError, match="takes a Parameter"):
        ops.Assign()(Tensor([1.0]), 2.0)
    ops.Assign()(w, np.array([4, 5]))
    ops.Assign()(w, Tensor(np.array([4, 5], np.int64)))
    assert w.asnumpy().tolist() == [4, 5]


@pytest.mark.parametrize("mode", MODES)
def test_what_is_restored_is_the_value_at_the_mark(mode):
    w, condition = parameter(2.0), Tensor(np.array(False))

    def step(x, keep):
        ops.AssignAdd()(w, x)
        mark = current().mark()
        ops.AssignAdd()(w, x)
        current().restore_unless(keep, mark)
        return w * 1.0

    run = step_of(step, mode)
    assert run(X, condition.array)[0].tolist() == [5]
    assert run(X, np.array(True))[0].tolist() == [11]


@pytest.mark.parametrize("mode", [context.PYNATIVE_MODE, context.GRAPH_MODE])
def test_a_layer_that_is_used_twice_updates_its_statistics_twice(mode):
    context.set_context(mode=mode)

    class Twice(nn.Cell):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(1, momentum=0.5)

        def construct(self, x):
            return self.norm(x) + self.norm(x + 4.0)

    net = Twice()
    net.set_train()
    net(Tensor(np.array([[1.0], [3.0]], np.float32)))  # means 2 and 6
    assert net.norm.moving_mean.asnumpy().tolist() == [(0 + 2) / 2 / 2 + 6 / 2]
