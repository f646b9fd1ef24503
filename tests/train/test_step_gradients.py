"""The event `step_gradients`: gradients, parameters and updates of every step, in both modes and inside of sinks."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import runner.dataset as ds
from runner import Model, context, nn, set_seed
from runner.config.groups.entries import NETWORKS
from runner.errors import ConfigError, TrainingError
from runner.train.amp import FixedLossScaleManager
from runner.train.callback import Callback, EarlyStopping, LossMonitor

ROOT = Path(__file__).parents[2]
WAYS = {
    "pynative": (context.PYNATIVE_MODE, False),
    "graph": (context.GRAPH_MODE, False),
    "sunk": (context.GRAPH_MODE, True),
}
RATE, MOMENTUM, STEPS = 0.1, 0.9, 6


class Record(Callback):
    """Keeps what it gets, and when `step_end` came."""

    def __init__(self) -> None:
        self.values, self.events = [], []

    def step_gradients(self, run_context, values):
        self.values.append(values)
        self.events.append(values.global_step)

    def step_end(self, run_context):
        self.events.append("step_end")


def batches(seed: int = 3):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((4 * STEPS, 3), np.float32), rng.standard_normal((4 * STEPS, 2), np.float32)
    return x, y, ds.NumpySlicesDataset((x, y), ["image", "label"], shuffle=False).batch(4)


def linear_model(way: str, **more) -> Model:
    set_seed(1)
    mode, _ = WAYS[way]
    context.set_context(mode=mode)
    net = nn.Dense(3, 2)
    return Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), RATE, MOMENTUM), **more)


def train(model: Model, way: str, data, callbacks, steps: int = STEPS, **more) -> None:
    _, sunk = WAYS[way]
    model.train(1, data, callbacks, dataset_sink_mode=sunk, max_steps=steps, **more)


@pytest.mark.parametrize("way", WAYS)
def test_values_are_those_of_the_formulas(way):
    """A linear layer and the mean squared error: gradients and updates by hand, in doubles."""
    x, y, data = batches()
    model, record = linear_model(way), Record()
    weight, bias = (p.asnumpy().astype(np.float64) for p in model.network.trainable_params())
    moments = [np.zeros_like(weight), np.zeros_like(bias)]
    train(model, way, data, record)
    assert [v.global_step for v in record.values] == list(range(1, STEPS + 1))
    for step, values in enumerate(record.values):
        xs, ys = (a[4 * step : 4 * step + 4].astype(np.float64) for a in (x, y))
        error = 2 * (xs @ weight.T + bias - ys) / ys.size
        expected = {"weight": error.T @ xs, "bias": error.sum(0)}
        assert list(values.gradients) == ["weight", "bias"]
        for k, (name, gradient) in enumerate(expected.items()):
            np.testing.assert_allclose(values.gradients[name], gradient, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(values.parameters[name], (weight, bias)[k], rtol=1e-5, atol=1e-6)
            moments[k] = MOMENTUM * moments[k] + gradient
            np.testing.assert_allclose(values.updates[name], -RATE * moments[k], rtol=1e-4, atol=1e-6)
        weight, bias = weight - RATE * moments[0], bias - RATE * moments[1]
    for parameter, name in zip(model.network.trainable_params(), ("weight", "bias"), strict=True):
        assert np.array_equal(record.values[-1].assigned[name], parameter.asnumpy())


@pytest.mark.parametrize("way", WAYS)
def test_steps_of_a_sink_come_in_order_before_its_end(way):
    _, _, data = batches()
    record = Record()
    train(linear_model(way), way, data, record)
    steps = list(range(1, STEPS + 1))
    unsunk = [event for step in steps for event in (step, "step_end")]
    assert record.events == ([*steps, "step_end"] if way == "sunk" else unsunk)


def weights_of(name: str, way: str, callbacks) -> list[bytes]:
    set_seed(1)
    mode, sunk = WAYS[way]
    context.set_context(mode=mode)
    net = NETWORKS.kind[name].source(num_classes=10, num_channels=1, **({"width": 8} if name != "lenet5" else {}))
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9, weight_decay=5e-4, use_nesterov=True)
    model = Model(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), optimizer)
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((32, 1, 32, 32), np.float32), rng.integers(0, 10, 32).astype(np.int32)
    data = ds.NumpySlicesDataset((images, labels), ["image", "label"], shuffle=False).batch(8)
    model.train(1, data, callbacks, dataset_sink_mode=sunk)
    return [p.asnumpy().tobytes() for p in model.train_network.get_parameters()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["lenet5", "resnet18", "resnet50"])
def test_observing_changes_no_bit(name, way):
    """Also where a gradient is fused into the update of its momentum, and a sum into a convolution."""
    assert weights_of(name, way, [Record()]) == weights_of(name, way, [])


@pytest.mark.parametrize("way", ["graph", "sunk"])
def test_no_cost_when_nothing_observes(way):
    _, _, data = batches()
    model = linear_model(way)
    train(model, way, data, [LossMonitor(0)])
    [program] = model.programs
    assert program.graph.effects == ()
    train(model, way, data, Record())
    assert [effect.op.name for effect in model.programs[0].graph.effects] == ["ObserveStep"]
    train(model, way, data, [LossMonitor(0)])
    assert model.programs[0].graph.effects == ()


@pytest.mark.parametrize("way", WAYS)
def test_each_training_counts_from_its_first_step(way):
    _, _, data = batches()
    model, first, second = linear_model(way), Record(), Record()
    train(model, way, data, first, steps=4)
    train(model, way, data, second, first_step=4)
    assert [v.global_step for v in first.values] == [1, 2, 3, 4]
    assert [v.global_step for v in second.values] == [5, 6]
    for name, array in second.values[0].parameters.items():
        assert np.array_equal(array, first.values[-1].assigned[name])


@pytest.mark.parametrize("way", WAYS)
def test_a_skipped_step_has_no_updates(way):
    """The scale overflows Float32, so the step is skipped; gradients of the others are without the scale."""
    x, y, _ = batches()
    x[4:8] = 1e30
    data = ds.NumpySlicesDataset((x, y), ["image", "label"], shuffle=False).batch(4)
    scaled, plain = Record(), Record()
    train(linear_model(way, loss_scale_manager=FixedLossScaleManager(1024.0)), way, data, scaled, steps=2)
    train(linear_model(way), way, data, plain, steps=1)
    for name in ("weight", "bias"):
        np.testing.assert_allclose(scaled.values[0].gradients[name], plain.values[0].gradients[name], rtol=1e-5)
        assert scaled.values[0].updates[name].any()
        assert not scaled.values[1].updates[name].any()
    assert not np.isfinite(scaled.values[1].gradients["weight"]).all()


def test_several_observers_get_the_same_values():
    _, _, data = batches()
    one, other = Record(), Record()
    train(linear_model("sunk"), "sunk", data, [one, EarlyStopping(monitor="loss"), other])
    assert [a is b for a, b in zip(one.values, other.values, strict=True)] == [True] * STEPS


def test_what_an_observer_raises_ends_the_training():
    class Limit(Callback):
        def step_gradients(self, run_context, values):
            if values.global_step == 3:
                raise TrainingError("the gradients are too large", global_step=values.global_step)

    _, _, data = batches()
    with pytest.raises(TrainingError, match="too large"):
        train(linear_model("graph"), "graph", data, Limit())


def test_a_network_with_a_step_of_its_own_is_refused():
    class Step(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(3, 2)

        def construct(self, x, y):
            return nn.MSELoss()(self.dense(x), y)

    _, _, data = batches()
    with pytest.raises(ConfigError) as caught:
        Model(Step()).train(1, data, Record())
    assert caught.value.rows["network"] == "Step"
    assert "nn.TrainOneStepCell" in caught.value.rows["allowed"]


def test_the_example_is_exact_when_it_is_killed_and_resumed(tmp_path):
    """`examples/gradient_norms.py`: a row for each step, once, whatever happened in between."""
    script = str(ROOT / "examples" / "gradient_norms.py")

    def run(folder: str, *words: str) -> bytes:
        subprocess.run(
            [sys.executable, script, str(tmp_path / folder), *words], check=True, capture_output=True, text=True
        )
        return (tmp_path / folder / "gradient_norms.jsonl").read_bytes()

    whole = run("whole", "--epochs", "3")
    run("parts", "--epochs", "2")
    journal = tmp_path / "parts" / "gradient_norms.jsonl"
    journal.write_bytes(
        journal.read_bytes() + b'{"global_step": 89, "norm": 1.0'
    )  # steps that were made after the checkpoint
    assert run("parts", "--epochs", "3") == whole
    rows = [json.loads(line) for line in whole.splitlines()]
    assert [row["global_step"] for row in rows] == list(range(1, 3 * 44 + 1))
    assert all(row["norm"] > 0 for row in rows)
