"""The end of a file and the loss: an activation is applied once, or not at all where the loss wants none.

Losses of six steps of SGD are those of torch 2.14 on the same numbers, where the file's output is what torch computes.
"""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from both_modes import MODES, step_of
from onnx import TensorProto, helper
from onnx_files import model, saved
from tables import table

import runner
from runner import Model, Tensor, context, nn, ops
from runner.errors import ConfigError
from runner.experiment.predict import predict
from runner.host.console import LOG
from runner.importer.network import OnnxNetwork

rng = np.random.default_rng(5)
X, W, B = (rng.normal(size=shape).astype(np.float32) for shape in ((8, 3), (3, 4), (4,)))
CLASSES = rng.integers(0, 4, 8).astype(np.int32)
LABELS = (rng.random((8, 4)) < 0.5).astype(np.float32)
ONE = np.array([1])
node = helper.make_node
# The losses of torch: F.binary_cross_entropy(torch.sigmoid(z), labels), and so on.
BCE_OF_SIGMOID = (0.928133, 0.912381, 0.897027, 0.882066, 0.86749, 0.853296)
NLL_OF_SOFTMAX = (2.182914, 1.826516, 1.523372, 1.279461, 1.098537, 0.975922)
MSE_OF_SOFTMAX = (0.333991, 0.332491, 0.331064, 0.329702, 0.328399, 0.327149)
MSE_OF_SIGMOID = (0.292657, 0.291552, 0.290457, 0.289374, 0.288302, 0.287241)
L1_OF_SIGMOID = (0.45506, 0.453781, 0.452518, 0.451271, 0.450039, 0.448822)
NLL_OF_TWO = (1.137958, 0.974393, 0.835917, 0.719845, 0.623239, 0.543271)
BCE_OF_LOGITS_TWICE = (0.739977, 0.739609, 0.739244, 0.738883, 0.738526, 0.738173)


class LogLikelihood(nn.Cell):
    """The mean of minus the log-probabilities of the classes."""

    activation, takes = "softmax", "log_probabilities"

    def construct(self, logs, labels):
        return -ops.ReduceMean()(ops.ReduceSum()(logs * ops.OneHot()(labels, 4), 1))


class Likelihood(nn.Cell):
    """The mean of minus the logarithms of the probabilities of the classes."""

    activation, takes = "softmax", "probabilities"

    def construct(self, shares, labels):
        return -ops.ReduceMean()(ops.Log()(ops.ReduceSum()(shares * ops.OneHot()(labels, 4), 1)))


def entropy():
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


def linear(folder: Path, *after, shape=("n", 4)) -> Path:
    """A file: z = x w + b, and nodes from z to y."""
    arrays = {"w": W, "b": B, "four": np.array([-1, 2, 2]), "flat": np.array([-1, 4]), "last": np.array([2])}
    made = model([node("Gemm", ["x", "w", "b"], ["z"]), *after], {"x": ["n", 3]}, ["y"], arrays)
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, shape))
    return saved(folder / "made.onnx", made)


def losses(cell: nn.Cell, network: nn.Cell, target: np.ndarray, mode: str) -> list[float]:
    step = nn.TrainOneStepCell(cell, nn.SGD(network.trainable_params(), 0.5)).set_train()
    run = step_of(step, mode)
    return [float(run(X, target)[0]) for _ in range(6)]


def checked(path: Path, loss, target: np.ndarray, wanted, **options) -> OnnxNetwork:
    for mode in MODES:
        network = OnnxNetwork(str(path), **options)
        made = losses(nn.WithLossCell(network, loss), network, target, mode)
        np.testing.assert_allclose(made, wanted, rtol=2e-5, err_msg=mode)
    return network


