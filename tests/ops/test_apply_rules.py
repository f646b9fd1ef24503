"""Update rules that assign parameters, against the rules in Float64; two steps, so that state counts."""

import numpy as np
import pytest
from both_modes import MODES, step_of
from operands import normal, positive
from tables import table

from runner import ops
from runner.core.values import Parameter, Tensor
from runner.errors import ShapeError

sign, sqrt = np.sign, np.sqrt


def proximal(p, rate, l1, l2):
    return sign(p) * np.maximum(np.abs(p) - rate * l1, 0) / (1 + rate * l2)


def rmsprop(var, square, moment, g):
    square = 0.9 * square + 0.1 * g * g
    moment = 0.8 * moment + 0.1 * g / sqrt(square + 0.01)
    return var - moment, square, moment


def centered(var, mean, square, moment, g):
    mean, square = 0.9 * mean + 0.1 * g, 0.9 * square + 0.1 * g * g
    moment = 0.8 * moment + 0.1 * g / sqrt(square - mean**2 + 5.0)
    return var - moment, mean, square, moment


def ftrl(var, accum, linear, g):
    new = accum + g * g
    linear = linear + g - (sqrt(new) - sqrt(accum)) / 0.1 * var
    kept = (sign(linear) * 0.05 - linear) / (sqrt(new) / 0.1 + 2 * 0.2)
    return np.where(np.abs(linear) > 0.05, kept, 0.0), new, linear


def adamax(var, m, v, g):
    m, v = 0.9 * m + 0.1 * g, np.maximum(0.99 * v, np.abs(g))
    return var - 0.1 / (1 - 0.9) * m / (v + 1e-3), m, v


def adadelta(var, accum, update, g):
    accum = 0.9 * accum + 0.1 * g * g
    step = sqrt(update + 0.01) / sqrt(accum + 0.01) * g
    return var - 0.5 * step, accum, 0.9 * update + 0.1 * step**2


def signs(var, m, g, factor):
    m = 0.9 * m + 0.1 * g
    return var - 0.1 * factor(sign(g) * sign(m)) * g, m


# Of each rule: the operator, how many parameters it has, its operands after them, and the rule.
RULES = {
    "ApplyGradientDescent": (ops.ApplyGradientDescent(), 1, lambda g: (0.1, g), lambda v, g: (v - 0.1 * g,)),
    "ApplyProximalGradientDescent": (
        ops.ApplyProximalGradientDescent(),
        1,
        lambda g: (0.1, 0.5, 0.2, g),
        lambda v, g: (proximal(v - 0.1 * g, 0.1, 0.5, 0.2),),
    ),
    "ApplyAdagrad": (
        ops.ApplyAdagrad(),
        2,
        lambda g: (0.1, g),
        lambda v, a, g: (v - 0.1 * g / sqrt(a + g * g), a + g * g),
    ),
    "ApplyAdagrad-slots": (
        ops.ApplyAdagrad(False),
        2,
        lambda g: (0.1, g),
        lambda v, a, g: (v - 0.1 * g / sqrt(a), a),
    ),
    "ApplyAdagradV2": (
        ops.ApplyAdagradV2(0.1),
        2,
        lambda g: (0.1, g),
        lambda v, a, g: (v - 0.1 * g / (sqrt(a + g * g) + 0.1), a + g * g),
    ),
    "ApplyProximalAdagrad": (
        ops.ApplyProximalAdagrad(),
        2,
        lambda g: (0.1, 0.5, 0.2, g),
        lambda v, a, g: (proximal(v - 0.1 * g / sqrt(a + g * g), 0.1 / sqrt(a + g * g), 0.5, 0.2), a + g * g),
    ),
    "ApplyRMSProp": (ops.ApplyRMSProp(), 3, lambda g: (0.1, g, 0.9, 0.8, 0.01), rmsprop),
    "ApplyCenteredRMSProp": (ops.ApplyCenteredRMSProp(), 4, lambda g: (g, 0.1, 0.9, 0.8, 5.0), centered),
    "ApplyFtrl": (ops.ApplyFtrl(), 3, lambda g: (g, 0.1, 0.05, 0.2, -0.5), ftrl),
    "ApplyAdaMax": (ops.ApplyAdaMax(), 3, lambda g: (0.9, 0.1, 0.9, 0.99, 1e-3, g), adamax),
    "ApplyAdadelta": (ops.ApplyAdadelta(), 3, lambda g: (0.5, 0.9, 0.01, g), adadelta),
    "ApplyAddSign": (
        ops.ApplyAddSign(),
        2,
        lambda g: (0.1, 1.0, 0.5, 0.9, g),
        lambda v, m, g: signs(v, m, g, lambda s: 1.0 + 0.5 * s),
    ),
    "ApplyPowerSign": (
        ops.ApplyPowerSign(),
        2,
        lambda g: (0.1, 2.0, 0.5, 0.9, g),
        lambda v, m, g: signs(v, m, g, lambda s: np.exp(2.0 * 0.5 * s)),
    ),
}


@table("mode", MODES)
@table("name", RULES)
def test_two_steps(name: str, mode: str):
    op, count, rest, rule = RULES[name]
    start, gradients = [normal(3, 4), *(positive(3, 4) for _ in range(count - 1))], [normal(3, 4), normal(3, 4)]
    parameters = [Parameter(Tensor(a), f"p{k}") for k, a in enumerate(start)]
    run = step_of(lambda g: op(*parameters, *rest(g)), mode)
    expected = tuple(a.astype(np.float64) for a in start)
    for gradient in gradients:
        results = run(gradient)
        expected = rule(*expected, gradient.astype(np.float64))
        for parameter, wanted in zip(parameters, expected, strict=True):
            rounding = 1e-6 * max(1.0, np.abs(wanted).max())  # differences of large numbers may be small
            assert np.allclose(parameter.asnumpy(), wanted, rtol=1e-5, atol=rounding)
        assert len(results) == (count if getattr(op, "returns_state", True) else 1)
        for result, parameter in zip(results, parameters, strict=False):
            assert np.array_equal(result, parameter.asnumpy())


def test_rules_of_tensors_outside_of_networks():
    var, square, moment = (Tensor(np.float32([value])) for value in (1.0, 2.0, 0.5))
    made = ops.ApplyRMSProp()(var, square, moment, 0.1, Tensor(np.float32([3.0])), 0.9, 0.8, 0.01)
    expected = rmsprop(1.0, 2.0, 0.5, 3.0)
    found = [x.asnumpy().item() for x in (var, square, moment)]
    assert np.allclose(found, expected, rtol=1e-6)
    assert made.asnumpy().item() == found[0]


@table("mode", MODES)
def test_rules_of_tensors_in_networks_are_errors(mode: str):
    x = np.float32([1.0])
    with pytest.raises(ShapeError, match="the first operand must be a Parameter"):
        step_of(lambda v, s, m, g: ops.ApplyRMSProp()(v, s, m, 0.1, g, 0.9, 0.8, 0.01), mode)(x, x, x, x)
