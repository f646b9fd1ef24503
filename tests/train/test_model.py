"""Training loops: which batches, which hooks, which numbers; evaluation, prediction, export; in both modes."""

import logging
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from runner import Model, context, dtype, export, nn, ops
from runner.core.values import Parameter, Tensor
from runner.dataset import NumpySlicesDataset
from runner.errors import ConfigError, RunnerError, TrainingError
from runner.host import seed
from runner.train.callback import Callback, LossMonitor
from runner.types import TensorType

MODES = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}
BOTH = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
SUNK = pytest.mark.parametrize("sunk", [True, False], ids=["sunk", "unsunk"])
ROWS, BATCH = 14, 3  # 4 batches of 3, and 2 rows that are dropped


class Sum(nn.Cell):
    """A loss that tells which rows it saw: row k counts 2 to the power of k, which float32 adds without rounding."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(1.0))

    def construct(self, image, label):
        return ops.ReduceSum()(image * self.weight) + 0.0 * ops.ReduceSum()(ops.Cast(dtype.float32)(label))


def powers(shuffle: bool = True, rows: int = ROWS, batch: int = BATCH, values=None) -> NumpySlicesDataset:
    values = 2.0 ** np.arange(rows) if values is None else values
    data = NumpySlicesDataset({"image": values.astype(np.float32), "label": np.zeros(rows, np.int32)})
    return (data.shuffle(rows) if shuffle else data).batch(batch, drop_remainder=True)


def summing(mode: int) -> Model:
    """Never changes its weight, so that every loss is a sum of rows."""
    network = Sum()
    return Model(network, None, nn.SGD(network.trainable_params(), 0.0), mode=mode)


class Record(Callback):
    """Writes down every hook with epoch and step, and all losses; stops after a step when told."""

    def __init__(self, stop_after: int | None = None):
        self.events, self.losses, self.stop_after = [], [], stop_after

    def note(self, hook, run_context):
        seen = run_context.original_args()
        self.events.append((hook, seen.cur_epoch_num, seen.cur_step_num))

    def begin(self, run_context):
        self.note("begin", run_context)

    def epoch_begin(self, run_context):
        self.note("epoch_begin", run_context)

    def step_begin(self, run_context):
        self.note("step_begin", run_context)

    def step_end(self, run_context):
        self.note("step_end", run_context)
        seen = run_context.original_args()
        self.losses += np.asarray(seen.losses).tolist()
        assert float(seen.net_outputs) == self.losses[-1]
        if self.stop_after is not None and seen.cur_step_num >= self.stop_after:
            run_context.request_stop()

    def epoch_end(self, run_context):
        self.note("epoch_end", run_context)

    def end(self, run_context):
        self.note("end", run_context)


def visited(losses) -> list[frozenset[int]]:
    """The rows of each batch, from its loss."""
    return [frozenset(k for k in range(24) if int(loss) >> k & 1) for loss in losses]


def planned(data, steps: int) -> list[frozenset[int]]:
    """The rows of the first batches of a dataset, through as many epochs as it takes."""
    per_epoch = data.get_dataset_size()
    return [frozenset(data.batches(k // per_epoch)[k % per_epoch].tolist()) for k in range(steps)]


def quietly(model: Model, *arguments, **keywords) -> None:
    logging.disable(logging.WARNING)
    try:
        model.train(*arguments, **keywords)
    finally:
        logging.disable(logging.NOTSET)


def epochs(sizes: list[int], chunks: bool) -> list[tuple[str, int, int]]:
    """What callbacks hear of epochs with so many steps."""
    events, step = [("begin", 0, 0)], 0
    for epoch, size in enumerate(sizes, 1):
        events.append(("epoch_begin", epoch, step))
        for made in [size] if chunks else [1] * size:
            events.append(("step_begin", epoch, step))
            step += made
            events.append(("step_end", epoch, step))
        events.append(("epoch_end", epoch, step))
    return [*events, ("end", len(sizes), step)]


@BOTH
@SUNK
@pytest.mark.parametrize(
    ("sink_size", "count", "max_steps", "sizes"),
    [
        (-1, 2, None, [4, 4]),
        (3, 5, None, [3] * 5),  # 15 steps: the sinks cross the ends of the dataset
        (9, 2, None, [9, 9]),
        (1, 5, None, [1] * 5),
        (3, 5, 7, [3, 3, 1]),
        (-1, 2, 3, [3]),
        (-1, 2, 4, [4]),
        (-1, 2, 999, [4, 4]),
    ],
)
def test_hooks_and_batches(mode, sunk, sink_size, count, max_steps, sizes):
    if not sunk and sink_size != -1:  # has no effect then: an epoch is the dataset
        steps = min(4 * count, max_steps or 4 * count)
        sizes = [min(4, steps - start) for start in range(0, steps, 4)]
    data, record = powers(), Record()
    quietly(summing(mode), count, data, record, sunk, sink_size, max_steps=max_steps)
    assert record.events == epochs(sizes, chunks=sunk and mode == context.GRAPH_MODE)
    assert visited(record.losses) == planned(data, sum(sizes))
    assert len(set(planned(data, sum(sizes)))) > 1


@BOTH
def test_training_again_begins_with_the_first_batch(mode):
    model, data, records = summing(mode), powers(), [Record(), Record()]
    for record in records:
        quietly(model, 1, data, record, True, 3)
    assert records[0].losses == records[1].losses
    assert visited(records[0].losses) == planned(data, 3)
    other = Record()
    quietly(model, 1, powers(shuffle=False), other)
    assert visited(other.losses) == [frozenset(range(k, k + 3)) for k in (0, 3, 6, 9)]


@BOTH
@SUNK
@pytest.mark.parametrize(("stop_after", "unsunk_steps", "sunk_steps"), [(1, 1, 3), (5, 5, 6)])
def test_a_request_to_stop(mode, sunk, stop_after, unsunk_steps, sunk_steps):
    """Ends training after the step, or after the sink; the epoch and the run still hear of their end."""
    record, data = Record(stop_after), powers(rows=11)  # 3 batches
    quietly(summing(mode), 4, data, record, sunk, 3 if sunk else -1)
    steps = sunk_steps if sunk and mode == context.GRAPH_MODE else unsunk_steps
    assert len(record.losses) == steps
    assert [event[0] for event in record.events[-3:]] == ["step_end", "epoch_end", "end"]


@BOTH
def test_what_callbacks_see(mode):
    model, data, seen = summing(mode), powers(), []

    class Look(Callback):
        def begin(self, run_context):
            seen.append(dict(run_context.original_args()))

    look = Look()
    quietly(model, 2, data, [look], True, 3)
    (parameters,) = seen
    assert parameters.pop("list_callback").list == [look]
    losses = parameters.pop("losses")
    assert len(losses) == 0
    assert parameters == {
        "mode": "train",
        "epoch_num": 2,
        "batch_num": 3,
        "cur_epoch_num": 0,
        "cur_step_num": 0,
        "net_outputs": None,
        "network": model.network,
        "train_network": model.train_network,
        "loss_fn": None,
        "optimizer": model.optimizer,
        "train_dataset": data,
        "dataset_sink_mode": mode == context.GRAPH_MODE,
        "train_dataset_element": None,
        "parallel_mode": "stand_alone",
        "device_number": 1,
    }


@BOTH
@SUNK
@pytest.mark.parametrize(("row", "epoch", "step"), [(0, 1, 1), (7, 1, 3)])
def test_a_loss_that_is_not_finite(mode, sunk, row, epoch, step, capsys):
    values = np.ones(ROWS)
    values[row] = np.nan
    left = []

    class Leave(Callback):
        def __exit__(self, kind, error, trace):
            left.append(error)

    with pytest.raises(TrainingError) as caught:
        quietly(summing(mode), 2, powers(False, values=values), [Leave(), LossMonitor()], sunk)
    assert str(caught.value) == (
        "TrainingError: the loss is not a finite number\n"
        "  loss         nan\n"
        f"  epoch        {epoch}\n"
        f"  step         {step}\n"
        f"  global step  {step}\n"
        "  repair       a smaller optimizer.learning_rate, or look for invalid values in the data"
    )
    assert left == [caught.value]
    printed = 0 if sunk and mode == context.GRAPH_MODE else step - 1
    assert capsys.readouterr().out == "".join(f"epoch: 1 step: {k}, loss is 3.0\n" for k in range(1, printed + 1))


@BOTH
@SUNK
def test_a_loss_that_overflows(mode, sunk):
    """The numbers grow until they are infinite; numpy's own remarks on that are not for the user."""
    network = nn.Dense(2, 1)
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 1e30), mode=mode)
    x, y = np.ones((8, 2), np.float32), np.zeros((8, 1), np.float32)
    with pytest.raises(TrainingError) as caught:
        quietly(model, 9, NumpySlicesDataset((x, y)).batch(2), [LossMonitor(0)], sunk)
    assert caught.value.rows["epoch"] == "1"
    assert caught.value.rows["loss"] in ("inf", "nan")