def chain(operator: str) -> dict[str, list]:
    """An activation, and what exporters write behind it."""
    first = node(operator, ["z"], ["p"], axis=-1) if operator != "Sigmoid" else node(operator, ["z"], ["p"])
    return {
        "alone": [node(operator, ["z"], ["y"])],
        "Identity": [first, node("Identity", ["p"], ["q"]), node("Identity", ["q"], ["y"])],
        "Cast": [first, node("Cast", ["p"], ["q"], to=TensorProto.DOUBLE), node("Cast", ["q"], ["y"], to=1)],
        "Reshape": [first, node("Reshape", ["p", "four"], ["q"]), node("Reshape", ["q", "flat"], ["y"])],
        "Squeeze": [first, node("Unsqueeze", ["p", "last"], ["q"]), node("Squeeze", ["q", "last"], ["y"])],
        "Flatten": [first, node("Flatten", ["p"], ["y"])],
        "Transpose": [
            first,
            node("Transpose", ["p"], ["q"], perm=[1, 0]),
            node("Transpose", ["q"], ["y"], perm=[1, 0]),
        ],
    }


@table("name", [*chain("Sigmoid")])
def test_a_sigmoid_is_applied_once_by_the_loss(tmp_path, name):
    path = linear(tmp_path, *chain("Sigmoid")[name])
    checked(path, nn.BCEWithLogitsLoss(), LABELS, BCE_OF_SIGMOID)


@table("name", [*chain("Softmax")])
def test_a_softmax_is_applied_once_by_the_loss(tmp_path, name):
    path = linear(tmp_path, *chain("Softmax")[name])
    checked(path, entropy(), CLASSES, NLL_OF_SOFTMAX)


KEPT = (
    ("Softmax", nn.MSELoss(), LABELS, MSE_OF_SOFTMAX),
    ("Sigmoid", nn.MSELoss(), LABELS, MSE_OF_SIGMOID),
    ("Sigmoid", nn.L1Loss(), LABELS, L1_OF_SIGMOID),
    ("Sigmoid", nn.BCELoss(reduction="mean"), LABELS, BCE_OF_SIGMOID),
    ("LogSoftmax", LogLikelihood(), CLASSES, NLL_OF_SOFTMAX),
    ("LogSoftmax", entropy(), CLASSES, NLL_OF_SOFTMAX),  # a softmax does not change it
)


@table(("operator", "loss", "target", "wanted"), KEPT, ids=lambda x: x if isinstance(x, str) else type(x).__name__)
def test_a_loss_of_what_the_file_computes_gets_that(tmp_path, caplog, operator, loss, target, wanted):
    caplog.clear()
    with caplog.at_level("INFO", logger=LOG.name):
        checked(linear(tmp_path, node(operator, ["z"], ["y"])), loss, target, wanted)
    assert f"the {operator} {operator}_2 at the end is kept, as {type(loss).__name__} wants it" in caplog.text


REFUSED = (
    ("Sigmoid", entropy(), "loss=binary_cross_entropy"),
    ("Softmax", nn.BCEWithLogitsLoss(), "loss=softmax_cross_entropy"),
    ("LogSoftmax", nn.BCEWithLogitsLoss(), "loss=softmax_cross_entropy"),
    ("LogSoftmax", nn.BCELoss(reduction="mean"), "loss=softmax_cross_entropy"),
    ("HardSigmoid", nn.BCEWithLogitsLoss(), "takes"),
    ("Softmax", LogLikelihood(), "loss=softmax_cross_entropy"),
    ("Sigmoid", nn.FocalLoss(), "loss=binary_cross_entropy"),
)


@table(("operator", "loss", "repair"), REFUSED, ids=lambda x: x if isinstance(x, str) else type(x).__name__)
def test_what_cannot_be_right_is_refused(tmp_path, operator, loss, repair):
    network = OnnxNetwork(str(linear(tmp_path, node(operator, ["z"], ["y"]))))
    with pytest.raises(ConfigError, match="does not suit the loss") as caught:
        nn.WithLossCell(network, loss)
    rows = caught.value.rows
    assert rows["key"] == "network.logits"
    assert repair in rows["repair"]
    assert "network.logits=false" in rows["repair"]
    nn.WithLossCell(OnnxNetwork(str(linear(tmp_path, node(operator, ["z"], ["y"]))), logits=False), loss)


