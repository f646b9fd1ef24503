"""Exported training steps for any batch, against the same step in numpy; and several steps in one model."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from tables import table

from runner import Tensor, dtype, nn, ops, set_seed
from runner.compile.export import export_step
from runner.compile.onnx.lower import repeat_step
from runner.compile.onnx.model import with_opset
from runner.errors import ConfigError
from runner.nn.steps import EagerStep
from runner.types import TensorType

SIZES = (1, 2, 5, 13)


def convolutional():
    layers = nn.Conv2d(3, 6, 3, weight_init="he_uniform"), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2, 2)
    return nn.SequentialCell(*layers, nn.AvgPool2d(2, 2), nn.Flatten(), nn.Dense(24, 5, "he_uniform"))


def strided():
    layers = nn.Conv2d(3, 4, 3, 2, "pad", 1, group=1, weight_init="he_uniform"), nn.Conv2d(4, 4, 3, group=4), nn.GELU()
    return nn.SequentialCell(*layers, nn.Flatten(), nn.Dense(64, 5, "he_uniform"))


def perceptron():
    return nn.SequentialCell(nn.Dense(6, 8, "he_uniform"), nn.LayerNorm((8,)), nn.Tanh(), nn.Dense(8, 5, "he_uniform"))


class Words(nn.Cell):
    """An embedding, attention over the tokens, and the mean of the results."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(7, 8), nn.Dense(8, 5, "he_uniform")
        self.query, self.key = nn.Dense(8, 8, "he_uniform"), nn.Dense(8, 8, "he_uniform")

    def construct(self, words):
        x = self.table(words)
        weights = ops.Softmax()(ops.BatchMatMul(transpose_b=True)(self.query(x), self.key(x)))
        return self.out(ops.ReduceMean()(ops.BatchMatMul()(weights, x), 1))


CROSS = nn.SoftmaxCrossEntropyWithLogits
# A network, the shape of a sample and of its target, a loss and an optimizer.
STEPS = {
    "convolutions": (convolutional, (3, 8, 8), (), lambda: CROSS(True, "mean"), lambda p: nn.Momentum(p, 0.1, 0.9)),
    "groups": (strided, (3, 8, 8), (), lambda: CROSS(True, "mean"), lambda p: nn.SGD(p, 0.1, 0.9)),
    "adam": (perceptron, (6,), (), lambda: CROSS(True, "mean"), lambda p: nn.Adam(p, 0.01, weight_decay=0.1)),
    "sum": (perceptron, (6,), (), lambda: CROSS(True, "sum"), lambda p: nn.Momentum(p, 0.1, 0.9)),
    "one-hot": (perceptron, (6,), (5,), lambda: CROSS(False, "mean"), lambda p: nn.Adagrad(p)),
    "squares": (perceptron, (6,), (5,), nn.MSELoss, lambda p: nn.RMSProp(p, 0.01)),
    "absolute": (perceptron, (6,), (5,), nn.L1Loss, lambda p: nn.Lamb(p, 0.01)),
    "binary": (perceptron, (6,), (5,), nn.BCEWithLogitsLoss, lambda p: nn.FTRL(p)),
    "words": (Words, "words", (), lambda: CROSS(True, "mean"), lambda p: nn.AdamWeightDecay(p, 0.01)),
}


