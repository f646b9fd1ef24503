"""`SummaryCollector`: what it records of a training, when, and under which names."""

import json
from pathlib import Path

import event_records
import numpy as np
import pytest
from tables import table

from runner import Model, context, nn, ops, set_seed
from runner.dataset import NumpySlicesDataset
from runner.errors import ConfigError
from runner.train.callback import Callback, LossMonitor, SummaryCollector

pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
RNG = np.random.default_rng(0)
IMAGES = RNG.random((24, 1, 4, 4), np.float32)
LABELS = RNG.integers(0, 3, 24).astype(np.int32)
STEPS = 6  # of an epoch
BOTH = pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE], ids=["graph", "pynative"])


class Net(nn.Cell):
    """Four layers with seven parameters; it marks its output."""

    def __init__(self):
        super().__init__()
        self.layers = nn.CellList([nn.Dense(16, 5), nn.Dense(5, 4), nn.Dense(4, 4, has_bias=False)])
        self.last, self.mark, self.count = nn.Dense(4, 3), ops.TensorSummary(), ops.ScalarSummary()

    def construct(self, x):
        y = ops.Reshape()(x, (-1, 16))
        for layer in self.layers:
            y = layer(y)
        self.mark("output", y)
        self.count("sum", ops.ReduceSum()(x))
        return self.last(y)


class Losses(Callback):
    """The losses and the batches of all steps."""

    def __init__(self):
        self.losses = []

    def step_end(self, run_context):
        """Note them."""
        cb_params = run_context.original_args()
        self.losses.append(float(cb_params.net_outputs.asnumpy()))


def trained(
    folder, mode=context.PYNATIVE_MODE, epochs=2, sunk=False, rate=0.25, loss=True, first=0, callbacks=(), **keys
):
    """Train with a collector; the values of its file by tag, and the losses of all steps."""
    set_seed(3)
    net = Net()
    model = Model(
        net,
        nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean") if loss else None,
        nn.SGD(net.trainable_params(), rate),
        {"acc"} if loss else None,
        mode=mode,
    )
    columns = {"image": IMAGES, "label": LABELS} if loss else {"image": IMAGES}
    data = NumpySlicesDataset(columns, shuffle=False).batch(4)
    losses = Losses()
    before = set(folder.iterdir()) if folder.exists() else set()
    collector = SummaryCollector(str(folder), **keys)
    model.train(epochs, data, [collector, losses, *callbacks], sunk, first_step=first)
    (path,) = set(folder.iterdir()) - before
    found = {}
    for one in event_records.summaries(path):
        found.setdefault(one.tag, []).append((one.step, one.value))
    return found, losses.losses, (model, data, net, collector, path)


def steps(found, tag):
    return [step for step, _ in found[tag]]


@BOTH
def test_what_is_collected(tmp_path, mode):
    found, losses, (*_, net, _, _) = trained(tmp_path, mode, collect_freq=5, rate=[0.5] * 5 + [0.25] * 7)
    due = [1, 5, 10]
    assert found["loss/auto"] == [(step, losses[step - 1]) for step in due]
    assert found["learning_rate/auto"] == [(1, 0.5), (5, 0.5), (10, 0.25)]
    first_five = [f"{p.name}/auto" for p in net.trainable_params()[:5]]
    assert {tag for tag in found if tag.endswith(("weight/auto", "bias/auto"))} == set(first_five)
    assert all(steps(found, tag) == due for tag in (*first_five, "output", "sum", "input_data/auto"))
    for step, pixels in found["input_data/auto"]:
        batch = IMAGES[4 * ((step - 1) % STEPS) :][:4, 0]
        np.testing.assert_array_equal(pixels[..., 0], np.concatenate(np.floor(batch * 255.0), axis=1))
    for step, value in found["sum"]:
        batch = IMAGES[4 * ((step - 1) % STEPS) :][:4]
        assert value == pytest.approx(batch.astype(np.float64).sum(), rel=1e-6)


@BOTH
def test_histograms_are_of_the_parameters_after_the_step(tmp_path, mode):
    found, _, (*_, net, _, _) = trained(
        tmp_path, mode, 1, collect_freq=STEPS, collect_specified_data={"histogram_regular": ""}
    )
    for parameter in net.trainable_params():
        step, value = found[f"{parameter.name}/auto"][-1]
        data = parameter.asnumpy().astype(np.float64)
        assert (step, value["num"]) == (STEPS, data.size)
        assert (value["min"], value["max"]) == (data.min(), data.max())


