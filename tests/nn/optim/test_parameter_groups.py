"""Parameter groups: rates, weight decay and centralization of a group, their order, and groups that are refused."""

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from optimizer_steps import NAMES, START, each_step, parameters, trained
from tables import table

from runner import Model, context, nn, set_seed
from runner.core.values import Parameter, Tensor
from runner.dataset import open_dataset
from runner.device import Device
from runner.errors import ConfigError
from runner.train.callback import LearningRateScheduler


def groups(p, **settings):
    """The first parameter in a group with these settings, and the others without any."""
    return [{"params": p[:1], **settings}, {"params": p[1:]}]


KINDS = {
    "momentum": lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.01, loss_scale=4.0),
    "sgd": lambda p: nn.SGD(p, 0.1, 0.9, weight_decay=0.01, loss_scale=4.0),
    "adam": lambda p: nn.Adam(p, 0.1, weight_decay=0.01, loss_scale=4.0),
    "adam_weight_decay": lambda p: nn.AdamWeightDecay(p, 0.1, weight_decay=0.01),
    "lamb": lambda p: nn.Lamb(p, 0.1, weight_decay=0.01),
    "rmsprop": lambda p: nn.RMSProp(p, 0.1, weight_decay=0.01, loss_scale=4.0),
    "adagrad": lambda p: nn.Adagrad(p, 0.1, 0.1, weight_decay=0.01, loss_scale=4.0),
    "proximal_adagrad": lambda p: nn.ProximalAdagrad(p, 0.1, 0.1, 0.1, 0.1, weight_decay=0.01, loss_scale=4.0),
    "ftrl": lambda p: nn.FTRL(p, 0.1, 0.1, weight_decay=0.01, loss_scale=4.0),
    "lars": lambda p: nn.LARS(nn.Momentum(p, 0.1, 0.9, weight_decay=0.01, loss_scale=4.0)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_trained_as_alone_with_its_settings(kind, mode):
    """Oracle: one optimizer for each group, whose arguments are those of the group."""
    made = trained(KINDS[kind](groups(parameters(), lr=0.3, weight_decay=0.2)), mode)
    alone = {"lr": 0.3, "weight_decay": 0.2}, {"lr": 0.1, "weight_decay": 0.01}
    for settings, chosen in zip(alone, (slice(0, 1), slice(1, 3)), strict=True):
        own = KINDS[kind]([{"params": parameters()[chosen], **settings}])
        by_itself = trained(own, mode)
        for name in NAMES[chosen]:
            assert made[name].tobytes() == by_itself[name].tobytes(), name


@pytest.mark.parametrize("mode", MODES)
def test_momentum_by_the_rule(mode):
    """In groups with weight decay also gamma and beta are decayed; a group with 0 is not."""
    p = parameters()
    given = [{"params": p[1:], "lr": 0.5}, {"params": p[:1], "weight_decay": 0.0}, {"order_params": p}]
    optimizer = nn.Momentum(given, 0.1, 0.9, 0.2, 8.0)
    made = trained(optimizer, mode)
    assert [parameter.name for parameter in optimizer.parameters] == list(NAMES)
    for name in NAMES:
        rate, decay = (0.5, 0.2) if name != NAMES[0] else (0.1, 0.0)
        w, v = START[name].astype(np.float64), np.zeros((2, 3))
        for g in each_step(name):
            v = 0.9 * v + (g + decay * 8.0 * w) / 8.0
            w = w - rate * v
        assert relative(made[name], w) < 2e-6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(3, 16), (3, 16, 2, 2), (3, 5), (16,), ()])
def test_centralized_gradients(shape, mode):
    """Less their mean over all axes but the first, where the second axis is a multiple of 16 long."""
    rng = np.random.default_rng(1)
    w, g = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    other = Parameter(w, "other")
    parameter = Parameter(w, "w")
    optimizer = nn.SGD([{"params": [parameter], "grad_centralization": True}, {"params": [other]}], 1.0)

    def step(gradient):
        optimizer((gradient, gradient))
        return gradient

    step_of(step, mode)(g)
    mean = g.mean(axis=tuple(range(1, g.ndim)), keepdims=True) if shape[1:2] == (16,) else 0
    assert np.allclose(parameter.asnumpy(), w - (g - mean), atol=1e-6)
    assert np.allclose(other.asnumpy(), w - g, atol=1e-6)