JOINED = {
    "two heads": [
        node("Split", ["z"], ["k", "l"], axis=1),
        node("Sigmoid", ["k"], ["p"]),
        node("Sigmoid", ["l"], ["q"]),
        node("Concat", ["p", "q"], ["y"], axis=1),
    ],
    "softmax over the batch": [node("Softmax", ["z"], ["y"], axis=0)],
    "softmax over the batch, moved": [
        node("Transpose", ["z"], ["t"], perm=[1, 0]),
        node("Softmax", ["t"], ["s"], axis=1),
        node("Transpose", ["s"], ["y"], perm=[1, 0]),
    ],
    "sigmoid in single operators": [
        node("Constant", [], ["one"], value_float=1.0),
        node("Neg", ["z"], ["m"]),
        node("Exp", ["m"], ["e"]),
        node("Add", ["e", "one"], ["a"]),
        node("Div", ["one", "a"], ["y"]),
    ],
    "bounds": [
        node("Sigmoid", ["z"], ["p"]),
        node("Constant", [], ["low"], value_float=1e-7),
        node("Clip", ["p", "low"], ["y"]),
    ],
}


TWO_CLASSES = {
    "as skl2onnx writes MLPClassifier": [
        node("Sigmoid", ["z"], ["p"]),
        node("Sub", ["one", "p"], ["q"]),
        node("Concat", ["q", "p"], ["y"], axis=1),
    ],
    "as torch.stack": [
        node("Sigmoid", ["z"], ["s"]),
        node("Squeeze", ["s", "axis"], ["p"]),
        node("Sub", ["one", "p"], ["q"]),
        node("Unsqueeze", ["q", "axis"], ["c"]),
        node("Unsqueeze", ["p", "axis"], ["d"]),
        node("Concat", ["c", "d"], ["y"], axis=1),
    ],
}


@table("name", [*TWO_CLASSES])
def test_two_classes_of_one_sigmoid(tmp_path, name):
    """They are those of the softmax of 0 and z."""
    arrays = {"w": W[:, :1], "b": B[:1], "one": np.float32(1), "axis": np.array([1])}
    nodes = [node("Gemm", ["x", "w", "b"], ["z"]), *TWO_CLASSES[name]]
    path = saved(tmp_path / "two.onnx", model(nodes, {"x": ["n", 3]}, ["y"], arrays))
    checked(path, entropy(), CLASSES % 2, NLL_OF_TWO)


def test_a_softmax_in_single_operators(tmp_path):
    """With the largest number subtracted, as frameworks without the operator write it."""
    nodes = [
        node("ReduceMax", ["z"], ["m"], axes=[1]),
        node("Sub", ["z", "m"], ["d"]),
        node("Exp", ["d"], ["e"]),
        node("ReduceSum", ["e", "one"], ["t"]),
        node("Div", ["e", "t"], ["y"]),
    ]
    made = model([node("Gemm", ["x", "w", "b"], ["z"]), *nodes], {"x": ["n", 3]}, ["y"], {"w": W, "b": B, "one": ONE})
    path = saved(tmp_path / "softmax.onnx", made)
    checked(path, entropy(), CLASSES, NLL_OF_SOFTMAX)
    checked(path, nn.MSELoss(), LABELS, MSE_OF_SOFTMAX)


def test_logarithms_of_probabilities(tmp_path):
    """That of a Softmax is one that a softmax does not change; that of a Sigmoid is a logit of nothing."""
    path = linear(tmp_path, node("Softmax", ["z"], ["p"]), node("Log", ["p"], ["y"]))
    for loss in (entropy(), LogLikelihood()):
        checked(path, loss, CLASSES, NLL_OF_SOFTMAX)
    with pytest.raises(ConfigError, match="does not suit the loss"):
        nn.WithLossCell(OnnxNetwork(str(path)), nn.BCEWithLogitsLoss())
    path = linear(tmp_path, node("Sigmoid", ["z"], ["p"]), node("Log", ["p"], ["y"]))
    for loss in (entropy(), nn.BCEWithLogitsLoss(), nn.BCELoss(reduction="mean")):
        with pytest.raises(ConfigError, match="does not suit the loss"):
            nn.WithLossCell(OnnxNetwork(str(path)), loss)


@table("name", [*JOINED])
def test_numbers_from_0_to_1_are_no_logits(tmp_path, name):
    network = OnnxNetwork(str(linear(tmp_path, *JOINED[name], shape=("n", None))))
    with pytest.raises(ConfigError, match="does not suit the loss") as caught:
        nn.WithLossCell(network, entropy())
    assert caught.value.rows["output"] == "numbers from 0 to 1"