@pytest.mark.parametrize(("freq", "epochs"), [(1, [1, 2, 3]), (2, [1, 2]), (10, [1])])
def test_a_sink_counts_in_epochs(tmp_path, freq, epochs):
    found, _, _ = trained(tmp_path, context.GRAPH_MODE, 3, sunk=True, collect_freq=freq)
    due = [STEPS * epoch for epoch in epochs]
    _, losses, _ = trained(tmp_path / "steps", context.GRAPH_MODE, 3)
    for step, loss in found["loss/auto"]:
        assert loss == pytest.approx(losses[step - 1], rel=1e-5)
    assert steps(found, "loss/auto") == steps(found, "sum") == due
    assert "input_data/auto" not in found


@pytest.mark.parametrize(
    ("freq", "tensor_freq", "due", "tensors"),
    [
        (5, 3, [1, 5, 10], [1, 3, 6, 9, 12]),
        (2, 12, [1, 2, 4, 6, 8, 10, 12], [1, 12]),
        (20, None, [1], [1]),
    ],
)
def test_tensors_have_a_frequency(tmp_path, freq, tensor_freq, due, tensors):
    found, _, _ = trained(tmp_path, collect_freq=freq, collect_tensor_freq=tensor_freq)
    assert steps(found, "loss/auto") == steps(found, "sum") == due
    assert steps(found, "output") == tensors


def test_tensors_of_a_long_training(tmp_path):
    """600 steps: about twenty tensors, as MindSpore documents."""
    found, _, _ = trained(tmp_path, epochs=100, collect_freq=10)
    assert len(found["loss/auto"]) == 61
    assert steps(found, "output") == [1, *range(31, 600, 31)][:20]


def test_chosen_data(tmp_path):
    chosen = {"collect_metric": False, "histogram_regular": "last"}
    found, _, _ = trained(tmp_path / "a", collect_specified_data=chosen)
    assert "loss/auto" not in found
    assert [tag for tag in found if "weight" in tag or "bias" in tag] == ["last.weight/auto", "last.bias/auto"]
    assert "input_data/auto" in found
    found, _, _ = trained(tmp_path / "b", collect_specified_data={"collect_metric": True}, keep_default_action=False)
    assert set(found) == {"loss/auto", "learning_rate/auto", "output", "sum"}


def test_lineage(tmp_path):
    found, losses, (model, data, _, collector, path) = trained(tmp_path, custom_lineage_data={"trial": 4})
    ((_, mine),) = found["custom_lineage_data/text_summary"]
    assert json.loads(mine) == {"trial": 4}
    ((step, training),) = found["train_lineage/text_summary"]
    lineage = json.loads(training)
    assert lineage.pop("loss") == pytest.approx(losses[-1], rel=1e-6)
    assert step == 12
    assert lineage == {
        "train_network": "Net",
        "loss_function": "SoftmaxCrossEntropyWithLogits",
        "optimizer": "SGD",
        "learning_rate": 0.25,
        "epoch": 2,
        "step_num": 12,
        "batch_num": 6,
    }
    accuracy = model.eval(data, callbacks=[collector])
    (other,) = set(tmp_path.iterdir()) - {path}
    (one,) = event_records.summaries(other)  # an evaluation records no values of operators
    assert (one.tag, json.loads(one.value)) == (
        "eval_lineage/text_summary",
        {"metrics": accuracy, "eval_dataset_size": 6},
    )


def test_a_second_training(tmp_path):
    """The same collector again: a file of its own, in which the first step is recorded."""
    *_, (model, data, _, collector, path) = trained(tmp_path)
    model.train(1, data, [collector], False)
    (other,) = set(tmp_path.iterdir()) - {path}
    assert [one.step for one in event_records.summaries(other) if one.tag == "loss/auto"] == [1]
    assert event_records.starts(path) == event_records.starts(other) == []