def test_attributes_of_the_reference():
    p = parameters()
    plain = nn.Momentum(p, 0.1, 0.9, weight_decay=0.5, loss_scale=4.0)
    assert (plain.is_group, plain.is_group_lr, plain.dynamic_lr, plain.exec_weight_decay) == (False, False, False, True)
    assert (plain.weight_decay, plain.decay_flags, plain.global_step) == (2.0, (True, False, False), None)
    assert plain.weight_decay_tensor.asnumpy() == 2.0
    assert plain.get_lr() is plain.learning_rate
    grouped = nn.Momentum(groups(p, lr=[0.5, 0.25], weight_decay=0.0), 0.1, 0.9, weight_decay=0.5, loss_scale=4.0)
    assert (grouped.is_group, grouped.is_group_lr, grouped.dynamic_lr) == (True, True, True)
    assert grouped.is_group_params_ordered is False
    assert (grouped.weight_decay, grouped.decay_flags) == ((0.0, 2.0, 2.0), (False, True, True))
    assert [rate.name for rate in grouped.get_lr()] == ["learning_rate_group_0", "learning_rate", "learning_rate"]
    assert grouped.parameters == tuple(p)
    assert (grouped.need_scale, grouped.reciprocal_scale.asnumpy(), grouped.param_length) == (True, 0.25, 3)
    names = {parameter.name for parameter in grouped.get_parameters()}
    assert names == {
        *("learning_rate", "learning_rate_group_0", "global_step"),
        *(f"moments.{name}" for name in NAMES),
    }


def test_the_rate_of_a_parameter():
    p = parameters()
    schedule = nn.ExponentialDecayLR(0.5, 0.5, 2)
    three = [{"params": p[:1], "lr": 0.5}, {"params": p[1:2], "lr": [0.5, 0.25]}, {"params": p[2:], "lr": schedule}]
    optimizer = nn.SGD(three, 0.1)
    assert optimizer.get_lr_parameter(p[0]).asnumpy() == np.float32(0.5)
    every, last = optimizer.get_lr_parameter(p[1:])
    assert every.asnumpy().tolist() == [0.5, 0.25]
    assert last is schedule
    assert [parameter.name for parameter in optimizer.rates] == [f"learning_rate_group_{k}" for k in range(3)]
    with pytest.raises(ConfigError, match="the optimizer has no such parameter"):
        optimizer.get_lr_parameter(Parameter(np.zeros(1, np.float32), "x"))


def test_both_orders_of_rate_and_parameters():
    class Own(nn.Optimizer):
        pass

    p = parameters()
    for made in (Own(0.5, p), Own(p, 0.5), Own(learning_rate=0.5, parameters=p), Own([0.5, 0.1], groups(p))):
        assert made.parameters == tuple(p)
        assert (made.learning_rate.asnumpy(), made.weight_decay) in ((0.5, 0.0), (0.5, (0.0,) * 3))


def test_what_only_sparse_gradients_need():
    optimizer = nn.LazyAdam(parameters())
    assert (optimizer.unique, optimizer.target) == (True, "CPU")
    optimizer.unique, optimizer.target = False, "Ascend"
    assert (optimizer.unique, optimizer.target) == (False, "Ascend")
    with pytest.raises(ConfigError, match="unique must be True or False"):
        optimizer.unique = 1
    with pytest.raises(ConfigError, match="target is not one of the choices"):
        optimizer.target = "TPU"
    with pytest.raises(ConfigError, match="there is no parallel optimizer"):
        optimizer.broadcast_params(True)


W = Parameter(np.zeros(2, np.float32), "w")
V = Parameter(np.zeros(2, np.float32), "v")