class Fails(Callback):
    def __init__(self, hook):
        setattr(self, hook, self.fail)

    def fail(self, run_context):
        raise KeyError("surprise")


@pytest.mark.parametrize("hook", ["begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end"])
def test_what_a_callback_raises_ends_the_run(hook):
    left, record = [], Record()

    class Leave(Callback):
        def __exit__(self, kind, error, trace):
            left.append(kind)

    with pytest.raises(KeyError, match="surprise"):
        quietly(summing(context.PYNATIVE_MODE), 1, powers(), [Leave(), Fails(hook), record])
    assert left == [KeyError]
    assert hook not in [event[0] for event in record.events]


def blobs(rows: int, classes: int = 3, features: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, classes, rows).astype(np.int32)
    centres = 2 * rng.standard_normal((classes, features))
    return (centres[labels] + rng.standard_normal((rows, features))).astype(np.float32), labels


def classifier(mode: int, metrics=None, **options) -> Model:
    seed.set_seed(1)
    network = nn.SequentialCell(nn.Dense(4, 8, "xavier_uniform"), nn.ReLU(), nn.Dense(8, 3, "xavier_uniform"))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return Model(network, loss, nn.Momentum(network.trainable_params(), 0.05, 0.9), metrics, mode=mode, **options)


def weights(model: Model) -> dict[str, np.ndarray]:
    return {p.name: p.asnumpy() for p in model.train_network.get_parameters()}


