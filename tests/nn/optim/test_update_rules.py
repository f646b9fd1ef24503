"""Optimizers: several steps against the rules written out in float64, in both modes, and what they refuse."""

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from optimizer_steps import NAMES, START, STEPS, each_step, parameters, trained
from tables import table

from runner import nn
from runner.core.values import Parameter, Tensor
from runner.errors import ConfigError

# float32 against float64 over five steps; measured: 3e-7.
TOLERANCE = 2e-6


def prepared(name: str, w: np.ndarray, g: np.ndarray, decay: float, scale: float) -> np.ndarray:
    """Section 8.3: decay times loss scale times w, not for beta and gamma; then everything by the loss scale."""
    if "beta" not in name and "gamma" not in name:
        g = g + decay * scale * w
    return g / scale


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


@pytest.mark.parametrize("kind", [nn.Adam, nn.LazyAdam, nn.AdamOffload])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("decay", "scale", "nesterov"), [(0.0, 1.0, False), (0.1, 32.0, False), (0.0, 1.0, True), (0.1, 32.0, True)]
)
def test_adam(decay, scale, nesterov, mode, kind):
    made = trained(kind(parameters(), 0.01, 0.9, 0.999, 1e-8, False, nesterov, decay, scale), mode)
    for name in NAMES:
        w, m, v = START[name].astype(np.float64), np.zeros((2, 3)), np.zeros((2, 3))
        for t, g in enumerate(each_step(name), 1):
            g = prepared(name, w, g, decay, scale)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            step = 0.9 * m + 0.1 * g if nesterov else m
            w = w - 0.01 * (step / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        # 1 - 0.999^t has three digits less than float32, and a step is a hundredth of w.
        assert relative(made[name], w) < 1e-5
        assert relative(made[f"moment1.{name}"], m) < 5e-6  # with decay it contains w
        assert relative(made[f"moment2.{name}"], v) < 5e-5  # 1 - 0.999 in float32 is 2e-5 off
    assert relative(made["beta1_power"], np.float64(0.9**STEPS)) < TOLERANCE
    assert relative(made["beta2_power"], np.float64(0.999**STEPS)) < TOLERANCE


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_weight_decay(decay, mode):
    made = trained(nn.AdamWeightDecay(parameters(), 0.01, 0.9, 0.99, 1e-6, decay), mode)
    for name in NAMES:
        w, m, v = START[name].astype(np.float64), np.zeros((2, 3)), np.zeros((2, 3))
        for g in each_step(name):
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
            w = w - 0.01 * (m / (np.sqrt(v) + 1e-6) + decay * ("bn" not in name) * w)
        assert relative(made[name], w) < 1e-5
        assert relative(made[f"adam_m.{name}"], m) < TOLERANCE
        assert relative(made[f"adam_v.{name}"], v) < 5e-6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_lamb(rate, decay, mode):
    made = trained(nn.Lamb(parameters(), rate, 0.9, 0.99, 1e-6, decay), mode)
    for name in NAMES:
        w, m, v = START[name].astype(np.float64), np.zeros((2, 3)), np.zeros((2, 3))
        for t, g in enumerate(each_step(name), 1):
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
            mean, square = m / (1 - 0.9**t), v / (1 - 0.99**t)
            ratio = np.linalg.norm(w) / np.linalg.norm(mean / np.sqrt(square + 1e-6) + decay * w)
            w = w - rate * min(ratio, 10.0) * (mean / (np.sqrt(square) + 1e-6) + decay * ("bn" not in name) * w)
        assert relative(made[name], w) < 1e-5
        assert relative(made[f"lamb_m.{name}"], m) < TOLERANCE
        assert relative(made[f"lamb_v.{name}"], v) < 5e-6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("start", "gradient"), [(0.0, 0.5), (0.5, 0.0), (100.0, 0.5)])
