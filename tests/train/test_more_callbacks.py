"""Callbacks that change the rate, stop a run, or are plain functions; in every mode, sunk or not."""

import logging

import numpy as np
import pytest

from runner import Model, context, nn, set_seed
from runner.dataset import open_dataset
from runner.device import Device
from runner.errors import ConfigError
from runner.train.callback import (
    Callback,
    CallbackParameters,
    EarlyStopping,
    LambdaCallback,
    LearningRateScheduler,
    RunContext,
)
from runner.train.callback.standard import HOOKS

WAYS = {
    "sunk": {"mode": context.GRAPH_MODE, "sunk": True},
    "graph": {"mode": context.GRAPH_MODE, "sunk": False},
    "pynative": {"mode": context.PYNATIVE_MODE, "sunk": False},
}
PER_EPOCH = 5


def train(callbacks, mode=context.GRAPH_MODE, sunk=False, epochs=3, rate=0.1):
    set_seed(5)
    net = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 10, weight_init="he_uniform"))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(net, loss, nn.SGD(net.trainable_params(), rate), mode=mode, device=Device(threads=1))
    model.train(epochs, open_dataset(image_size=8, num_samples=160, train=True), callbacks, sunk)
    return model


def text_of(make, *given, **named):
    with pytest.raises(ConfigError) as caught:
        make(*given, **named)
    return str(caught.value)


class TestLearningRateScheduler:
    @pytest.mark.parametrize("way", WAYS)
    def test_the_function_sees_the_rate_and_the_steps_so_far(self, way):
        calls = []

        def halve(rate, step):
            calls.append((rate, step))
            return rate * 0.5 if step % 10 == 0 else rate

        model = train(LearningRateScheduler(halve), **WAYS[way])
        every = PER_EPOCH if way == "sunk" else 1
        assert [step for _, step in calls] == list(range(every, 16, every))
        assert {rate for rate, step in calls if step <= 10} == {0.1}  # plain, not 0.10000000149
        assert {rate for rate, step in calls if step > 10} == {0.05}
        assert model.optimizer.learning_rate.asnumpy() == np.float32(0.05)
        assert len(model.programs) <= 1

    def test_it_says_what_it_does_in_the_log(self, caplog):
        with caplog.at_level(logging.INFO, "runner"):
            train(LearningRateScheduler(lambda rate, step: 0.01 if step == 3 else rate), epochs=1)
        assert caplog.messages == ["at step 3 the learning rate changes to 0.01"]

    def test_the_steps_are_those_of_a_schedule(self):
        """The function sets the rate of the next step; the first one has the optimizer's."""
        schedule = nn.ExponentialDecayLR(0.1, 0.9, 1)
        by_function = train(LearningRateScheduler(lambda rate, step: schedule(step)))
        by_schedule = train(None, rate=schedule)
        for a, b in zip(by_function.network.get_parameters(), by_schedule.network.get_parameters(), strict=True):
            assert a.asnumpy().tobytes() == b.asnumpy().tobytes()

    def test_a_schedule_would_undo_it(self):
        text = text_of(train, LearningRateScheduler(lambda rate, step: rate), rate=nn.WarmUpLR(0.1, 5))
        assert text == (
            "ConfigError: LearningRateScheduler needs a rate that it can set\n"
            "  found   WarmUpLR(learning_rate=0.1, warmup_steps=5)\n"
            "  repair  give the optimizer a number as learning_rate"
        )

    @pytest.mark.parametrize("wrong", [None, "fast", -1.0, float("nan"), True])
    def test_what_is_no_rate(self, wrong):
        text = text_of(train, LearningRateScheduler(lambda rate, step: wrong))
        assert text == (
            "ConfigError: learning_rate must be a number of at least 0.0\n"
            "  callback  LearningRateScheduler\n  step      1\n"
            f"  given     {wrong!r}"
        )

    def test_what_is_no_function(self):
        assert text_of(LearningRateScheduler, 0.1) == (
            "ConfigError: learning_rate_function must be a function\n  given  0.1"
        )


def epochs_of(stopping, losses):
    """The number of epochs until a stop, when the mean losses of the epochs are these."""
    run_context = RunContext(CallbackParameters(cur_epoch_num=0))
    seen = run_context.original_args()
    stopping.begin(run_context)
    for loss in losses:
        if run_context.get_stop_requested():
            break
        seen.cur_epoch_num += 1
        stopping.epoch_begin(run_context)
        seen.losses = np.array([loss - 0.5, loss + 0.5], np.float32)
        stopping.step_end(run_context)
        stopping.epoch_end(run_context)
    return seen.cur_epoch_num


