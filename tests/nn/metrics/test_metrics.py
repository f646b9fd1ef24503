"""The protocol of metrics, accuracy and loss, against sums over single samples, in whatever batches they come."""

import math

import numpy as np
import pytest
from tables import table

from runner import dataset, nn
from runner.config.groups.entries import BUILT_IN, numbers
from runner.core.values import Tensor
from runner.errors import ConfigError
from runner.nn.metrics.base import direction_of
from runner.nn.metrics.by_name import METRICS, get_metrics
from runner.nn.metrics.classification import Accuracy
from runner.nn.metrics.regression import Loss
from runner.train.model import Model, metrics_for

RNG = np.random.default_rng(0)
SCORES = RNG.standard_normal((11, 4)).astype(np.float32)
LABELS = RNG.integers(0, 4, 11).astype(np.int32)
LOSSES = RNG.random(11).astype(np.float32)
CUTS = [(11,), (4, 4, 3), (1,) * 11, (10, 1)]


def parts(cut, *arrays):
    edges = np.cumsum(cut)[:-1]
    return list(zip(*(np.split(array, edges) for array in arrays), strict=True))


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("one_hot", [False, True])
def test_accuracy_counts_samples(cut, one_hot):
    expected = sum(max(range(4), key=lambda k: row[k]) == label for row, label in zip(SCORES, LABELS, strict=True)) / 11
    labels = np.eye(4, dtype=np.float32)[LABELS] if one_hot else LABELS
    metric = Accuracy()
    for scores, label in parts(cut, SCORES, labels):
        metric.update(scores, label)
    assert metric.eval() == pytest.approx(expected, abs=1e-12)
    assert 0 < expected < 1


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("reduced", [False, True])
def test_the_loss_is_a_mean_over_samples(cut, reduced):
    """A short last batch weighs as much as its samples, whether the loss comes per batch or per sample."""
    metric = Loss()
    for losses, label in parts(cut, LOSSES, LABELS):
        metric.update(losses.mean() if reduced else losses, label)
    assert metric.eval() == pytest.approx(math.fsum(map(float, LOSSES)) / 11, rel=1e-6)


def test_many_small_losses_are_not_lost():
    metric = Loss()
    for _ in range(20_000):
        metric.update(np.float32(0.1), LABELS[:1])
    assert metric.eval() == pytest.approx(float(np.float32(0.1)), rel=1e-9)


@pytest.mark.parametrize("kind", [Accuracy, Loss])
def test_clear_forgets(kind):
    metric = kind()
    metric.update(np.float32(3) if kind is Loss else SCORES[:2], LABELS[:2])
    metric.clear()
    with pytest.raises(ConfigError) as caught:
        metric.eval()
    assert str(caught.value) == f"ConfigError: a metric without data\n  metric  {kind.__name__}"
    metric.update(np.float32(0) if kind is Loss else np.eye(2, dtype=np.float32), np.array([0, 1], np.int32))
    assert metric.eval() == (1.0 if kind is Accuracy else 0.0)


def test_a_metric_of_the_user():
    class Largest(nn.Metric):
        def clear(self):
            self.value = 0.0

        def update(self, output, target):
            self.value = max(self.value, float(np.max(output)))

        def eval(self):
            return self.value

    chosen = get_metrics({"largest": Largest(), "acc": Accuracy()})
    assert list(chosen) == ["largest", "acc"]
    chosen["largest"].clear()
    chosen["largest"].update(SCORES, LABELS)
    assert chosen["largest"].eval() == SCORES.max()


def test_the_base_class_leaves_everything_to_others():
    base = nn.Metric()
    for call in (base.clear, base.eval, lambda: base.update(None, None)):
        with pytest.raises(NotImplementedError):
            call()


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (None, []),
        ([], []),
        ({"loss", "accuracy"}, ["accuracy", "loss"]),
        (["loss", "acc"], ["loss", "acc"]),
        (("accuracy",), ["accuracy"]),
        ("accuracy", ["accuracy"]),
    ],
)
def test_metrics_by_name(wanted, names):
    made = get_metrics(wanted)
    assert list(made) == names
    assert all(type(metric) is METRICS[name] for name, metric in made.items())


KNOWN = ", ".join(METRICS)
PAIRS = [name for name in METRICS if "distance" not in name and not name.startswith(("cosine", "occlusion"))]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_metrics_know_what_the_loss_function_is(reduction):
    made = metrics_for(nn.SoftmaxCrossEntropyWithLogits(True, reduction), PAIRS)
    assert {name: type(metric) for name, metric in made.items()} == {name: METRICS[name] for name in PAIRS}
    assert made["loss"].summed is (reduction == "sum")
    assert not made["f1"].classifier.is_multilabel
    assert metrics_for(nn.BCEWithLogitsLoss(), ["f1"])["f1"].classifier.is_multilabel


