"""A schedule sets the rate of every step: the same one sunk, unsunk, in PyNative mode and in a run that goes on."""

import numpy as np
import pytest

from runner import Model, context, nn, set_seed
from runner.core.values import Parameter, Tensor
from runner.dataset import NumpySlicesDataset, open_dataset
from runner.device import Device
from runner.errors import ConfigError
from runner.train.callback import Callback
from runner.train.sink import Sink

STEPS = 24
SCHEDULES = {
    "exponential": lambda: nn.ExponentialDecayLR(0.1, 0.9, 3),
    "exponential stair": lambda: nn.ExponentialDecayLR(0.1, 0.9, 3, True),
    "natural": lambda: nn.NaturalExpDecayLR(0.1, 0.05, 4),
    "inverse": lambda: nn.InverseDecayLR(0.1, 0.5, 4),
    "cosine": lambda: nn.CosineDecayLR(0.001, 0.1, 20),
    "polynomial": lambda: nn.PolynomialDecayLR(0.1, 0.01, 7, 0.5),
    "polynomial again": lambda: nn.PolynomialDecayLR(0.1, 0.01, 7, 2.0, True),
    "warm-up": lambda: nn.WarmUpLR(0.1, 10),
    "step": lambda: nn.StepLR(0.1, 0.5, 5),
    "piecewise": lambda: nn.PiecewiseConstantLR([3, 9], [0.1, 0.02]),
    "list": lambda: [0.1, 0.05, 0.2, 0.01],
    "array": lambda: np.linspace(0.1, 0.01, STEPS),
    "warm-up, then cosine": lambda: nn.WarmUpThen(5, nn.CosineDecayLR(0.0, 0.1, 15)),
}
BOTH = context.GRAPH_MODE, context.PYNATIVE_MODE


class Rates(Callback):
    """Keeps the learning rate after every event."""

    def __init__(self):
        self.seen = []

    def step_end(self, run_context):
        self.seen.append(run_context.original_args().optimizer.learning_rate.asnumpy().item())


def digits():
    return open_dataset(image_size=8, num_samples=320, train=True)  # ten batches


def model_with(rate, mode=context.GRAPH_MODE, optimizer=nn.Momentum):
    set_seed(5)
    net = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 10, weight_init="he_uniform"))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    more = (0.9,) if optimizer is nn.Momentum else ()
    return Model(net, loss, optimizer(net.trainable_params(), rate, *more), mode=mode, device=Device(threads=1))


def values(model):
    return {p.name: p.asnumpy() for p in model.train_network.get_parameters()}


def bytes_of(model):
    return {name: value.tobytes() for name, value in values(model).items()}


def train(rate, sunk, sink_size=-1, mode=context.GRAPH_MODE, optimizer=nn.Momentum):
    model, seen = model_with(rate, mode, optimizer), Rates()
    model.train(99, digits(), seen, sunk, sink_size, max_steps=STEPS)
    return model, seen.seen