def test_a_gate_is_no_end(tmp_path):
    """A Sigmoid in a product with other numbers stays."""
    path = linear(tmp_path, node("Sigmoid", ["z"], ["p"]), node("Mul", ["z", "p"], ["y"]))
    network = OnnxNetwork(str(path))
    nn.WithLossCell(network, nn.BCEWithLogitsLoss())
    z = X @ W + B
    np.testing.assert_allclose(network(Tensor(X)).asnumpy(), z / (1 + np.exp(-z)), rtol=1e-5)


def test_the_key_overrules_the_loss(tmp_path, caplog):
    path = linear(tmp_path, node("Sigmoid", ["z"], ["y"]))
    checked(path, nn.BCEWithLogitsLoss(), LABELS, BCE_OF_LOGITS_TWICE, logits=False)
    with caplog.at_level("INFO", logger=LOG.name):
        network = OnnxNetwork(str(path), logits=True)
    assert "the Sigmoid Sigmoid_2 at the end is left out" in caplog.text
    np.testing.assert_allclose(network(Tensor(X)).asnumpy(), X @ W + B, rtol=1e-5)
    assert nn.WithLossCell(network, nn.MSELoss()).backbone_network is network


def test_without_a_loss_a_network_computes_what_the_file_does(tmp_path):
    path = linear(tmp_path, node("Sigmoid", ["z"], ["y"]))
    network = OnnxNetwork(str(path))
    (stock,) = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": X})
    np.testing.assert_allclose(network(Tensor(X)).asnumpy(), stock, rtol=1e-5)


@pytest.mark.parametrize("mode", [context.PYNATIVE_MODE, context.GRAPH_MODE])
def test_a_network_that_was_called_before_it_has_a_loss(tmp_path, mode):
    context.set_context(mode=mode)
    network = OnnxNetwork(str(linear(tmp_path, node("Sigmoid", ["z"], ["y"]))))
    probabilities = network(Tensor(X)).asnumpy().astype(np.float64)
    nn.WithLossCell(network, nn.BCEWithLogitsLoss())
    logits = np.log(probabilities / (1 - probabilities))
    np.testing.assert_allclose(network(Tensor(X)).asnumpy(), logits, rtol=1e-4, atol=1e-5)


