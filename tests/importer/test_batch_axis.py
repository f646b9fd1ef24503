"""Files whose batch is not the first axis: what they have as evidence, and losses and gradients of torch."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from both_modes import MODES
from onnx import TensorProto, helper, numpy_helper
from onnx_files import classifier, model, saved
from tables import table

import runner
from runner import Model, Tensor, cli, context, nn
from runner.core.dependence import NOTES
from runner.dataset import NumpySlicesDataset
from runner.errors import ConfigError, ShapeError
from runner.experiment.predict import predict
from runner.host.console import LOG
from runner.importer.network import OnnxNetwork
from runner.report.onnx_file import inspect
from runner.report.record import RunRecord
from runner.types import TensorType

T, N, D, H, C = 7, 7, 4, 3, 2
SHAPES = {"w": (4 * H, D), "r": (4 * H, H), "bw": (4 * H,), "br": (4 * H,), "f.weight": (C, H), "f.bias": (C,)}
rng = np.random.default_rng(8)
WEIGHTS = {name: (rng.normal(size=shape) * 0.5).astype(np.float32) for name, shape in SHAPES.items()}
ROWS = rng.normal(size=(N, T, D)).astype(np.float32)
CLASSES = rng.integers(0, C, N).astype(np.int32)
# Of torch 2.14, six steps of SGD (rate 0.5): nn.LSTM(4, 3), the last output to nn.Linear(3, 2), F.cross_entropy.
LOSSES_OF_7 = (0.71095, 0.673967, 0.647953, 0.629117, 0.614672, 0.602742)
LOSSES_OF_5 = (0.719226, 0.693984, 0.676714, 0.664695, 0.655956, 0.649156)
MSE_OF_STEPS = 1.50565  # of the linear layer of all outputs, against the first two numbers of each step
node = helper.make_node


def of_torch(array: np.ndarray) -> np.ndarray:
    """The gates of torch (i, f, g, o) in the order of ONNX (i, o, f, c)."""
    i, f, g, o = np.split(array, 4)
    return np.concatenate([i, o, f, g])[None]


def lstm(path: Path, shape, result, batch=0, *, steps=False, first=False, start=()) -> Path:
    """A file as torch exports nn.LSTM: [steps, batch, 4] to a linear layer of the last output, or with `steps` of all.

    With `first` its input has the batch first; with `start` it has a second input, the first state. With a `batch` that
    is made of zeros for so many samples, in a shape computed from that of x.
    """
    arrays = {"w": of_torch(WEIGHTS["w"]), "r": of_torch(WEIGHTS["r"]), "axis": np.array([1 if steps else 0])}
    arrays["b"] = np.concatenate([of_torch(WEIGHTS["bw"]), of_torch(WEIGHTS["br"])], 1)
    arrays |= {"f.weight": WEIGHTS["f.weight"].T, "f.bias": WEIGHTS["f.bias"]}
    nodes = [node("Transpose", ["x"], ["t"], perm=[1, 0, 2])] if first else []
    given = ["t" if first else "x", "w", "r", "b", *(["", "start"] if start or batch else [])]
    if batch:
        arrays |= {"second": np.array([1]), "hidden": np.array([H])}
        zeros = numpy_helper.from_array(np.zeros((1, batch, H), np.float32))
        nodes.append(node("Constant", [], ["zeros"], value=zeros))
        shapes = [node("Shape", ["x"], ["lengths"]), node("Gather", ["lengths", "second"], ["samples"])]
        wanted = node("Concat", ["second", "samples", "hidden"], ["start_shape"], axis=0)
        nodes += [*shapes, wanted, node("Expand", ["zeros", "start_shape"], ["start"])]
    nodes += [
        node("LSTM", given, ["all", "last"], hidden_size=H),
        node("Squeeze", ["all" if steps else "last", "axis"], ["h"]),
        node("MatMul", ["h", "f.weight"], ["m"]),
        node("Add", ["m", "f.bias"], ["y"]),
    ]
    made = model(nodes, {"x": shape, **({"start": start} if start else {})}, ["y"], arrays)
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, result))
    return saved(path, made)


def run(folder: Path, path: Path, mode: str, rows, target, *words: str) -> list[float]:
    """The losses of six steps of a run."""
    folder.mkdir()
    arrays = {"x_train": rows, "y_train": target, "x_test": rows, "y_test": target}
    np.savez(folder / "data.npz", **arrays)
    settings = ["dataset=npz", f"dataset.data_file={folder / 'data.npz'}", f"dataset.batch_size={len(rows)}"]
    settings += ["optimizer=sgd", "optimizer.learning_rate=0.5", "max_steps=6", "epochs=6", "dataset.shuffle=false"]
    settings += ["callbacks=quiet", "device.threads=1", "dataset_sink_mode=false", f"hydra.run.dir={folder / 'run'}"]
    runner.run(["network=onnx", f"network.path={path}", f"mode={mode}", *settings, *words])
    return [*RunRecord(folder / "run").metrics.losses]


FORMS = {
    "the only symbolic axis": ([T, "N", D], ["N", C]),
    "names": (["seq", "batch", D], ["batch", C]),
    "a name that inputs and output share": (["s0", "s1", D], ["s1", C]),
    "no evidence but the numbers": (["s0", "s1", D], ["s2", C]),
    "unnamed": (["?", "?", D], ["?", C]),
    "a fixed batch of this size": ([T, 7, D], [7, C]),
    "a fixed batch of another size": ([T, 3, D], [3, C]),
    "a fixed batch of one": ([T, 1, D], [1, C]),
    "a start of zeros for a fixed batch": ([T, 3, D], [3, C], 3),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [*FORMS])
def test_losses_of_torch_wherever_the_file_has_the_batch(tmp_path, name, mode):
    path = lstm(tmp_path / "lstm.onnx", *FORMS[name])
    np.testing.assert_allclose(run(tmp_path / "7", path, mode, ROWS, CLASSES), LOSSES_OF_7, rtol=2e-5)
    np.testing.assert_allclose(run(tmp_path / "5", path, mode, ROWS[:5], CLASSES[:5]), LOSSES_OF_5, rtol=2e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_first_axis_of_one_is_the_batch_though_another_is_free(tmp_path, mode):
    """As an exporter writes a sample [1, steps, 4] with free steps."""
    path = lstm(tmp_path / "lstm.onnx", [1, "s0", D], [1, C], first=True)
    np.testing.assert_allclose(run(tmp_path / "7", path, mode, ROWS, CLASSES), LOSSES_OF_7, rtol=2e-5)


@pytest.mark.parametrize("mode", MODES)
@table(
    ("shape", "result", "first"),
    [([T, "N", D], [T, "N", C], False), ([T, "n1", D], None, False), (["N", T, D], [T, "N", C], True)],
    ids=str,
)
def test_an_output_with_the_batch_behind(tmp_path, mode, shape, result, first):
    """Its rows are first again, also where the input has them first, or the file says nothing of the output."""
    folder = tmp_path / f"{shape[1]}"
    path = lstm(tmp_path / "lstm.onnx", shape, result, steps=True, first=first)
    target = np.ascontiguousarray(ROWS[..., :C])
    made = run(folder, path, mode, ROWS, target, "loss=mse")
    assert made[0] == pytest.approx(MSE_OF_STEPS, rel=1e-5)


@pytest.mark.parametrize("mode", [context.PYNATIVE_MODE, context.GRAPH_MODE])
def test_every_input_has_its_batch(tmp_path, mode):
    """A script: the first state [1, batch, 3] is a column of rows [1, 3]."""
    context.set_context(mode=mode)
    path = lstm(tmp_path / "lstm.onnx", [T, "N", D], ["N", C], start=[1, "N", H])
    network = OnnxNetwork(str(path))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    trained = Model(network, loss, nn.SGD(network.trainable_params(), 0.0), metrics={"loss"})
    columns = (ROWS, np.zeros((N, 1, H), np.float32), CLASSES)
    data = NumpySlicesDataset(columns, ["x", "start", "label"], shuffle=False).batch(N)
    assert trained.eval(data)["loss"] == pytest.approx(LOSSES_OF_7[0], rel=1e-5)
    assert trained.predict(*map(Tensor, columns[:2])).shape == (N, C)


def dense(path: Path, shape, result) -> Path:
    """The same linear layer for each of two axes, and a bias for each place of the first."""
    arrays = {"w": WEIGHTS["f.weight"].T, "p": rng.normal(size=(shape[0], 1, C)).astype(np.float32)}
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "p"], ["y"])]
    made = model(nodes, {"x": shape}, ["y"], arrays)
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, result))
    return saved(path, made)


def test_two_axes_can_be_the_batch(tmp_path):
    path = dense(tmp_path / "dense.onnx", [T, N, H], [T, N, C])
    rows = rng.normal(size=(N, T, H)).astype(np.float32)
    target = rng.normal(size=(N, T, C)).astype(np.float32)
    with pytest.raises(ConfigError, match="can have the batch in several axes") as caught:
        run(tmp_path / "asked", path, "graph", rows, target, "loss=mse")
    rows_of_error = caught.value.rows
    assert (rows_of_error["key"], rows_of_error["allowed"]) == ("network.batch_axis", "0 or 1")
    for axis in (0, 1):
        (stock,) = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(
            None, {"x": np.moveaxis(rows, 0, axis)}
        )
        wanted = ((np.moveaxis(stock, axis, 0) - target) ** 2).mean()
        made = run(tmp_path / str(axis), path, "graph", rows, target, "loss=mse", f"network.batch_axis={axis}")
        assert made[0] == pytest.approx(float(wanted), rel=1e-5)


def test_a_trial_of_an_axis_is_no_part_of_a_run(tmp_path):
    """Its kernels are not what the run computes."""
    made = model(
        [node("Tan", ["x"], ["e"]), node("MatMul", ["e", "w"], ["y"])],
        {"x": [T, "n1", H]},
        ["y"],
        {"w": WEIGHTS["f.weight"].T},
    )
    with NOTES.apart():
        network = OnnxNetwork(str(saved(tmp_path / "m.onnx", made)))
        network.attach_data([TensorType.of(np.zeros((N, T, H), np.float32))])
        assert network.batch_axes == (1,)
        assert NOTES.names == set()
        network(Tensor(np.ones((N, T, H), np.float32)))
        assert NOTES.names == {"Tan"}


def test_an_axis_that_cannot_be_the_batch(tmp_path):
    path = lstm(tmp_path / "lstm.onnx", [T, 3, D], [3, C])
    with pytest.raises(ShapeError, match="another shape") as caught:
        run(tmp_path / "run", path, "graph", ROWS, CLASSES, "network.batch_axis=2")
    assert "network.batch_axis" in caught.value.rows["repair"]


IMAGES = {"one channel": [1, 1, 8, 8], "as many channels as images": [3, 3, 8, 8], "a square": [8, 8]}


@table("name", [*IMAGES])
def test_what_only_one_axis_can_be_is_not_asked(tmp_path, name):
    shape = IMAGES[name]
    made = classifier(shape[1:], 3)
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, shape))
    network = OnnxNetwork(str(saved(tmp_path / "m.onnx", made)))
    network.attach_data([TensorType.of(np.zeros((4, *shape[1:]), np.float32))])
    assert network.batch_axes == (0,)
    assert network(Tensor(np.ones((4, *shape[1:]), np.float32))).shape == (4, 3)


@table("mode", [context.PYNATIVE_MODE, context.GRAPH_MODE])
def test_without_data_a_network_takes_what_the_file_takes(tmp_path, mode):
    context.set_context(mode=mode)
    path = lstm(tmp_path / "lstm.onnx", [T, "N", D], [T, "N", C], steps=True)
    network = OnnxNetwork(str(path)).set_train(False)
    x = np.moveaxis(ROWS[:5], 0, 1).copy()
    (stock,) = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(network(Tensor(x)).asnumpy(), stock, rtol=1e-4, atol=1e-6)
    with pytest.raises(ShapeError, match="another shape"):
        network(Tensor(ROWS[:5, :, :2]))


def test_a_run_says_where_the_batch_is(tmp_path, caplog, capsys):
    path = lstm(tmp_path / "lstm.onnx", [T, "N", D], ["N", C])
    with caplog.at_level("INFO", logger=LOG.name):
        run(tmp_path / "run", path, "pynative", ROWS, CLASSES)
    assert "lstm.onnx: the batch is axis 1 of x, axis 0 of y" in caplog.text
    assert inspect(path)["batch"] == {"x": 1}
    fixed = lstm(tmp_path / "fixed.onnx", [T, 7, D], [7, C])
    assert inspect(fixed)["batch"] == {"x": None}
    assert cli.main(["compare", str(path), str(tmp_path / "run" / "run")]) == 0
    assert cli.main(["inspect", str(path)]) == 0
    assert "axis 1 of x" in capsys.readouterr().out


def test_predictions_have_the_rows_first(tmp_path):
    path = lstm(tmp_path / "lstm.onnx", [T, "N", D], ["N", C])
    run(tmp_path / "run", path, "graph", ROWS, CLASSES, "optimizer.learning_rate=0")
    np.save(tmp_path / "x.npy", ROWS[:5])
    x = np.moveaxis(ROWS[:5], 0, 1).copy()
    (stock,) = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    exponentials = np.exp(stock)
    wanted = exponentials / exponentials.sum(1, keepdims=True)
    np.testing.assert_allclose(predict(tmp_path / "run" / "run", [tmp_path / "x.npy"]).values, wanted, rtol=1e-4)