@pytest.mark.parametrize("name", SCHEDULES)
def test_sunk_unsunk_and_pynative_make_the_same_steps(name):
    make = SCHEDULES[name]
    unsunk, seen = train(make(), False)
    schedule = unsunk.optimizer.schedule
    expected = [float(np.float32(schedule(step))) for step in range(STEPS)]
    assert seen == expected
    assert len(unsunk.programs) == 1  # a rate is an input: nothing is compiled twice
    for sink_size in (-1, 1, 5, 7, STEPS):
        sunk, rates = train(make(), True, sink_size)
        assert bytes_of(sunk) == bytes_of(unsunk), sink_size
        assert rates[-1] == expected[-1]
        assert len(sunk.programs) == 1
    pynative, rates = train(make(), False, mode=context.PYNATIVE_MODE)
    assert rates == expected
    for parameter, value in values(pynative).items():
        np.testing.assert_allclose(value, values(unsunk)[parameter], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", [nn.SGD, nn.Adam])
def test_every_optimizer_follows_a_schedule(optimizer):
    make = SCHEDULES["warm-up, then cosine"]
    assert bytes_of(train(make(), True, 7, optimizer=optimizer)[0]) == bytes_of(
        train(make(), False, optimizer=optimizer)[0]
    )


@pytest.mark.parametrize("mode", BOTH)
def test_a_schedule_changes_what_is_learnt(mode):
    rate = SCHEDULES["exponential"]
    constant, decayed = (values(train(r, False, mode=mode)[0])["1.weight"] for r in (0.1, rate()))
    assert not np.allclose(constant, decayed, rtol=1e-2)


@pytest.mark.parametrize(("sunk", "mode"), [(True, context.GRAPH_MODE), (False, context.GRAPH_MODE), (False, 1)])
@pytest.mark.parametrize("first", [1, 9, 10, 17])
def test_a_run_that_goes_on_has_the_rates_that_were_left(sunk, mode, first):
    make = SCHEDULES["warm-up, then cosine"]
    expected, _ = train(make(), sunk, 4, mode)
    begun = model_with(make(), mode)
    begun.train(99, digits(), None, sunk, 4, max_steps=first)
    resumed = model_with(make(), mode)
    for parameter in resumed.train_network.get_parameters():  # what a checkpoint holds
        parameter.set_data(values(begun)[parameter.name])
    resumed.train(99, digits(), None, sunk, 4, max_steps=STEPS, first_step=first)
    assert bytes_of(resumed) == bytes_of(expected)


def test_a_sink_that_is_rewound_goes_on_with_the_global_step():
    expected, _ = train(SCHEDULES["cosine"](), True, STEPS)
    model = model_with(SCHEDULES["cosine"]())
    first, second = (Sink(model.train_network, model.device, digits()) for _ in range(2))
    first(11)
    second.rewind(11)
    second(STEPS - 11)
    assert bytes_of(model) == bytes_of(expected)
    assert model.optimizer.global_step.asnumpy().tolist() == [STEPS]


@pytest.mark.parametrize("mode", BOTH)
def test_a_second_training_goes_on_in_the_schedule(mode):
    """As in MindSpore: `for ...: model.train(1, ...); model.eval(...)` is one decay, not many."""
    model, seen = model_with(nn.ExponentialDecayLR(1.0, 0.5, 10), mode), Rates()
    for _ in range(3):
        model.train(1, digits(), seen, dataset_sink_mode=mode == context.GRAPH_MODE)
    assert seen.seen[-1] == np.float32(0.5**2.9)


@pytest.mark.parametrize("mode", BOTH)
def test_a_training_cell_that_is_called_directly_follows_its_schedule(mode):
    context.set_context(mode=mode)
    parameter = Parameter(Tensor([1.0]), "w")
    optimizer = nn.SGD([parameter], [0.5, 0.25, 0.125])

    class Step(nn.Cell):
        def __init__(self):
            super().__init__(auto_prefix=False)
            self.optimizer = optimizer

        def construct(self, gradient):
            self.optimizer((gradient,))
            return gradient

    step, seen = Step(), []
    for _ in range(4):
        step(np.ones(1, np.float32))
        seen.append(parameter.asnumpy().item())
    assert seen == [0.5, 0.25, 0.125, 0.0]


@pytest.mark.parametrize("mode", BOTH)
def test_a_step_that_fails_keeps_its_turn(mode):
    model = model_with([0.1, 0.2], mode)
    broken = NumpySlicesDataset((np.zeros((4, 3), np.float32), np.zeros(4, np.int32)), ["image", "label"]).batch(4)
    with pytest.raises(ConfigError):
        model.train(1, broken, None, False)
    assert model.optimizer.global_step.asnumpy().tolist() == [0]


def test_a_constant_rate_has_no_global_step():
    for rate in (0.1, 1, np.float32(0.1), Tensor(0.1), np.array(0.1)):
        optimizer = model_with(rate).optimizer
        assert optimizer.schedule is None
        assert "global_step" not in optimizer.parameters_dict()
        assert optimizer.learning_rate.asnumpy() == np.float32(rate)


def test_a_schedule_outside_of_what_is_possible_ends_the_run():
    class Falling(nn.LearningRateSchedule):
        def construct(self, global_step):
            return 0.1 - 0.04 * global_step

    model = model_with(Falling())
    with pytest.raises(ConfigError) as caught:
        model.train(1, digits(), None, False)
    assert str(caught.value) == (
        "ConfigError: a learning rate must be a finite number of at least 0\n"
        "  schedule  Falling()\n"
        "  step      3\n"
        "  given     -0.01999999999999999"
    )


def test_a_step_may_not_assign_a_rate_that_follows_a_schedule():
    class Own(nn.SGD):
        def construct(self, gradients):
            super().construct(gradients)
            self.assign(self.learning_rate, self.learning_rate * 0.5)

    model = model_with([0.1, 0.2], optimizer=Own)
    with pytest.raises(ConfigError, match="a step may not assign a parameter that follows a schedule"):
        model.train(1, digits(), None, True)