class TestEarlyStopping:
    @pytest.mark.parametrize(
        ("settings", "losses", "epochs", "best_epoch"),
        [
            ({}, [3, 2, 1, 0], 4, 4),
            ({}, [3, 2, 2, 0], 3, 2),
            ({"patience": 1}, [3, 2, 2, 0], 4, 4),
            ({"patience": 2}, [3, 4, 5, 2, 3, 3, 3, 0], 7, 4),
            ({"min_delta": 1.5}, [8, 6, 5, 4, 0], 3, 2),
            ({"min_delta": 1.0}, [8, 7, 0], 2, 1),  # better by exactly min_delta is not enough
            ({"mode": "max"}, [1, 2, 3, 2, 5], 4, 3),
            ({}, [np.nan, np.nan], 1, 0),
            ({"patience": 3}, [np.nan, 4, np.nan, 3], 4, 4),
        ],
    )
    def test_when_it_stops(self, settings, losses, epochs, best_epoch):
        stopping = EarlyStopping(**settings)
        assert epochs_of(stopping, losses) == epochs
        assert stopping.best_epoch == best_epoch
        assert stopping.stopped_epoch == (epochs if epochs < len(losses) or best_epoch < epochs else None)

    def test_it_begins_anew_with_every_training(self):
        stopping = EarlyStopping()
        assert [epochs_of(stopping, [3, 2, 1]), stopping.best] == [3, 1.0]
        assert [epochs_of(stopping, [9, 8, 7]), stopping.best] == [3, 7.0]

    def test_sunk_or_not_it_stops_in_the_same_epoch(self):
        def run(way):
            stopping = EarlyStopping(min_delta=0.15)
            train(stopping, **WAYS[way], epochs=30)
            return stopping.stopped_epoch, stopping.best

        sunk, graph, pynative = map(run, WAYS)
        assert sunk == graph
        assert sunk[0] == pynative[0] < 30

    def test_a_number_of_another_callback(self):
        accuracies = iter([0.5, 0.7, 0.6, 0.9])

        class Evaluation(Callback):
            def epoch_end(self, run_context):
                run_context.original_args().accuracy = np.float64(next(accuracies))

        stopping = EarlyStopping("accuracy", mode="max")
        train([Evaluation(), stopping], epochs=4)
        assert (stopping.stopped_epoch, stopping.best, stopping.best_epoch) == (3, 0.7, 2)

    def test_a_number_that_nobody_sets(self):
        assert text_of(train, EarlyStopping("accuracy")) == (
            "ConfigError: EarlyStopping finds no such number\n"
            "  monitor  accuracy\n"
            "  found    nothing\n"
            "  repair   a callback before this one that sets it: run_context.original_args().name = number"
        )

    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({"monitor": ""}, "monitor must be a name\n  callback  EarlyStopping\n  given     ''"),
            (
                {"min_delta": -1.0},
                "min_delta must be a number of at least 0.0\n  callback  EarlyStopping\n  given     -1.0",
            ),
            (
                {"patience": 1.0},
                "patience must be a whole number of at least 0\n  callback  EarlyStopping\n  given     1.0",
            ),
            (
                {"mode": "mix"},
                "no such mode\n  callback  EarlyStopping\n  given     'mix'\n  allowed   min, max\n  nearest   min",
            ),
        ],
    )
    def test_arguments_that_make_no_sense(self, settings, text):
        assert text_of(EarlyStopping, **settings) == f"ConfigError: {text}"


class TestLambdaCallback:
    @pytest.mark.parametrize("way", WAYS)
    def test_every_hook_is_called_in_its_place(self, way):
        seen = []
        hooks = {name: lambda run_context, name=name: seen.append(name) for name in HOOKS}
        train(LambdaCallback(**hooks), **WAYS[way], epochs=2)
        steps = ["step_begin", "step_end"] * (1 if way == "sunk" else PER_EPOCH)
        assert seen == ["begin", *(["epoch_begin", *steps, "epoch_end"] * 2), "end"]

    def test_hooks_that_are_not_given_do_nothing(self):
        losses = []
        train(LambdaCallback(step_end=lambda run_context: losses.append(run_context.original_args().net_outputs)))
        assert len(losses) == 15

    def test_it_can_stop_a_run(self):
        model = train(LambdaCallback(step_end=lambda run_context: run_context.request_stop()))
        assert model.steps.interactions == 1

    def test_what_is_no_hook(self):
        assert text_of(LambdaCallback, step_ends=print) == (
            "ConfigError: callbacks have no such hook\n"
            "  given    step_ends\n"
            "  allowed  begin, epoch_begin, step_begin, step_end, epoch_end, end\n"
            "  nearest  step_end"
        )
        assert text_of(LambdaCallback, end=3) == "ConfigError: a hook must be a function\n  hook   end\n  given  3"