def test_sunk_unsunk_and_pynative_train_alike(caplog):
    """PyNative mode says once that it does not sink, then makes the same steps; graph mode sinks to the same bytes."""
    data = NumpySlicesDataset(blobs(30)).shuffle(30).batch(4, drop_remainder=True)
    made = {}
    for name, mode, sunk in (("unsunk", 0, False), ("sunk", 0, True), ("pynative", 1, True), ("plain", 1, False)):
        model, record = classifier(mode), Record()
        caplog.clear()
        model.train(4, data, record, sunk, 7)  # an epoch is 7 batches either way
        made[name] = record.losses, weights(model)
        expected = ["PyNative mode does not sink data: the same steps run one by one"] if name == "pynative" else []
        assert [entry.message for entry in caplog.records] == expected
    losses, values = made["unsunk"]
    assert len(losses) == 28
    assert losses[-1] < losses[0] / 2
    assert made["sunk"][0] == losses
    assert {k: v.tobytes() for k, v in made["sunk"][1].items()} == {k: v.tobytes() for k, v in values.items()}
    assert made["plain"][0] == made["pynative"][0]
    np.testing.assert_allclose(made["pynative"][0], losses, rtol=1e-5)
    for name, value in values.items():
        np.testing.assert_allclose(made["pynative"][1][name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def softmax_losses(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    scores = scores.astype(np.float64)
    return np.log(np.exp(scores).sum(1)) - scores[np.arange(len(labels)), labels]


@BOTH
@pytest.mark.parametrize("batch", [4, 11, 1])
def test_evaluation_counts_every_sample(mode, batch):
    x, y = blobs(11)
    model = classifier(mode, {"accuracy", "loss"})
    first, _, last = model.network.cells()
    scores = np.maximum(x @ first.weight.asnumpy().T, 0) @ last.weight.asnumpy().T
    data = NumpySlicesDataset((x, y)).batch(batch)
    for _ in range(2):
        found = model.eval(data)
        assert found["accuracy"] == pytest.approx((scores.argmax(1) == y).mean(), abs=1e-12)
        assert found["loss"] == pytest.approx(softmax_losses(scores, y).mean(), rel=1e-6)
    assert list(found) == ["accuracy", "loss"]


@BOTH
def test_a_loss_per_sample_trains_and_is_evaluated(mode, capsys):
    """The loss function of MindSpore has no reduction unless one is asked for."""
    seed.set_seed(1)
    network = nn.Dense(4, 3, "xavier_uniform")
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True)
    model = Model(network, loss, nn.SGD(network.trainable_params(), 0.01), {"loss"}, mode=mode)
    x, y = blobs(12)
    before = softmax_losses(x @ network.weight.asnumpy().T, y).mean()
    model.train(2, NumpySlicesDataset((x, y)).batch(12), [LossMonitor()], dataset_sink_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" ")[0] for line in lines] == ["epoch: 1 step: 1, loss is", "epoch: 2 step: 1, loss is"]
    assert float(lines[0].split()[-1]) == pytest.approx(before, rel=1e-5)
    assert float(lines[1].split()[-1]) < before
    assert model.eval(NumpySlicesDataset((x, y)).batch(5))["loss"] < float(lines[1].split()[-1])


def test_the_mode_of_the_evaluation_can_be_another():
    x, y = blobs(11)
    model = classifier(context.PYNATIVE_MODE, {"loss"}, eval_mode=context.GRAPH_MODE)
    data = NumpySlicesDataset((x, y)).batch(4)
    assert model.eval(data)["loss"] == pytest.approx(classifier(1, {"loss"}).eval(data)["loss"], rel=1e-6)
    assert type(model.eval_step).__name__ == "GraphStep"
    assert type(model.train_step).__name__ == "EagerStep"


class Dropping(nn.Cell):
    """Two outputs, and a layer that must do nothing outside of training."""

    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Dense(4, 3, "xavier_uniform"), nn.Dropout(0.5)

    def construct(self, x, y):
        hidden = self.drop(self.fc(x))
        return hidden + y, ops.ReduceSum()(hidden)


@BOTH
@SUNK
def test_what_callbacks_hear_of_an_evaluation(mode, sunk):
    model, data, heard = classifier(mode, {"accuracy", "loss"}), NumpySlicesDataset(blobs(10)).batch(4), []

    class Look(Callback):
        def __enter__(self):
            heard.append("enter")
            return self

        def __exit__(self, kind, error, trace):
            heard.append("exit")

    def note(hook):
        def listen(run_context):
            heard.append((hook, dict(run_context.original_args())))

        return listen

    look = Look()
    for hook in ("begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end"):
        setattr(look, hook, note(hook))
    metrics = model.eval(data, look, sunk)
    assert metrics == model.eval(data)
    assert (heard.pop(0), heard.pop()) == ("enter", "exit")
    steps = [(hook, step) for step in (1, 2, 3) for hook in ("step_begin", "step_end")]
    assert [(hook, seen["cur_step_num"]) for hook, seen in heard] == [("begin", 0), *steps, ("end", 3)]
    first, last = heard[0][1], heard[-1][1]
    assert last.pop("metrics") == metrics
    assert last.pop("list_callback").list == [look]
    assert [np.shape(array) for array in last.pop("net_outputs")] == [(), (2, 3), (2,)]
    assert first["metrics"] is first["net_outputs"] is None
    assert last == {
        "mode": "eval",
        "batch_num": 3,
        "cur_step_num": 3,
        "network": model.network,
        "eval_network": model.eval_network,
        "valid_dataset": data,
    }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((None, 1), "dataset_sink_mode must be True or False\n  given  1"),
        (([LossMonitor],), f"callbacks must be Callback objects\n  given  {LossMonitor!r}\n  at     0"),
    ],
)
def test_impossible_arguments_of_an_evaluation(arguments, text):
    with pytest.raises(ConfigError) as caught:
        classifier(1, {"loss"}).eval(NumpySlicesDataset(blobs(4)).batch(2), *arguments)
    assert str(caught.value) == f"ConfigError: {text}"


