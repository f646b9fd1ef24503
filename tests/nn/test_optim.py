"""Optimizers: several steps against the rules written out in float64, in both modes, and what they refuse."""

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from tables import table

from runner import nn
from runner.core.value import Parameter, Tensor
from runner.errors import ConfigError

STEPS = 5
NAMES = "conv.weight", "bn.gamma", "bn.beta"
RNG = np.random.default_rng(11)
START = {name: RNG.normal(size=(2, 3)).astype(np.float32) for name in NAMES}
GRADIENTS = [{name: RNG.normal(size=(2, 3)).astype(np.float32) for name in NAMES} for _ in range(STEPS)]
# float32 against float64 over five steps; measured: 3e-7.
TOLERANCE = 2e-6


def parameters() -> list[Parameter]:
    return [Parameter(START[name], name) for name in NAMES]


def trained(optimizer: nn.Optimizer, mode: str) -> dict[str, np.ndarray]:
    """Parameters and state after five steps with the gradients above."""

    def step(*gradients):
        optimizer(gradients)
        return gradients[0]

    run = step_of(step, mode)
    for gradients in GRADIENTS:
        run(*gradients.values())
    named = {p.name: p for p in (*optimizer.parameters, *optimizer.get_parameters())}
    return {name: parameter.asnumpy() for name, parameter in named.items()}


def prepared(name: str, w: np.ndarray, g: np.ndarray, decay: float, scale: float) -> np.ndarray:
    """Section 8.3: decay times loss scale times w, not for beta and gamma; then everything by the loss scale."""
    if "beta" not in name and "gamma" not in name:
        g = g + decay * scale * w
    return g / scale


def each_step(name: str):
    """The gradients of a parameter in float64."""
    return [gradients[name].astype(np.float64) for gradients in GRADIENTS]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("decay", "scale", "nesterov"),
    [(0.0, 1.0, False), (0.1, 1.0, False), (0.0, 128.0, False), (0.1, 128.0, True), (0.0, 1.0, True)],
)
def test_momentum(decay, scale, nesterov, mode):
    made = trained(nn.Momentum(parameters(), 0.1, 0.9, decay, scale, nesterov), mode)
    for name in NAMES:
        w, v = START[name].astype(np.float64), np.zeros((2, 3))
        for g in each_step(name):
            g = prepared(name, w, g, decay, scale)
            v = 0.9 * v + g
            w = w - 0.1 * (g + 0.9 * v if nesterov else v)
        assert relative(made[name], w) < TOLERANCE
        assert relative(made[f"moments.{name}"], v) < TOLERANCE


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("momentum", "dampening", "decay", "nesterov", "scale"),
    [
        (0.0, 0.0, 0.0, False, 1.0),
        (0.9, 0.0, 0.0, False, 1.0),
        (0.9, 0.5, 0.0, False, 1.0),
        (0.9, 0.0, 0.1, True, 1.0),
        (0.9, 0.5, 0.1, False, 64.0),
    ],
)
def test_sgd(momentum, dampening, decay, nesterov, scale, mode):
    made = trained(nn.SGD(parameters(), 0.1, momentum, dampening, decay, nesterov, scale), mode)
    for name in NAMES:
        w, v = START[name].astype(np.float64), None
        for g in each_step(name):
            g = prepared(name, w, g, decay, scale)
            v = g if v is None else momentum * v + (1 - dampening) * g
            w = w - 0.1 * (g + momentum * v if nesterov else v)
        assert relative(made[name], w) < TOLERANCE
        assert relative(made[f"accum.{name}"], v) < TOLERANCE
        assert made[f"stat.{name}"] == STEPS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("decay", "scale"), [(0.0, 1.0), (0.1, 32.0)])
def test_adam(decay, scale, mode):
    made = trained(nn.Adam(parameters(), 0.01, 0.9, 0.999, 1e-8, weight_decay=decay, loss_scale=scale), mode)
    for name in NAMES:
        w, m, v = START[name].astype(np.float64), np.zeros((2, 3)), np.zeros((2, 3))
        for t, g in enumerate(each_step(name), 1):
            g = prepared(name, w, g, decay, scale)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            w = w - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        # 1 - 0.999^t has three digits less than float32, and a step is a hundredth of w.
        assert relative(made[name], w) < 1e-5
        assert relative(made[f"moment1.{name}"], m) < TOLERANCE
        assert relative(made[f"moment2.{name}"], v) < 5e-5  # 1 - 0.999 in float32 is 2e-5 off
    assert relative(made["beta1_power"], np.float64(0.9**STEPS)) < TOLERANCE
    assert relative(made["beta2_power"], np.float64(0.999**STEPS)) < TOLERANCE