def test_what_was_chosen_is_not_overruled_by_the_loss_function():
    chosen = {"loss": Loss(summed=False), "f1": nn.F1("classification")}
    made = metrics_for(nn.BCEWithLogitsLoss("sum"), chosen)
    assert not made["loss"].summed
    assert not made["f1"].classifier.is_multilabel


def test_a_loss_function_of_the_user_says_what_its_targets_are():
    class Hinge(nn.Cell):
        activation, reduction = "sigmoid", "sum"

    made = metrics_for(Hinge(), ["accuracy", "loss"])
    assert made["accuracy"].classifier.is_multilabel
    assert made["loss"].summed


@pytest.mark.parametrize("mode", [0, 1])
def test_a_model_gives_each_metric_what_it_wants(mode):
    """Metrics of r1.2 receive output and label, and call `asnumpy` and `_convert_data`."""
    seen = []

    class OfTheReference(nn.Metric):
        def __init__(self):
            super().__init__()
            self.clear()

        def clear(self):
            self._right = self._count = 0

        def update(self, *inputs):
            assert len(inputs) == 2
            predicted, labels = self._convert_data(inputs[0]), inputs[1].asnumpy()
            assert type(labels) is np.ndarray
            self._right += (predicted.argmax(axis=1) == labels).sum()
            self._count += labels.shape[0]

        def eval(self):
            return self._right / self._count

    class Everything(OfTheReference):
        indexes = (2, 0, 1)

        def update(self, target, loss, output):
            seen.append((target.shape, loss.shape, output.shape))
            super().update(output, target)

    network = nn.Dense(4, 3)
    metrics = {"own": OfTheReference(), "all": Everything(), "accuracy": Accuracy(), "loss": Loss()}
    model = Model(network, nn.SoftmaxCrossEntropyWithLogits(True, "mean"), metrics=metrics, mode=mode)
    data = dataset.NumpySlicesDataset((SCORES, LABELS % 3), ["x", "label"], shuffle=False).batch(4)
    values = model.eval(data)
    assert seen == [((4,), (), (4, 3)), ((4,), (), (4, 3)), ((3,), (), (3, 3))]
    output = SCORES.astype(np.float64) @ network.weight.asnumpy().T.astype(np.float64)
    output += network.bias.asnumpy()
    expected = np.mean(output.argmax(1) == LABELS % 3)
    assert values["own"] == values["all"] == values["accuracy"] == pytest.approx(expected)
    log_sum = np.log(np.exp(output).sum(1)) - output[np.arange(11), LABELS % 3]
    assert values["loss"] == pytest.approx(log_sum.mean(), rel=1e-5)


def test_which_metrics_are_one_number():
    assert set(BUILT_IN) - set(numbers()) == {"confusion_matrix"}
    up = {"accuracy", "top_5", "precision", "recall", "f1", "r2"}
    assert {name for name, make in BUILT_IN.items() if direction_of(make) == "maximize"} == up
    assert {name for name in BUILT_IN if METRICS[name].direction == "maximize"} == up


@pytest.mark.parametrize("data", [[1.0, 2.0], np.array([1.0, 2.0]), Tensor([1.0, 2.0])])
def test_data_of_metrics_are_arrays(data):
    made = nn.Metric()._convert_data(data)
    assert isinstance(made, np.ndarray)
    assert made.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"acuracy"}, f"unknown metric\n  given    acuracy\n  allowed  {KNOWN}\n  nearest  accuracy"),
        ([3], f"unknown metric\n  given    3\n  allowed  {KNOWN}"),
        ("perplexities", f"unknown metric\n  given    perplexities\n  allowed  {KNOWN}\n  nearest  perplexity"),
        (
            {"auc", "acc"},
            "auc is a function of a curve, no metric\n"
            '  repair  metrics={"roc"}, then nn.auc(fpr, tpr) of its value (fpr, tpr, thresholds)',
        ),
        ({"loss": "loss"}, "not a metric\n  name     loss\n  given    'loss'\n  allowed  objects of runner.nn.Metric"),
        ({"loss": Loss}, f"not a metric\n  name     loss\n  given    {Loss!r}\n  allowed  objects of runner.nn.Metric"),
    ],
)
def test_what_is_no_metric(wanted, text):
    with pytest.raises(ConfigError) as caught:
        get_metrics(wanted)
    assert str(caught.value) == f"ConfigError: {text}"


RELEASE = """F1 acc accuracy auc bleu_score confusion_matrix confusion_matrix_metric cosine_similarity dice
hausdorff_distance loss mae mean_surface_distance mse occlusion_sensitivity perplexity precision recall roc
root_mean_square_distance top_1_accuracy top_5_accuracy topk"""  # names() of MindSpore r1.2