@BOTH
def test_prediction(mode):
    network = Dropping()
    model = Model(network, mode=mode)
    x, y = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)[:, :, :4]
    y = y[:, :3]
    network.set_train()
    made, total = model.predict(Tensor(x), y)
    hidden = x @ network.fc.weight.asnumpy().T + network.fc.bias.asnumpy()
    np.testing.assert_allclose(made.asnumpy(), hidden + y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total.asnumpy(), hidden.sum(), rtol=1e-4, atol=1e-5)
    assert network.drop.training
    (one,) = model.predict(x[:1], y[:1])[0].asnumpy()
    np.testing.assert_allclose(one, (hidden + y)[0], rtol=1e-5, atol=1e-6)


def modes_of(network: nn.Cell) -> list[tuple[bool, str]]:
    return [(cell.training, cell.phase) for _, cell in network.cells_and_names()]


@BOTH
@pytest.mark.parametrize("train", [True, False])
def test_evaluation_and_prediction_leave_each_cell_in_its_mode(mode, train, tmp_path):
    """A frozen part of the network, too, also when the evaluation fails."""
    model = classifier(mode, {"loss"})
    first, *_ = model.network.cells()
    model.network.set_train(train)
    first.set_train(not train)
    first.phase = "frozen"
    before = modes_of(model.network)
    x, y = blobs(8)
    model.predict(x)
    model.eval(NumpySlicesDataset((x, y)).batch(4))
    model.export([TensorType(dtype.float32, x.shape)])
    export(model.network, Tensor(x), file_name=str(tmp_path / "net"), file_format="ONNX")
    assert modes_of(model.network) == before
    with pytest.raises(RunnerError):
        model.predict(x[:, :1])
    assert modes_of(model.network) == before