@table(
    ("given", "text"),
    [
        ([{"params": [W], "rate": 0.1}], "a parameter group has no such key\n  optimizer  SGD\n  group      0"),
        ([{"lr": 0.1}], "a parameter group needs the key params\n  optimizer  SGD\n  group      0\n  given      lr"),
        ([{"params": [W]}, {"params": []}], "a parameter group needs parameters\n  optimizer  SGD\n  group      1"),
        ([{"params": [W]}, V], "parameters are all in groups, or none is\n  optimizer  SGD\n  group      1"),
        ([{"params": W}], "params must be a list of parameters\n  optimizer  SGD\n  group      0"),
        ([{"params": [Tensor(1.0)]}], "an optimizer takes parameters, or dicts with the key params\n  optimizer  SGD"),
        ([1.0], "an optimizer takes parameters, or dicts with the key params\n  optimizer  SGD\n  given      float"),
        ([{"params": [W]}, {"params": [V, W]}], "a parameter is in two groups\n  optimizer  SGD\n  parameter  w"),
        ([{"order_params": [W]}], "an optimizer needs parameters\n  optimizer  SGD"),
        (
            [{"params": [W, V]}, {"order_params": [W]}],
            "order_params has every parameter of the groups once\n  optimizer     SGD\n  order params  1\n"
            "  in groups     2\n  other         v",
        ),
        (
            [{"params": [W]}, {"order_params": [W], "lr": 0.1}],
            "order_params is the only key of its dict\n  optimizer  SGD\n  group      1\n  given      order_params, lr",
        ),
        (
            [{"params": [W], "weight_decay": -1}],
            "weight_decay must be a number of at least 0.0\n  optimizer  SGD\n  group      0\n  given      -1",
        ),
        (
            [{"params": [W], "grad_centralization": 1}],
            "grad_centralization must be True or False\n  optimizer  SGD\n  group      0\n  given      1",
        ),
        (
            [{"params": [W], "lr": "fast"}],
            "learning_rate must be a number of at least 0.0\n  optimizer  SGD\n  given      'fast'",
        ),
    ],
)
def test_groups_that_make_no_sense(given, text):
    with pytest.raises(ConfigError) as caught:
        nn.SGD(given)
    assert str(caught.value).startswith(f"ConfigError: {text}")


# Trainings


def model_with(rates, mode=context.GRAPH_MODE, make=nn.Momentum):
    set_seed(5)
    net = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 16), nn.ReLU(), nn.Dense(16, 10))
    weights = [p for p in net.trainable_params() if "weight" in p.name]
    others = [p for p in net.trainable_params() if "weight" not in p.name]
    own, shared = rates
    given = [{"params": weights, "lr": own, "weight_decay": 1e-3}, {"params": others}]
    given.append({"order_params": net.trainable_params()})
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    more = (0.9,) if make is nn.Momentum else ()
    return Model(net, loss, make(given, shared, *more), mode=mode, device=Device(threads=1))


def bytes_of(model):
    return {p.name: p.asnumpy().tobytes() for p in model.train_network.get_parameters()}


def digits():
    return open_dataset(image_size=8, num_samples=320, train=True)  # ten batches


RATES = {
    "numbers": lambda: (0.05, 0.1),
    "a schedule and a number": lambda: (nn.ExponentialDecayLR(0.1, 0.9, 3), 0.1),
    "two schedules": lambda: (nn.WarmUpLR(0.1, 10), [0.1, 0.05, 0.2, 0.01]),
}


@pytest.mark.parametrize("make", [nn.Momentum, nn.Lamb, nn.Adagrad])
@pytest.mark.parametrize("name", RATES)
def test_sunk_unsunk_and_continued_make_the_same_steps(name, make):
    if make is nn.Adagrad:
        make = lambda p, rate: nn.Adagrad(p, 0.1, rate)  # noqa: E731  its second argument is another one
    unsunk = model_with(RATES[name](), make=make)
    unsunk.train(99, digits(), (), False, max_steps=24)
    assert len(unsunk.programs) == 1
    for sink_size in (-1, 1, 7, 24):
        sunk = model_with(RATES[name](), make=make)
        sunk.train(99, digits(), (), True, sink_size, max_steps=24)
        assert bytes_of(sunk) == bytes_of(unsunk), sink_size
    pynative = model_with(RATES[name](), context.PYNATIVE_MODE, make)
    pynative.train(99, digits(), (), False, max_steps=24)
    for parameter, other in zip(
        unsunk.train_network.get_parameters(), pynative.train_network.get_parameters(), strict=True
    ):
        assert np.allclose(parameter.asnumpy(), other.asnumpy(), rtol=2e-3, atol=2e-5), parameter.name


def test_a_callback_sets_the_rate_of_each_group():
    model = model_with((0.5, 0.25))
    model.train(1, digits(), LearningRateScheduler(lambda rate, step: rate * 0.5), False, max_steps=2)
    assert [float(rate.asnumpy()) for rate in model.optimizer.rates] == [0.125, 0.0625]