def test_names_of_the_state():
    assert [p.name for p in nn.Momentum(parameters(), 0.1, 0.9).get_parameters()] == [
        "learning_rate",
        *(f"moments.{name}" for name in NAMES),
    ]
    assert {p.name for p in nn.SGD(parameters()).get_parameters()} == {
        "learning_rate",
        *(f"{kind}.{name}" for kind in ("accum", "stat") for name in NAMES),
    }
    assert {p.name for p in nn.Adam(parameters()).get_parameters()} == {
        "learning_rate",
        "beta1_power",
        "beta2_power",
        *(f"{kind}.{name}" for kind in ("moment1", "moment2") for name in NAMES),
    }


def test_no_state_is_trainable():
    for optimizer in (nn.Momentum(parameters(), 0.1, 0.9), nn.SGD(parameters()), nn.Adam(parameters())):
        assert optimizer.trainable_params() == []
        assert [p.name for p in optimizer.parameters] == list(NAMES)


@pytest.mark.parametrize("mode", MODES)
def test_the_learning_rate_can_change_between_two_steps(mode):
    parameter = Parameter(Tensor([1.0]), "w")
    optimizer = nn.SGD([parameter], 0.5)

    def step(g):
        optimizer((g,))
        return g

    run, g = step_of(step, mode), np.array([1.0], np.float32)
    run(g)
    assert parameter.asnumpy().tolist() == [0.5]
    optimizer.learning_rate.set_data(np.float32(0.25))
    run(g)
    assert parameter.asnumpy().tolist() == [0.25]


@table(
    ("make", "text"),
    [
        (lambda p: nn.Momentum([], 0.1, 0.9), "an optimizer needs parameters\n  optimizer  Momentum"),
        (
            lambda p: nn.Momentum(p, -0.1, 0.9),
            "learning_rate must be a number of at least 0.0\n  optimizer  Momentum\n  given      -0.1",
        ),
        (
            lambda p: nn.Momentum(p, 0.1, -1.0),
            "momentum must be a number of at least 0.0\n  optimizer  Momentum\n  given      -1.0",
        ),
        (
            lambda p: nn.Momentum(p, 0.1, True),
            "momentum must be a number of at least 0.0\n  optimizer  Momentum\n  given      True",
        ),
        (
            lambda p: nn.Momentum(p, float("nan"), 0.9),
            "learning_rate must be a number of at least 0.0\n  optimizer  Momentum\n  given      nan",
        ),
        (
            lambda p: nn.Momentum(p, "0.1", 0.9),
            "learning_rate must be a number of at least 0.0\n  optimizer  Momentum\n  given      '0.1'",
        ),
        (
            lambda p: nn.Momentum(p, 0.1, 0.9, loss_scale=0.0),
            "loss_scale must be a number above 0.0\n  optimizer  Momentum\n  given      0.0",
        ),
        (
            lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=-1e-4),
            "weight_decay must be a number of at least 0.0\n  optimizer  Momentum\n  given      -0.0001",
        ),
        (
            lambda p: nn.SGD(p, nesterov=True),
            "Nesterov needs momentum above 0 and dampening 0\n  momentum   0.0\n  dampening  0.0",
        ),
        (
            lambda p: nn.SGD(p, momentum=0.9, dampening=0.1, nesterov=True),
            "Nesterov needs momentum above 0 and dampening 0\n  momentum   0.9\n  dampening  0.1",
        ),
        (
            lambda p: nn.Adam(p, beta1=1.0),
            "beta1 and beta2 must be below 1\n  beta1  1.0\n  beta2  0.999",
        ),
        (lambda p: nn.Adam(p, eps=0.0), "eps must be a number above 0.0\n  optimizer  Adam\n  given      0.0"),
    ],
)
def test_arguments_that_make_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make(parameters())
    assert str(caught.value) == f"ConfigError: {text}"