def test_the_ratio_of_lamb_is_1_without_a_norm_and_at_most_10(start, gradient, mode):
    parameter = Parameter(np.full(4, start, np.float32), "w")
    optimizer = nn.Lamb([parameter], 0.1)

    def step(g):
        optimizer((g,))
        return g

    step_of(step, mode)(np.full(4, gradient, np.float32))
    ratio = 10.0 if start == 100.0 else 1.0
    expected = start - 0.1 * ratio * (1.0 if gradient else 0.0)  # the first step of Adam is the sign of the gradient
    assert np.allclose(parameter.asnumpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("decay", "momentum", "epsilon", "centered", "scale", "penalty"),
    [
        (0.9, 0.0, 1e-10, False, 1.0, 0.0),
        (0.8, 0.5, 1e-6, False, 4.0, 0.1),
        (0.8, 0.5, 1e-3, True, 1.0, 0.0),
        (0.9, 0.0, 1e-3, True, 4.0, 0.1),
    ],
)
def test_rmsprop(decay, momentum, epsilon, centered, scale, penalty, mode):
    made = trained(nn.RMSProp(parameters(), 0.01, decay, momentum, epsilon, False, centered, scale, penalty), mode)
    for name in NAMES:
        w, s, a, v = START[name].astype(np.float64), np.ones((2, 3)), np.zeros((2, 3)), np.zeros((2, 3))
        for g in each_step(name):
            g = prepared(name, w, g, penalty, scale)
            s, a = decay * s + (1 - decay) * g * g, decay * a + (1 - decay) * g
            v = momentum * v + 0.01 * g / np.sqrt(s - (a * a if centered else 0) + epsilon)
            w = w - v
        assert relative(made[name], w) < 1e-5
        assert relative(made[f"mean_square.{name}"], s) < TOLERANCE
        assert relative(made[f"moment.{name}"], v) < 1e-5
        assert (f"mean_grad.{name}" in made) == centered


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("penalty", "scale", "updates"), [(0.0, 1.0, True), (0.1, 4.0, True), (0.0, 1.0, False)])
def test_adagrad(penalty, scale, updates, mode):
    made = trained(nn.Adagrad(parameters(), 0.2, 0.05, updates, scale, penalty), mode)
    for name in NAMES:
        w, a = START[name].astype(np.float64), np.full((2, 3), 0.2)
        for g in each_step(name):
            g = prepared(name, w, g, penalty, scale)
            a = a + g * g if updates else a
            w = w - 0.05 * g / np.sqrt(a)
        assert relative(made[name], w) < TOLERANCE
        assert relative(made[f"accum.{name}"], a) < TOLERANCE


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("l1", "l2", "penalty"), [(0.0, 0.0, 0.1), (0.3, 0.0, 0.0), (0.0, 0.4, 0.0), (2.0, 0.4, 0.1)])
def test_proximal_adagrad(l1, l2, penalty, mode):
    made = trained(nn.ProximalAdagrad(parameters(), 0.2, 0.5, l1, l2, weight_decay=penalty), mode)
    for name in NAMES:
        w, a = START[name].astype(np.float64), np.full((2, 3), 0.2)
        for g in each_step(name):
            g = prepared(name, w, g, penalty, 1.0)
            a = a + g * g
            r = 0.5 / np.sqrt(a)
            w = w - r * g
            w = np.sign(w) * np.maximum(abs(w) - r * l1, 0) / (1 + r * l2)
        assert relative(made[name], w) < TOLERANCE
        assert relative(made[f"accum.{name}"], a) < TOLERANCE


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("power", "l1", "l2", "penalty"),
    [(-0.5, 0.0, 0.0, 0.0), (-0.7, 0.0, 0.0, 0.1), (-0.5, 0.8, 0.0, 0.0), (-0.5, 0.8, 0.2, 0.1), (0.0, 0.3, 0.1, 0.0)],
)
def test_ftrl(power, l1, l2, penalty, mode):
    made = trained(nn.FTRL(parameters(), 0.2, 0.05, power, l1, l2, False, 2.0, penalty), mode)
    for name in NAMES:
        w, n, z = START[name].astype(np.float64), np.full((2, 3), 0.2), np.zeros((2, 3))
        for g in each_step(name):
            g = g / 2.0 + penalty * w  # of all parameters, also gamma and beta
            old, n = n, n + g * g
            z = z + g - (n**-power - old**-power) / 0.05 * w
            w = np.where(abs(z) > l1, (np.sign(z) * l1 - z) / (n**-power / 0.05 + 2 * l2), 0.0)
        assert relative(made[name], w) < 1e-5
        assert relative(made[f"moments.{name}"], n) < 1e-5
        assert relative(made[f"linear.{name}"], z) < 1e-5