@BOTH
def test_prediction_after_training_uses_the_new_weights(mode):
    model = classifier(mode)
    x, y = blobs(12)
    before = model.predict(x).asnumpy()
    quietly(model, 5, NumpySlicesDataset((x, y)).batch(4))
    first, _, last = model.network.cells()
    hidden = np.maximum(x @ first.weight.asnumpy().T + first.bias.asnumpy(), 0)
    expected = hidden @ last.weight.asnumpy().T + last.bias.asnumpy()
    np.testing.assert_allclose(model.predict(x).asnumpy(), expected, rtol=1e-5, atol=1e-5)
    assert np.abs(expected - before).max() > 0.1


@BOTH
def test_an_exported_network_needs_nobody(mode, tmp_path):
    network = Dropping()
    network.set_train()
    model = Model(network, mode=mode)
    content = model.export([TensorType(dtype.float32, (5, 4)), TensorType(dtype.float32, (5, 3))])
    proto = onnx.load_from_string(content)
    onnx.checker.check_model(proto, full_check=True)
    assert [i.name for i in proto.graph.input] == ["input0", "input1"]
    assert [o.name for o in proto.graph.output] == ["output0", "output1"]
    assert {i.name for i in proto.graph.initializer} >= {"fc.weight", "fc.bias"}
    x, y = (np.random.default_rng(k).standard_normal((5, n)).astype(np.float32) for k, n in ((0, 4), (1, 3)))
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    made = session.run(None, {"input0": x, "input1": y})
    for exported, predicted in zip(made, model.predict(x, y), strict=True):
        np.testing.assert_allclose(exported, predicted.asnumpy(), rtol=1e-5, atol=1e-6)
    assert network.drop.training
    assert content == model.export([TensorType(dtype.float32, (5, 4)), TensorType(dtype.float32, (5, 3))])


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"epoch": 0}, "epoch must be a whole number of at least 1\n  given  0"),
        ({"epoch": 1.0}, "epoch must be a whole number of at least 1\n  given  1.0"),
        ({"epoch": True}, "epoch must be a whole number of at least 1\n  given  True"),
        ({"dataset_sink_mode": 1}, "dataset_sink_mode must be True or False\n  given  1"),
        ({"sink_size": 0}, "sink_size must be -1 or a whole number of at least 1\n  given  0"),
        ({"sink_size": -2}, "sink_size must be -1 or a whole number of at least 1\n  given  -2"),
        ({"sink_size": 2.5}, "sink_size must be -1 or a whole number of at least 1\n  given  2.5"),
        ({"max_steps": 0}, "max_steps must be a whole number of at least 1\n  given  0"),
        ({"max_steps": "9"}, "max_steps must be a whole number of at least 1\n  given  '9'"),
        ({"callbacks": [LossMonitor]}, f"callbacks must be Callback objects\n  given  {LossMonitor!r}\n  at     0"),
        ({"train_dataset": [1, 2]}, "train_dataset must be a dataset of runner.dataset\n  given  [1, 2]"),
    ],
)
def test_impossible_arguments(keywords, text):
    with pytest.raises(ConfigError) as caught:
        summing(1).train(**{"epoch": 1, "train_dataset": powers(), **keywords})
    assert str(caught.value) == f"ConfigError: {text}"


