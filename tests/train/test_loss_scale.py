"""Training under a precision_mode and with a scaled loss, in both modes."""

import numpy as np
import onnxruntime as ort
import pytest

from models.lenet import LeNet5
from runner import Model, context, dtype, nn, ops
from runner.core.gradients import gradients
from runner.core.interpreter import Eager
from runner.core.precision import policy, use_precision
from runner.core.recorder import Recorder
from runner.core.trace import trace
from runner.core.values import Parameter, Tensor
from runner.dataset import NumpySlicesDataset
from runner.device import Device
from runner.errors import ConfigError, TrainingError
from runner.host import seed
from runner.train import amp
from runner.train.amp import DynamicLossScaleManager, FixedLossScaleManager
from runner.types import TensorType

MODES = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}
BOTH = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
RNG = np.random.default_rng(7)
IMAGES = RNG.normal(size=(24, 1, 32, 32)).astype(np.float32)
LABELS = RNG.integers(0, 10, 24).astype(np.int32)


class Normed(nn.Cell):
    """A convolution with BatchNorm, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(1, 4, 5, stride=4), nn.BatchNorm2d(4), nn.ReLU()
        self.flatten, self.fc = nn.Flatten(), nn.Dense(4 * 8 * 8, 10)

    def construct(self, x):
        return self.fc(self.flatten(self.relu(self.norm(self.conv(x)))))


def trained(network_class, mode, sunk=False, epochs=2, images=IMAGES, **more):
    """All parameters and state after a training of six steps, and the model."""
    seed.set_seed(5)
    network = network_class()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(network, loss, nn.Momentum(network.trainable_params(), 0.02, 0.9), mode=mode, **more)
    data = NumpySlicesDataset({"image": images, "label": LABELS}).batch(8)
    model.train(epochs, data, dataset_sink_mode=sunk)
    return {p.name: p.array for p in model.train_network.get_parameters()}, model


@BOTH
@pytest.mark.parametrize("network", [LeNet5, Normed])
@pytest.mark.parametrize("name", ["force_fp16", "allow_mix_precision"])
def test_half_precision_trains_nearly_as_float32(network, name, mode):
    single, _ = trained(network, mode)
    half, _ = trained(network, mode, precision_mode=name, loss_scale_manager=FixedLossScaleManager(256.0))
    moved = 0.0
    for key, value in single.items():
        assert half[key].dtype == value.dtype
        moved = max(moved, float(np.abs(half[key] - value).max()))
        assert np.abs(half[key] - value).max() < 4e-2 * np.abs(value).max() + 1e-3, key
    assert moved > 0  # and not float32 under another name


@pytest.mark.parametrize("network", [LeNet5, Normed])
@pytest.mark.parametrize("name", ["force_fp16", "allow_mix_precision"])
def test_modes_agree_and_sinks_change_no_bit(network, name):
    more = {"precision_mode": name, "loss_scale_manager": DynamicLossScaleManager(2.0**22, 16.0, 2)}
    eager, _ = trained(network, MODES["pynative"], **more)
    graph, _ = trained(network, MODES["graph"], **more)
    sunk, _ = trained(network, MODES["graph"], sunk=True, **more)
    assert all(np.array_equal(graph[key], sunk[key]) for key in graph)
    assert 0 < int(graph["overflow_steps"]) < 6
    for key in ("overflow_steps", "bad_steps", "good_steps", "scale_sense"):
        assert eager[key] == graph[key]
    for (
        key,
        value,
    ) in eager.items():  # a rounding may tip a unit of ReLU, which then reaches the gradients of all layers
        apart, size = np.linalg.norm(value - graph[key]), np.linalg.norm(value)
        assert apart <= (4e-2 if key.startswith("moments") else 1e-3) * size, key


def gradients_of(cell, weights, image, sens=1.0):
    made = gradients(cell(Tensor(image), Tensor(LABELS[: len(image)])), weights, sens)
    return [value.array / sens for value in made]


@pytest.mark.parametrize(("network_class", "tolerance"), [(Normed, 1e-2), (LeNet5, 6e-2)])
def test_gradients_agree_with_float64(network_class, tolerance):
    """Float16 has 11 bits, and a few roundings lie on the way; where one tips the maximum of a pool, LeNet's gradient
    goes to another element."""
    network = network_class().set_train()
    cell = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(True, "mean"))
    weights = network.trainable_params()
    for weight in weights:  # larger than at the usual start, so that no gradient is next to nothing
        weight.set_data(RNG.normal(0, 0.1, weight.shape).astype(np.float32))
    found = []
    for name in ("force_fp16", "allow_mix_precision"):
        with use_precision(policy(name)), Eager():
            found.append(gradients_of(cell, weights, IMAGES[:8], 256.0))
    for parameter in network.get_parameters():
        parameter.type, parameter._array = parameter.type.with_dtype(dtype.float64), parameter.array.astype(np.float64)
    with Eager():
        exact = gradients_of(cell, weights, IMAGES[:8].astype(np.float64))
    for values in found:
        for value, truth in zip(values, exact, strict=True):
            assert (value.dtype, truth.dtype) == (np.float32, np.float64)
            assert np.linalg.norm(value - truth) < tolerance * np.linalg.norm(truth) + 1e-4


@pytest.mark.parametrize("name", ["force_fp16", "allow_mix_precision"])
def test_casts_stand_in_the_graph_and_have_the_same_names_in_both_modes(name):
    network = LeNet5()
    loss = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(True, "mean"))
    cell = nn.TrainOneStepWithLossScaleCell(loss, nn.Momentum(network.trainable_params(), 0.1, 0.9), 8.0)
    inputs = Tensor(IMAGES[:2]), Tensor(LABELS[:2])
    with use_precision(policy(name)):
        traced = trace(cell.construct, [x.type for x in inputs], "step").nodes
        with Recorder(inputs) as recorder:
            cell.construct(*inputs)
    assert [(n.name, [y.type for y in n.outputs]) for n in traced] == [
        (n.name, [y.type for y in n.outputs]) for n in recorder.tracer.tape.nodes
    ]
    casts = [n.name for n in traced if n.op.name == "Cast"]
    assert any(c.startswith("Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/Cast-op") for c in casts)
    assert any(
        c.startswith("Gradients/Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/gradCast/") for c in casts
    )
    halves = {n.op.name for n in traced if n.outputs[0].dtype is dtype.float16}
    assert {"Conv2D", "Conv2DBackpropFilter", "MatMul", "ReLU", "MaxPool"} <= halves
    assert ("SparseSoftmaxCrossEntropyWithLogits" in halves) == (name == "force_fp16")
    updates = [n for n in traced if n.op.name == "ApplyMomentum"]
    assert updates
    assert all(x.dtype is dtype.float32 for n in updates for x in n.inputs)


class Product(nn.Cell):
    """A loss with the gradient of an image: one that is too large makes it overflow."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(np.ones(1, np.float32)), "weight")

    def construct(self, image, label):
        return ops.ReduceSum()(image * self.weight)