LIKE_MINDSPORE = {
    "rmsprop": lambda p: nn.RMSProp(p, 0.01, 0.8, 0.5, 1e-6, loss_scale=4.0, weight_decay=0.1),
    "rmsprop_centered": lambda p: nn.RMSProp(p, 0.01, 0.8, 0.5, 1e-3, centered=True),
    "adagrad": lambda p: nn.Adagrad(p, 0.2, 0.05, weight_decay=0.1, loss_scale=2.0),
    "proximal_adagrad": lambda p: nn.ProximalAdagrad(p, 0.2, 0.05, 0.3, 0.4, weight_decay=0.1),
    "ftrl": lambda p: nn.FTRL(p, 0.2, 0.05, lr_power=-0.7, l2=0.1, weight_decay=0.1),
    "adam_weight_decay": lambda p: nn.AdamWeightDecay(p, 0.01, weight_decay=0.1),
    "adam_nesterov": lambda p: nn.Adam(p, 0.01, use_nesterov=True, weight_decay=0.1, loss_scale=2.0),
    "lazy_adam": lambda p: nn.LazyAdam(p, 0.01, weight_decay=0.1),
    "groups": lambda p: nn.SGD(
        [{"params": p[1:], "lr": 0.5}, {"params": p[:1], "weight_decay": 0.01}, {"order_params": p}],
        *(0.1, 0.9),
        loss_scale=4.0,
        weight_decay=0.1,
    ),
    "lists of rates in groups": lambda p: nn.Momentum(
        [{"params": p[1:], "lr": [0.1, 0.2, 0.3, 0.4, 0.5]}, {"params": p[:1], "weight_decay": 0.05}],
        [0.5, 0.4, 0.3, 0.2, 0.1],
        0.9,
    ),
    "a schedule and a number": lambda p: nn.Momentum(
        [{"params": p[:1], "lr": nn.ExponentialDecayLR(0.5, 0.5, 2)}, {"params": p[1:]}], 0.25, 0.9
    ),
}
# Of MindSpore 2.10 on a CPU, PyNative mode: conv.weight[0, 0] after five steps. It has no Lamb there.
MINDSPORE = {
    "rmsprop": 0.018653836,
    "rmsprop_centered": -0.0116611,
    "adagrad": -0.051726956,
    "proximal_adagrad": -0.04313523,
    "ftrl": -0.07949674,
    "adam_weight_decay": -0.06328478,
    "adam_nesterov": 0.0137380995,
    "lazy_adam": 0.018926408,
    "groups": -0.10417723,
    "lists of rates in groups": -0.94051695,
    "a schedule and a number": -0.9095525,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MINDSPORE)
def test_the_numbers_of_mindspore(name, mode):
    made = trained(LIKE_MINDSPORE[name](parameters()), mode)
    assert abs(made["conv.weight"][0, 0] - MINDSPORE[name]) <= 3e-7 * abs(MINDSPORE[name])


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
        (
            lambda p: nn.Adam(p, 0.1, 0.9, 0.9, 0.1, 1e-4),
            "use_locking must be True or False\n  optimizer  Adam\n  given      0.0001",
        ),
        (lambda p: nn.AdamWeightDecay(p, beta2=1.5), "beta1 and beta2 must be below 1\n  beta1  0.9\n  beta2  1.5"),
        (
            lambda p: nn.RMSProp(p, epsilon=0),
            "epsilon must be a number above 0.0\n  optimizer  RMSProp\n  given      0",
        ),
        (
            lambda p: nn.Adagrad(p, -0.1),
            "accum must be a number of at least 0.0\n  optimizer  Adagrad\n  given      -0.1",
        ),
        (
            lambda p: nn.ProximalAdagrad(p, l1=-1),
            "l1 must be a number of at least 0.0\n  optimizer  ProximalAdagrad\n  given      -1",
        ),
        (
            lambda p: nn.FTRL(p, lr_power=0.5),
            "lr_power must be a number of at most 0\n  optimizer  FTRL\n  given      0.5",
        ),
        (
            lambda p: nn.FTRL(p, 0.1, 0.0),
            "learning_rate must be a number above 0.0\n  optimizer  FTRL\n  given      0.0",
        ),
        (
            lambda p: nn.FTRL(p, 0.1, [0.1, 0.2]),
            "FTRL needs a constant learning rate\n  schedule  PerStepLR(2 rates)",
        ),
        (lambda p: nn.Adam(p, eps=0.0), "eps must be a number above 0.0\n  optimizer  Adam\n  given      0.0"),
    ],
)
def test_arguments_that_make_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make(parameters())
    assert str(caught.value) == f"ConfigError: {text}"