@pytest.mark.parametrize("missing", ["metrics", "loss"])
def test_evaluation_needs_metrics_and_a_loss(missing):
    model = classifier(1) if missing == "metrics" else Model(nn.Dense(4, 3), metrics={"loss"})
    with pytest.raises(ConfigError) as caught:
        model.eval(NumpySlicesDataset(blobs(4)).batch(2))
    assert str(caught.value) == (
        "ConfigError: evaluation needs metrics and a loss function or an evaluation network\n"
        "  repair  Model(..., loss_fn, metrics={'accuracy'})"
    )


def test_the_mode_of_the_context_is_the_mode_of_a_model():
    context.set_context(mode=context.GRAPH_MODE)
    assert Model(nn.Dense(4, 3)).mode == context.GRAPH_MODE
    assert Model(nn.Dense(4, 3), mode=context.PYNATIVE_MODE).eval_mode == context.PYNATIVE_MODE


# The script of MindSpore's page on running a model, with fewer epochs, smaller sinks, and this machine's device.
PAGE = """
import os
import mindspore.dataset as ds
import mindspore.dataset.transforms.c_transforms as CT
import mindspore.dataset.vision.c_transforms as CV
import mindspore.nn as nn
from mindspore import context, Model
from mindspore import dtype as mstype
from mindspore.common.initializer import TruncatedNormal
from mindspore.dataset.vision import Inter
from mindspore.nn import Accuracy
import mindspore.ops as ops
from mindspore.train.callback import LossMonitor

def create_dataset(data_path, batch_size=32, repeat_size=1,
                   num_parallel_workers=1):
    mnist_ds = ds.MnistDataset(data_path)
    resize_height, resize_width = 32, 32
    rescale = 1.0 / 255.0
    shift = 0.0
    rescale_nml = 1 / 0.3081
    shift_nml = -1 * 0.1307 / 0.3081
    resize_op = CV.Resize((resize_height, resize_width), interpolation=Inter.LINEAR) # Bilinear mode
    rescale_nml_op = CV.Rescale(rescale_nml, shift_nml)
    rescale_op = CV.Rescale(rescale, shift)
    hwc2chw_op = CV.HWC2CHW()
    type_cast_op = CT.TypeCast(mstype.int32)
    mnist_ds = mnist_ds.map(input_columns="label", operations=type_cast_op, num_parallel_workers=num_parallel_workers)
    mnist_ds = mnist_ds.map(input_columns="image", operations=resize_op, num_parallel_workers=num_parallel_workers)
    mnist_ds = mnist_ds.map(input_columns="image", operations=rescale_op, num_parallel_workers=num_parallel_workers)
    mnist_ds = mnist_ds.map(input_columns="image", operations=rescale_nml_op, num_parallel_workers=num_parallel_workers)
    mnist_ds = mnist_ds.map(input_columns="image", operations=hwc2chw_op, num_parallel_workers=num_parallel_workers)
    buffer_size = 10000
    mnist_ds = mnist_ds.shuffle(buffer_size=buffer_size) # 10000 as in LeNet train script
    mnist_ds = mnist_ds.batch(batch_size, drop_remainder=True)
    mnist_ds = mnist_ds.repeat(repeat_size)
    return mnist_ds

def conv(in_channels, out_channels, kernel_size, stride=1, padding=0):
    weight = weight_variable()
    return nn.Conv2d(in_channels, out_channels,
                     kernel_size=kernel_size, stride=stride, padding=padding,
                     weight_init=weight, has_bias=False, pad_mode="valid")

def fc_with_initialize(input_channels, out_channels):
    weight = weight_variable()
    bias = weight_variable()
    return nn.Dense(input_channels, out_channels, weight, bias)

def weight_variable():
    return TruncatedNormal(0.02)

class LeNet5(nn.Cell):
    def __init__(self, num_class=10):
        super(LeNet5, self).__init__()
        self.num_class = num_class
        self.batch_size = 32
        self.conv1 = conv(1, 6, 5)
        self.conv2 = conv(6, 16, 5)
        self.fc1 = fc_with_initialize(16 * 5 * 5, 120)
        self.fc2 = fc_with_initialize(120, 84)
        self.fc3 = fc_with_initialize(84, self.num_class)
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.reshape = ops.Reshape()

    def construct(self, x):
        x = self.conv1(x)
        x = self.relu(x)
        x = self.max_pool2d(x)
        x = self.conv2(x)
        x = self.relu(x)
        x = self.max_pool2d(x)
        x = self.reshape(x, (self.batch_size, -1))
        x = self.fc1(x)
        x = self.relu(x)
        x = self.fc2(x)
        x = self.relu(x)
        x = self.fc3(x)
        return x

if __name__ == "__main__":
    context.set_context(mode=context.GRAPH_MODE, device_target="GPU")
    ds_train_path = "./datasets/MNIST_Data/train/"
    ds_train = create_dataset(ds_train_path, 32)
    network = LeNet5(10)
    net_loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    net_opt = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    model = Model(network, net_loss, net_opt)
    print("============== Starting Training ==============")
    model.train(epoch=10, train_dataset=ds_train, callbacks=[LossMonitor()], dataset_sink_mode=True, sink_size=1000)
"""
SEEDS = Path(__file__).parents[3].parent / "shared" / "seeds"