def test_a_training_that_continues(tmp_path):
    """Viewers drop the steps from 5 on of the file of a process that was killed after its checkpoint at step 4."""
    trained(tmp_path, epochs=1, collect_freq=1)
    found, _, (*_, path) = trained(tmp_path, epochs=1, collect_freq=1, first=4)
    assert event_records.starts(path) == [5]
    assert steps(found, "loss/auto") == [5, 6]


def test_a_training_that_fails(tmp_path):
    class Fails(Callback):
        def step_end(self, run_context):
            if run_context.original_args().cur_step_num == 3:
                raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        trained(tmp_path, collect_freq=1, callbacks=[Fails()])
    (path,) = tmp_path.iterdir()
    assert [one.step for one in event_records.summaries(path) if one.tag == "loss/auto"] == [1, 2, 3]


class LossPerSample(nn.Cell):
    """A network that is its own loss, with one number per sample, and whose first input is no image."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, 1)

    def construct(self, x):
        return ops.Reshape()(self.dense(x), (-1,))


@BOTH
def test_another_network(tmp_path, mode, caplog):
    net = LossPerSample()
    model = Model(net, None, nn.Adam(net.trainable_params(), 0.1), mode=mode)
    data = NumpySlicesDataset({"x": RNG.random((8, 3), np.float32)}, shuffle=False).batch(4)
    values = []

    class Look(Callback):
        def step_end(self, run_context):
            values.append(run_context.original_args().net_outputs.asnumpy().astype(np.float64).mean())

    model.train(1, data, [SummaryCollector(tmp_path, 1), LossMonitor(), Look()], False)
    (path,) = tmp_path.iterdir()
    found = [one for one in event_records.summaries(path) if one.tag == "loss/auto"]
    np.testing.assert_allclose([one.value for one in found], values, rtol=1e-6)


def test_collecting_changes_no_number(tmp_path):
    """Also not with data sinking, where parameters stay on the device."""
    *_, (_, _, net, _, _) = trained(tmp_path, context.GRAPH_MODE, sunk=True, collect_freq=1)
    set_seed(3)
    plain = Net()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    data = NumpySlicesDataset({"image": IMAGES, "label": LABELS}, shuffle=False).batch(4)
    Model(plain, loss, nn.SGD(plain.trainable_params(), 0.25), mode=context.GRAPH_MODE).train(2, data, None, True)
    for one, other in zip(net.trainable_params(), plain.trainable_params(), strict=True):
        assert one.asnumpy().tobytes() == other.asnumpy().tobytes()


WRONG = {
    "no directory": ({"summary_dir": 3}, "summary_dir must be the name of a directory"),
    "no frequency": ({"collect_freq": 0}, "collect_freq must be a whole number of at least 1"),
    "None as frequency": ({"collect_freq": None}, "collect_freq must be a whole number of at least 1"),
    "a frequency of tensors": ({"collect_tensor_freq": -1}, "collect_tensor_freq must be a whole number of at least 1"),
    "a size": ({"max_file_size": 0}, "max_file_size must be a whole number of at least 1"),
    "data as a list": ({"collect_specified_data": ["collect_metric"]}, "collect_specified_data must be a dict"),
    "other data": ({"collect_specified_data": {"collect_loss": True}}, "no such data"),
    "a number for data": ({"collect_specified_data": {"collect_metric": 1}}, "collect_metric must be True or False"),
    "no expression": ({"collect_specified_data": {"histogram_regular": "("}}, "must be a regular expression"),
    "a number as expression": ({"collect_specified_data": {"histogram_regular": 3}}, "must be a regular expression"),
    "an action": ({"keep_default_action": None}, "keep_default_action must be True or False"),
    "lineage": ({"custom_lineage_data": [1]}, "custom_lineage_data must be a dict"),
    "a list in lineage": ({"custom_lineage_data": {"a": [1]}}, "a value of another type"),
    "an export": ({"export_options": {"tensor_format": "txt"}}, "npy"),
}


@table(("arguments", "text"), WRONG.values(), WRONG)
def test_wrong_arguments(tmp_path, arguments, text):
    with pytest.raises(ConfigError) as caught:
        SummaryCollector(**{"summary_dir": tmp_path, **arguments})
    assert text in str(caught.value)


def test_two_collectors(tmp_path):
    with pytest.raises(ConfigError, match="more than one SummaryCollector"):
        trained(tmp_path / "a", callbacks=[SummaryCollector(Path(tmp_path, "b"))])