def test_the_names_of_the_release():
    assert set(RELEASE.split()) <= set(nn.names())
    assert nn.names() == sorted(nn.names())
    for name in set(nn.names()) - {"auc"}:
        assert isinstance(nn.get_metric_fn(name), nn.Metric)
    assert nn.get_metric_fn("topk", k=3).k == 3
    assert nn.get_metric_fn("precision", eval_type="multilabel").classifier.is_multilabel
    assert nn.get_metric_fn("auc", np.array([0, 1]), np.array([0, 1])) == 0.5
    with pytest.raises(ConfigError, match="unknown metric\n  given    precison"):
        nn.get_metric_fn("precison")


@pytest.mark.parametrize("mode", [0, 1])
def test_metrics_of_the_release_by_name(mode):
    """The names in the dict that `eval` returns, with the values that MindSpore's definitions give."""
    network = nn.SequentialCell(nn.Dense(4, 6), nn.Softmax())
    names = {"acc", "loss", "F1", "mae", "mse", "topk", "top_1_accuracy", "precision", "recall", "dice"}
    model = Model(network, nn.MSELoss(), metrics=names, mode=mode)
    one_hot = np.eye(6, dtype=np.float32)[LABELS[:8]]
    values = model.eval(dataset.NumpySlicesDataset((SCORES[:8], one_hot), ["x", "y"], shuffle=False).batch(4))
    assert list(values) == sorted(names)
    dense = network[0]
    output = SCORES[:8].astype(np.float64) @ dense.weight.asnumpy().T.astype(np.float64) + dense.bias.asnumpy()
    output = np.exp(output) / np.exp(output).sum(1, keepdims=True)
    predicted, true = output.argmax(1), LABELS[:8]
    hits = np.array([((predicted == k) & (true == k)).sum() for k in range(6)])
    made, there = (np.bincount(numbers, minlength=6) for numbers in (predicted, true))
    np.testing.assert_allclose(values["precision"], hits / np.maximum(made, 1))
    np.testing.assert_allclose(values["recall"], hits / np.maximum(there, 1))
    np.testing.assert_allclose(values["F1"], 2 * hits / np.maximum(made + there, 1))
    assert values["acc"] == values["top_1_accuracy"] == np.mean(predicted == true)
    assert values["topk"] == np.mean([k in np.argsort(-row)[:5] for k, row in zip(true, output, strict=True)])
    assert values["mae"] == pytest.approx(np.abs(output - one_hot).sum() / 8, rel=1e-5)
    assert values["mse"] == pytest.approx(np.square(output - one_hot).sum() / 8, rel=1e-5)
    assert values["loss"] == pytest.approx(np.square(output - one_hot).mean(), rel=1e-5)


@pytest.mark.parametrize("mode", [0, 1])
def test_perplexity_and_curves_by_name(mode):
    network = nn.SequentialCell(nn.Dense(4, 4), nn.Softmax())
    model = Model(network, nn.SoftmaxCrossEntropyWithLogits(True, "mean"), metrics={"perplexity"}, mode=mode)
    made = model.eval(dataset.NumpySlicesDataset((SCORES, LABELS), ["x", "y"], shuffle=False).batch(4))
    shares = network(Tensor(SCORES)).asnumpy().astype(np.float64)[np.arange(11), LABELS]
    assert made["perplexity"] == pytest.approx(np.exp(-np.log(shares).mean()), rel=1e-5)
    model = Model(nn.Dense(4, 1), nn.MSELoss(), metrics={"roc"}, mode=mode)
    answers = (LABELS > 1).astype(np.float32)[:, None]
    data = dataset.NumpySlicesDataset((SCORES, answers), ["x", "y"], shuffle=False).batch(4)
    false, true, thresholds = model.eval(data)["roc"]
    assert len(false) == len(true) == len(thresholds) == 12
    pairs = [(p, n) for p in range(11) for n in range(11) if answers[p] > answers[n]]
    output = model.network(Tensor(SCORES)).asnumpy()
    assert nn.auc(false, true) == pytest.approx(np.mean([output[p, 0] > output[n, 0] for p, n in pairs]))


def test_set_indexes_chooses_inputs_of_update():
    """As in MindSpore r1.2, for its metrics and for those of users with the decorator."""

    class Swapped(nn.Metric):
        def clear(self):
            self.seen = None

        @nn.rearrange_inputs
        def update(self, *inputs):
            self.seen = inputs

        def eval(self):
            return self.seen

    other = np.zeros(11, np.int32)
    metric = nn.Accuracy("classification").set_indexes([0, 2])
    assert metric.indexes == [0, 2]
    assert metric(SCORES, other, LABELS) == nn.Accuracy()(SCORES, LABELS)
    assert Swapped().set_indexes([1, 0])(5, 9) == (9, 5)
    assert Swapped()(5, 9) == (5, 9)
    assert nn.Loss().set_indexes([1])(9, 0.25) == 0.25

    class WithoutBase:
        _indexes = None

        @nn.rearrange_inputs
        def update(self, *inputs):
            return inputs

    plain = WithoutBase()
    plain._indexes = [-1]
    assert plain.update(5, 9) == (9,)