def steps(manager, values, mode, sunk=False):
    """Weight, scale and number of skipped steps after steps with these gradients."""
    network = Product()
    model = Model(network, None, nn.SGD(network.trainable_params(), 1.0), mode=mode, loss_scale_manager=manager)
    images = np.asarray(values, np.float32)[:, None]
    data = NumpySlicesDataset({"image": images, "label": np.zeros(len(images), np.int32)}, shuffle=False).batch(1)
    model.train(1, data, dataset_sink_mode=sunk)
    cell = model.train_network
    return float(network.weight.array[0]), float(cell.scale_sense.array), int(cell.overflow_steps.array), cell


def simulated(values, scale, factor, window):
    """The rule of MindSpore, in plain Python, with the largest float32."""
    weight, skipped, good = 1.0, 0, 0
    for value in values:
        if value * scale > 3.4e38:
            scale, good, skipped = max(scale / factor, 1.0), 0, skipped + 1
            continue
        weight -= value
        good += 1
        if good == window:
            scale, good = scale * factor, 0
    return weight, scale, skipped


HUGE = 2.0**120
GRADIENTS = [0.5, HUGE, HUGE, 0.25, 0.5, 0.125, HUGE, 0.5, 1.0, 0.25, 0.5, 0.25]


@BOTH
@pytest.mark.parametrize("sunk", [False, True], ids=["unsunk", "sunk"])
@pytest.mark.parametrize(("scale", "factor", "window"), [(2.0**10, 2.0, 3), (2.0**9, 4.0, 1), (2.0**20, 8.0, 50)])
def test_a_dynamic_scale_follows_the_rule(scale, factor, window, mode, sunk):
    given = [value if value != HUGE else HUGE for value in GRADIENTS]
    made = steps(DynamicLossScaleManager(scale, factor, window), given, mode, sunk)
    assert made[:3] == simulated(given, scale, factor, window)
    assert made[2] > 0


@BOTH
def test_a_fixed_scale_skips_and_stays(mode):
    weight, scale, skipped, cell = steps(FixedLossScaleManager(1024.0), GRADIENTS, mode)
    assert (weight, scale, skipped) == (1.0 - sum(v for v in GRADIENTS if v != HUGE), 1024.0, 3)
    assert int(cell.bad_steps.array) == 0