class OfScript(nn.Cell):
    """What scripts write in place of `WithLossCell`."""

    def __init__(self, network: nn.Cell, loss: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.loss = network, loss

    def construct(self, x, target):
        return self.loss(self.network(x), target)


ROWS = (("Softmax", entropy(), CLASSES, NLL_OF_SOFTMAX), ("Softmax", nn.MSELoss(), LABELS, MSE_OF_SOFTMAX))


@table(("operator", "loss", "target", "wanted"), ROWS, ids=lambda x: x if isinstance(x, str) else type(x).__name__)
def test_a_cell_of_network_and_loss_decides_as_well(tmp_path, operator, loss, target, wanted):
    path = linear(tmp_path, node(operator, ["z"], ["y"]))
    for mode in MODES:
        network = OnnxNetwork(str(path))
        np.testing.assert_allclose(losses(OfScript(network, loss), network, target, mode), wanted, rtol=2e-5)


def test_two_losses_of_one_network(tmp_path):
    network = OnnxNetwork(str(linear(tmp_path, node("Softmax", ["z"], ["y"]))))
    Model(network, entropy())
    Model(network, entropy())
    with pytest.raises(ConfigError, match="two losses need different outputs") as caught:
        Model(network, nn.MSELoss())
    assert (caught.value.rows["first"], caught.value.rows["second"]) == ("SoftmaxCrossEntropyWithLogits", "MSELoss")


# Runs: the loss and the accuracy of an evaluation, and predictions, are those of the file.


def evaluated(folder: Path, path: Path, target: np.ndarray, *words: str) -> dict:
    np.savez(folder / "data.npz", x_train=X, y_train=target, x_test=X, y_test=target)
    settings = ["dataset=npz", f"dataset.data_file={folder / 'data.npz'}", "dataset.batch_size=4", "callbacks=quiet"]
    rate = ["optimizer=sgd", "optimizer.learning_rate=0", f"hydra.run.dir={folder / 'run'}", "device.threads=1"]
    summary = runner.run(["network=onnx", f"network.path={path}", *settings, *rate, *words])
    return summary["metrics"]


@pytest.mark.parametrize("mode", MODES)
def test_a_run_with_one_sigmoid(tmp_path, mode):
    """All probabilities are above 0.5 as logits, of which half is wrong."""
    arrays = {"w": np.array([[3.0], [0], [0]], np.float32)}
    nodes = [node("MatMul", ["x", "w"], ["z"]), node("Sigmoid", ["z"], ["y"])]
    path = saved(tmp_path / "one.onnx", model(nodes, {"x": ["n", 3]}, ["y"], arrays))
    target = (X[:, :1] > 0).astype(np.float32)
    p = 1 / (1 + np.exp(-3 * X[:, :1].astype(np.float64)))
    words = (f"mode={mode}", "eval.metrics=[loss,accuracy]")
    for loss, wanted in (
        ("binary_cross_entropy", -(target * np.log(p) + (1 - target) * np.log(1 - p)).mean()),
        ("mse", ((p - target) ** 2).mean()),
    ):
        folder = tmp_path / loss
        folder.mkdir()
        metrics = evaluated(folder, path, target, f"loss={loss}", *words)
        assert metrics == {"loss": pytest.approx(wanted, rel=1e-5), "accuracy": 1.0}
        np.save(folder / "x.npy", X)
        found = predict(folder / "run", [folder / "x.npy"])
        np.testing.assert_allclose(found.values[:, -1:], p, rtol=1e-5)


def test_a_run_that_cannot_be_right(tmp_path):
    path = linear(tmp_path, node("Sigmoid", ["z"], ["y"]))
    with pytest.raises(ConfigError, match="does not suit the loss"):
        evaluated(tmp_path, path, CLASSES)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_predictions_of_a_softmax(tmp_path):
    path = linear(tmp_path, node("Softmax", ["z"], ["y"]))
    metrics = evaluated(tmp_path, path, CLASSES, "eval.metrics=[loss]")
    assert metrics["loss"] == pytest.approx(NLL_OF_SOFTMAX[0], rel=1e-5)
    np.save(tmp_path / "x.npy", X)
    (stock,) = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": X})
    np.testing.assert_allclose(predict(tmp_path / "run", [tmp_path / "x.npy"]).values, stock, rtol=1e-4)


OF_CLASSES = {"Softmax": "probabilities", "LogSoftmax": "log_probabilities"}


@table("operator", [*OF_CLASSES])
def test_predictions_and_exports_of_a_loss_that_applies_nothing(tmp_path, operator):
    """The network computes the probabilities, or their logarithms, itself: they are not computed again."""
    form = OF_CLASSES[operator]

    @runner.register.loss(f"of_{form}")
    def own() -> nn.Cell:
        return LogLikelihood() if operator == "LogSoftmax" else Likelihood()

    folder = tmp_path / operator
    folder.mkdir()
    path = linear(folder, node(operator, ["z"], ["y"]))
    metrics = evaluated(folder, path, CLASSES, f"loss=of_{form}", "eval.metrics=[loss,accuracy]")
    assert metrics["loss"] == pytest.approx(NLL_OF_SOFTMAX[0], rel=1e-5)
    z = (X @ W + B).astype(np.float64)
    shares = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    assert metrics["accuracy"] == (z.argmax(1) == CLASSES).mean()
    np.save(folder / "x.npy", X)
    np.testing.assert_allclose(predict(folder / "run", [folder / "x.npy"]).values, shares, rtol=1e-4)
    session = onnxruntime.InferenceSession(folder / "run/model/predict.onnx", providers=["CPUExecutionProvider"])
    (name,) = [value.name for value in session.get_inputs()]
    made = dict(zip([value.name for value in session.get_outputs()], session.run(None, {name: X}), strict=True))
    np.testing.assert_allclose(made["probabilities"], shares, rtol=1e-4)
    assert ("logits" in made) == (operator == "LogSoftmax")