@pytest.mark.parametrize("mode", [0, 1])
def test_set_indexes_in_a_model(mode):
    """Of all outputs of an evaluation network, and of output and label without one."""

    class Both(nn.Cell):
        def __init__(self, network):
            super().__init__()
            self.network = network

        def construct(self, x, label, other):
            return self.network(x), label, other

    network = nn.Dense(4, 4)
    columns = (SCORES, LABELS, LABELS[::-1].copy())
    data = dataset.NumpySlicesDataset(columns, ["x", "label", "other"], shuffle=False).batch(4)
    metrics = {"first": nn.Accuracy().set_indexes([0, 1]), "second": nn.Accuracy().set_indexes([0, 2])}
    values = Model(network, metrics=metrics, eval_network=Both(network), mode=mode).eval(data)
    best = network(Tensor(SCORES)).asnumpy().argmax(1)
    assert values == {"first": np.mean(best == LABELS), "second": np.mean(best == LABELS[::-1])}

    class Reversed(nn.Metric):
        def clear(self):
            self.shapes = []

        @nn.rearrange_inputs
        def update(self, label, output):
            self.shapes.append((label.shape, output.shape))

        def eval(self):
            return self.shapes

    loss = nn.SoftmaxCrossEntropyWithLogits(True, "mean")
    model = Model(network, loss, metrics={"reversed": Reversed().set_indexes([1, 0])}, mode=mode)
    data = dataset.NumpySlicesDataset((SCORES, LABELS), ["x", "label"], shuffle=False).batch(4)
    assert model.eval(data)["reversed"] == [((4,), (4, 4)), ((4,), (4, 4)), ((3,), (3, 4))]


@pytest.mark.parametrize(
    ("indexes", "text"),
    [
        ((0, 1), "set_indexes takes whole numbers\n  given    (0, 1)\n  allowed  a list of positions, such as [0, 2]"),
        (["0"], "set_indexes takes whole numbers\n  given    ['0']"),
        (
            [0, 2],
            "update does not receive this input\n  metric   Accuracy\n  indexes  [0, 2]\n  inputs   2",
        ),
    ],
)
def test_indexes_that_make_no_sense(indexes, text):
    with pytest.raises(ConfigError) as caught:
        nn.Accuracy().set_indexes(indexes).update(SCORES, LABELS)
    assert str(caught.value).startswith(f"ConfigError: {text}")


def test_one_hot_data_of_metrics():
    metric = nn.Metric()
    assert metric._check_onehot_data(np.eye(3)[[0, 2, 2]])
    assert metric._check_onehot_data(np.moveaxis(np.eye(3)[[[0, 2], [1, 1]]], -1, 1))
    for data in (np.ones((2, 2)), np.zeros((2, 2)), np.full((2, 2), 0.5), np.array([0, 1]), np.array([[2, -1]])):
        assert not metric._check_onehot_data(data)


def test_a_loss_without_a_target_counts_batches():
    """As MindSpore r1.2, whose metric receives the loss only."""
    metric = Loss()
    for loss in (np.float32(0.25), Tensor([0.5, 1.0]), [0.5]):
        metric.update(loss)
    assert metric.eval() == pytest.approx((0.25 + 0.75 + 0.5) / 3)


@table(
    ["metric", "inputs", "allowed"],
    [
        (nn.Accuracy("classification"), (1,), "2"),
        (nn.MAE(), (1, 2, 3), "2"),
        (nn.Loss(), (), "1 or 2"),
        (nn.HausdorffDistance(), (1, 2), "3"),
        (nn.BleuScore(), (1,), "2"),
        (nn.CosineSimilarity(), (1, 2), "1"),
    ],
)
def test_another_number_of_inputs(metric, inputs, allowed):
    """In r1.2 this is a ValueError."""
    with pytest.raises(ValueError) as caught:
        metric.update(*(np.ones((2, 2), np.float32) for _ in inputs))
    rows = caught.value.rows
    assert (rows["metric"], rows["given"], rows["allowed"]) == (type(metric).__name__, str(len(inputs)), allowed)


def test_errors_are_those_that_scripts_catch():
    for kind in (ValueError, TypeError, RuntimeError):
        with pytest.raises(kind, match="k must be a whole number"):
            nn.TopKCategoricalAccuracy(2.1)
        with pytest.raises(kind, match="a metric without data"):
            nn.MSE().eval()
    with pytest.raises(ValueError, match="a target without axes"):
        nn.Loss().update(np.array(1.0), np.array(2))
