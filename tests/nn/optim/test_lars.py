"""LARS over another optimizer, against the rule in float64, and against the example of MindSpore."""

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from optimizer_steps import NAMES, START, each_step, parameters, trained

from runner import nn
from runner.core.values import Parameter
from runner.errors import ConfigError
from runner.train.callback import LearningRateScheduler, RunContext
from runner.train.callback.base import CallbackParameters


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("decay", "scale", "clip", "coefficient"),
    [(0.0, 1.0, False, 0.001), (0.1, 8.0, False, 0.02), (0.1, 8.0, True, 0.02), (0.0, 1.0, True, 2.0)],
)
def test_the_rule(decay, scale, clip, coefficient, mode):
    """A ratio of lengths scales gradients and weight decay; `bn.gamma` is filtered out, so it is not decayed either."""
    inner = nn.Momentum(parameters(), 0.1, 0.9, decay, scale)
    optimizer = nn.LARS(inner, 1e-5, coefficient, clip, lambda p: "gamma" not in p.name)
    made = trained(optimizer, mode)
    for name in NAMES:
        w, v = START[name].astype(np.float64), np.zeros((2, 3))
        own = decay if name == "conv.weight" else 0.0
        for g in each_step(name):
            g = g / scale
            if "gamma" not in name:
                size = np.linalg.norm(w)
                ratio = coefficient * size / (np.linalg.norm(g) + own * size + 1e-5)
                g = (min(ratio / 0.1, 1.0) if clip else ratio) * (g + own * w)
            v = 0.9 * v + g
            w = w - 0.1 * v
        assert relative(made[name], w) < 2e-6
        assert relative(made[f"moments.{name}"], v) < 5e-6


@pytest.mark.parametrize("mode", MODES)
def test_the_example_of_the_reference(mode):
    """Its documentation of LARSUpdate prints these numbers."""
    weight = np.array([[0.5, 0.8, 0.2], [0.6, 0.4, 0.2]], np.float32)
    gradient = np.array([[0.4, 0.4, 0.5], [0.2, 0.4, 0.3]], np.float32)
    parameter = Parameter(weight, "w")
    optimizer = nn.LARS(nn.SGD([parameter], 1.0))

    def step(g):
        optimizer((g,))
        return g

    step_of(step, mode)(gradient)
    expected = [[0.0005265, 0.0005265, 0.00065813], [0.00026325, 0.0005265, 0.00039488]]
    assert np.allclose(weight - parameter.asnumpy(), expected, atol=6e-8)  # one step of a float32 below 1


def test_rates_state_and_groups_are_those_of_the_other():
    p = parameters()
    inner = nn.SGD([{"params": p[:1], "lr": [0.5, 0.25]}, {"params": p[1:]}], 0.1, loss_scale=4.0)
    optimizer = nn.LARS(inner)
    assert optimizer.parameters == inner.parameters
    assert optimizer.get_parameters() == inner.get_parameters()
    assert (optimizer.loss_scale, optimizer.is_group_lr, optimizer.dynamic_lr) == (4.0, True, True)
    assert optimizer.rates == inner.rates
    assert optimizer.schedule is inner.schedule
    assert optimizer.get_lr_parameter(p[2]) is inner.get_lr_parameter(p[2])
    run_context = RunContext(CallbackParameters(optimizer=optimizer))
    with pytest.raises(ConfigError, match="LearningRateScheduler needs a rate that it can set"):
        LearningRateScheduler(lambda rate, step: rate).begin(run_context)


@pytest.mark.parametrize("wrong", [nn.Adam, nn.LazyAdam, nn.AdamWeightDecay, lambda p: nn.Lamb(p, 0.1)])
def test_what_it_cannot_wrap(wrong):
    with pytest.raises(ConfigError, match="LARS cannot wrap it"):
        nn.LARS(wrong(parameters()))
    with pytest.raises(ConfigError, match="LARS cannot wrap it"):
        nn.LARS(parameters())