@BOTH
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_whatever_is_not_finite_is_skipped(wrong, mode):
    assert steps(FixedLossScaleManager(2.0), [0.5, wrong, 0.25], mode)[:3] == (0.25, 2.0, 1)


@BOTH
def test_a_skipped_step_leaves_no_trace_in_batch_normalisation(mode):
    images = IMAGES.copy()
    images[8:16] = np.inf  # the second batch
    data = {"images": images, "epochs": 1, "loss_scale_manager": FixedLossScaleManager(2.0)}
    parameters, _ = trained(Normed, mode, **data)
    assert int(parameters["overflow_steps"]) >= 1
    assert all(np.isfinite(value).all() for value in parameters.values())


@BOTH
def test_a_thousand_bad_steps_in_a_row_end_the_training(mode):
    with pytest.raises(TrainingError) as error:
        steps(FixedLossScaleManager(2.0), [np.inf] * 1001, mode, sunk=mode == MODES["graph"])
    assert error.value.rows["steps in a row"] == "1001"
    steps(FixedLossScaleManager(2.0), [np.inf] * 20, mode)


def test_levels_choose_policy_and_scale():
    network = Product()
    optimizer = nn.SGD(network.trainable_params(), 1.0)
    mixed = Model(network, None, optimizer, amp_level="O2")
    assert mixed.precision is policy("allow_mix_precision")
    assert float(mixed.train_network.scale_sense.array) == 2.0**24
    forced = Model(network, None, optimizer, amp_level="O3")
    assert (forced.precision, type(forced.train_network)) == (policy("force_fp16"), nn.TrainOneStepCell)
    assert Model(network, None, optimizer, precision_mode="force_fp32").precision is policy("force_fp32")
    assert Model(network, None, optimizer).precision is None
    assert [amp.resolve_level("auto", Device(target)) for target in ("GPU", "Ascend")] == ["O2", "O3"]


def test_a_scale_without_dropping_is_the_optimizers():
    network = Product()
    optimizer = nn.SGD(network.trainable_params(), 1.0, loss_scale=64.0)
    manager = FixedLossScaleManager(64.0, drop_overflow_update=False)
    model = Model(network, None, optimizer, loss_scale_manager=manager)
    assert (type(model.train_network), model.train_network.sens) == (nn.TrainOneStepCell, 64.0)


def _sgd(loss_scale=1.0):
    network = Product()
    return network, None, nn.SGD(network.trainable_params(), 1.0, loss_scale=loss_scale)


@pytest.mark.parametrize(
    ("make", "what", "row"),
    [
        (lambda: FixedLossScaleManager(0.5), "at least 1.0", "0.5"),
        (lambda: DynamicLossScaleManager(0), "at least 1.0", "0"),
        (lambda: DynamicLossScaleManager(scale_factor=1), "above 1.0", "1"),
        (lambda: DynamicLossScaleManager(scale_window=0), "at least 1", "0"),
        (lambda: DynamicLossScaleManager(scale_window=2.5), "whole number", "2.5"),
        (
            lambda: Model(Product(), None, None, loss_scale_manager=FixedLossScaleManager()),
            "needs an optimizer",
            "Fixed",
        ),
        (lambda: Model(*_sgd(128.0), loss_scale_manager=DynamicLossScaleManager()), "another loss scale", "128.0"),
        (lambda: Model(*_sgd(), loss_scale_manager=FixedLossScaleManager(8.0, False)), "another loss scale", "8.0"),
        (lambda: Model(*_sgd(), amp_level="O1"), "unknown amp_level", "O0, O2, O3, auto"),
        (lambda: Model(*_sgd(), amp_level="auto"), "needs a GPU or Ascend", "CPU"),
        (lambda: Model(*_sgd(), precision_mode="fp16"), "unknown precision_mode", "force_fp16"),
    ],
)
def test_what_cannot_be_used_is_told(make, what, row):
    with pytest.raises(ConfigError) as error:
        make()
    assert what in str(error.value)
    assert row in str(error.value)


def test_an_exported_network_runs_elsewhere():
    _, model = trained(Normed, MODES["graph"], precision_mode="allow_mix_precision")
    file = model.export([TensorType(dtype.float32, (24, 1, 32, 32))])
    session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    (made,) = session.run(None, {"input0": IMAGES})
    expected = model.predict(IMAGES).asnumpy()
    assert made.dtype == expected.dtype == np.float16
    assert np.abs(made.astype(np.float32) - expected).max() < 1e-2 * np.abs(expected).max()