def batch_of(shape, target, rows: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(rows)
    words = shape == "words"
    data = random.integers(0, 7, (rows, 4)) if words else random.standard_normal((rows, *shape))
    labels = random.random((rows, *target)) if target else random.integers(0, 5, rows)
    return data.astype(np.int32 if words else np.float32), labels.astype(np.float32 if target else np.int32)


def step_of(name: str, scale: float | None = None) -> nn.Cell:
    build, _, _, loss, optimizer = STEPS[name]
    set_seed(0)
    network = build()
    cell, update = nn.WithLossCell(network, loss()), optimizer(network.trainable_params())
    if scale is None:
        return nn.TrainOneStepCell(cell, update).set_train()
    return nn.TrainOneStepWithLossScaleCell(cell, update, Tensor(scale, dtype.float32)).set_train()


def exported(name: str, rows: int = 6, scale: float | None = None):
    cell = step_of(name, scale)
    types = [TensorType.of(array) for array in batch_of(*STEPS[name][1:3], rows)]

    def function(*batch):
        loss = cell.compute(*batch)
        return {"loss": loss[0] if isinstance(loss, tuple) else loss}

    return export_step(function, types, "train_step", ["data", "target"]), cell


def opened(model: onnx.ModelProto) -> ort.InferenceSession:
    onnx.checker.check_model(model, full_check=True)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def compare(name: str, rows: int = 6, scale: float | None = None) -> None:
    step, cell = exported(name, rows, scale)
    assert step.batch_reason == ""
    assert {entry.domain for entry in step.model.opset_import} == {""}
    session, start = opened(step.model), {p: np.array(p.array) for p in cell.get_parameters()}
    for size in SIZES:
        batch = batch_of(*STEPS[name][1:3], size)
        feeds = {p.name: start[p] for p in step.graph.parameters}
        found = dict(
            zip(
                [y.name for y in session.get_outputs()],
                session.run(None, {"data": batch[0], "target": batch[1], **feeds}),
                strict=True,
            )
        )
        for parameter, value in start.items():
            parameter.set_data(np.array(value))
        loss = EagerStep(cell, "step")(batch)[0]
        np.testing.assert_allclose(found["loss"], loss, rtol=1e-5)
        for parameter in step.graph.updates:
            value = found[f"{parameter.name}.updated"]
            scale_of = max(1e-3, float(np.abs(parameter.array).max()))
            np.testing.assert_allclose(value, parameter.array, atol=2e-4 * scale_of, err_msg=f"{parameter.name} {size}")


@table("name", STEPS, ids=str)
def test_a_step_takes_any_batch(name):
    compare(name)


@table("rows", (1, 2, 5, 8, 32))
def test_whatever_batch_it_was_traced_for(rows):
    compare("convolutions", rows)


def test_with_a_loss_scale():
    compare("adam", scale=1024.0)


def test_the_batch_is_fixed_where_no_rule_holds():
    network = nn.Dense(6, 5, "he_uniform")

    class Roots(nn.Cell):
        def construct(self, scores, target):
            return ops.ReduceSum()(ops.Square()(scores)) / scores.shape[0] ** 0.5

    cell = nn.TrainOneStepCell(nn.WithLossCell(network, Roots()), nn.SGD(network.trainable_params(), 0.1))
    types = [TensorType.of(array) for array in batch_of((6,), (), 6)]
    step = export_step(lambda *batch: {"loss": cell.compute(*batch)}, types, "train_step", ["data", "target"])
    assert "the numbers" in step.batch_reason
    assert opened(step.model).get_inputs()[0].shape == [6, 6]


@table("name", ("convolutions", "adam"), ids=str)
def test_several_steps(name):
    step, _ = exported(name)
    carried = {p.name: f"{p.name}.updated" for p in step.graph.updates}
    several, one = opened(repeat_step(step.model, 4, ["data", "target"], carried)), opened(step.model)
    batches = [batch_of(*STEPS[name][1:3], 3) for _ in range(2)] + [batch_of(*STEPS[name][1:3], 3)] * 2
    state = {p.name: np.array(p.array) for p in step.graph.parameters}
    start, losses = dict(state), []
    for data, target in batches:
        loss, *updated = one.run(None, {"data": data, "target": target, **state})
        state |= dict(zip(carried, updated, strict=True))
        losses.append(loss)
    data, target = (np.stack(column) for column in zip(*batches, strict=True))
    found = several.run(None, {"data": data, "target": target, **start})
    names = [y.name for y in several.get_outputs()]
    np.testing.assert_allclose(found[names.index("losses")], losses, rtol=1e-6)
    for parameter, result in carried.items():
        np.testing.assert_allclose(found[names.index(result)], state[parameter], rtol=1e-5, atol=1e-7)


@table("name", STEPS, ids=str)
def test_a_step_in_other_versions(name):
    step, _ = exported(name)
    session = opened(step.model)
    feeds = {p.name: np.array(p.array) for p in step.graph.parameters}
    feeds |= dict(zip(("data", "target"), batch_of(*STEPS[name][1:3], 4), strict=True))
    expected = session.run(None, feeds)
    for opset in (13, 15, 16, 17, 19, 20, 21):
        try:
            model = with_opset(step.model, opset)
        except ConfigError:
            assert opset < 16
            continue
        assert model.opset_import[0].version == opset
        for x, y in zip(opened(model).run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


def test_two_values_of_one_name():
    cell = step_of("adam")
    types = [TensorType.of(array) for array in batch_of((6,), (), 6)]
    with pytest.raises(ConfigError, match="two values have the same name"):
        export_step(lambda *batch: {"loss": cell.compute(*batch)}, types, "step", ["0.weight", "target"])