def write_idx(path: Path, values: np.ndarray) -> None:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes())


@pytest.mark.parametrize("mode", ["GRAPH_MODE", "PYNATIVE_MODE"])
def test_the_script_of_the_reference(mode, tmp_path, monkeypatch, capsys):
    """After replacing the package's name (and the device); it prints a line per epoch, as its page shows."""
    if SEEDS.is_dir():  # every line stands there, without its indentation
        page = {line.strip() for line in next(SEEDS.glob("003*")).read_text().splitlines()}
        joined = "\n".join(page)
        assert [line for line in PAGE.splitlines() if line.strip() not in page and line.strip() not in joined] == []
    folder = tmp_path / "datasets" / "MNIST_Data" / "train"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    write_idx(folder / "train-images-idx3-ubyte", rng.integers(0, 256, (100, 28, 28)))
    write_idx(folder / "train-labels-idx1-ubyte", rng.integers(0, 10, 100))
    script = (
        PAGE.replace("mindspore", "runner").replace('"GPU"', '"CPU"').replace("context.GRAPH_MODE", f"context.{mode}")
    )
    script = script.replace("epoch=10", "epoch=3").replace("sink_size=1000", "sink_size=2")
    monkeypatch.chdir(tmp_path)
    logging.disable(logging.WARNING)
    try:
        exec(compile(script, "page.py", "exec"), {"__name__": "__main__"})
    finally:
        logging.disable(logging.NOTSET)
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "============== Starting Training =============="
    steps = [2] if mode == "GRAPH_MODE" else [1, 2]
    heads = [f"epoch: {epoch} step: {step}, loss is" for epoch in (1, 2, 3) for step in steps]
    assert [line.rpartition(" ")[0] for line in lines] == heads
    assert all(2.2 < float(line.rpartition(" ")[2]) < 2.4 for line in lines)
