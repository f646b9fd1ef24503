"""Files with weights of Float16 or Float64 train in Float32, with the numbers of the same training in Float64."""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
import onnxruntime
import pytest
from both_modes import MODES, relative, step_of
from onnx import TensorProto, helper, numpy_helper
from onnx_files import classifier, model, saved

import runner
from runner import cli, dtype as dt, nn
from runner.host.console import LOG
from runner.importer.network import OnnxNetwork

KINDS = {"Float16": TensorProto.FLOAT16, "Float32": TensorProto.FLOAT, "Float64": TensorProto.DOUBLE}
# Six steps of torch 2.14.1 in Float64 on `scores()` with weights rounded to Float16: SGD of 0.1, batch_norm with
# momentum 0.1, cross_entropy.
LOSSES = [2.90111193, 2.38093539, 1.96462248, 1.67085815, 1.47997061, 1.35041982]
MEANS = [0.017557, 0.641165, 1.220538, -0.852149, -0.660224, 1.008864, -1.301807, -0.301289]
VARIANCES = [1.457895, 3.527205, 6.856228, 2.609286, 2.407276, 1.721088, 4.287389, 5.414128]


def scores() -> onnx.ModelProto:
    """`classifier` without the Softmax at its end."""
    made = classifier()
    del made.graph.node[-1]
    made.graph.node[-1].output[0] = "y"
    return made


def weights(made: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The arrays of a model, rounded to Float16."""
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    return {name: array.astype(np.float16).astype(array.dtype) for name, array in arrays.items()}


def with_weights(made: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    del made.graph.initializer[:]
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return made


def converted(made: onnx.ModelProto, kind: str, sides: str) -> onnx.ModelProto:
    """The model with all weights in one type, and its input and output in another one, with a Cast between them."""
    wanted, outer = helper.tensor_dtype_to_np_dtype(KINDS[kind]), KINDS[sides]
    with_weights(made, {name: array.astype(wanted) for name, array in weights(made).items()})
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.elem_type = outer
    if kind != sides:
        made.graph.node[0].input[0], made.graph.node[-1].output[0] = "x.inner", "y.inner"
        made.graph.node.insert(0, helper.make_node("Cast", ["x"], ["x.inner"], "cast_in", to=KINDS[kind]))
        made.graph.node.append(helper.make_node("Cast", ["y.inner"], ["y"], "cast_out", to=outer))
    return made


def stored(made: onnx.ModelProto) -> onnx.ModelProto:
    """A model of Float32 whose weights are stored in Float16, each with a Cast behind it."""
    arrays, nodes = weights(made), list(made.graph.node)
    for node in nodes:
        node.input[:] = [f"{name}.wide" if name in arrays else name for name in node.input]
    casts = [helper.make_node("Cast", [name], [f"{name}.wide"], to=TensorProto.FLOAT) for name in arrays]
    del made.graph.node[:]
    made.graph.node.extend([*casts, *nodes])
    return with_weights(made, {name: array.astype(np.float16) for name, array in arrays.items()})


FILES = {
    "Float16": lambda: converted(scores(), "Float16", "Float16"),
    "Float64": lambda: converted(scores(), "Float64", "Float64"),
    "Float16 inside": lambda: converted(scores(), "Float16", "Float32"),
    "Float64 inside": lambda: converted(scores(), "Float64", "Float32"),
    "stored in Float16": lambda: stored(scores()),
}


def batches() -> Iterator[np.ndarray]:
    rng = np.random.default_rng(3)
    yield rng.normal(size=(12, 6)).astype(np.float16)
    yield rng.integers(0, 3, 12).astype(np.int32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("data", ["float16", "float32", "float64"])
def test_six_steps_are_those_of_torch_in_float64(kind, mode, data, tmp_path):
    network = OnnxNetwork(str(saved(tmp_path / "typed.onnx", FILES[kind]())))
    assert {p.dtype for p in network.get_parameters()} == {dt.float32}
    assert len(network.trainable_params()) == 6
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    step = nn.TrainOneStepCell(nn.WithLossCell(network, loss), nn.SGD(network.trainable_params(), 0.1))
    run, (x, labels) = step_of(step.set_train().construct, mode), batches()
    losses = [float(run(x.astype(data), labels)[0]) for _ in LOSSES]
    np.testing.assert_allclose(losses, LOSSES, rtol=2e-6)
    found = network.parameters_dict()
    np.testing.assert_allclose(found["n.mean"].asnumpy(), MEANS, atol=2e-6)
    np.testing.assert_allclose(found["n.var"].asnumpy(), VARIANCES, rtol=1e-5)


@pytest.mark.parametrize("kind", ["Float16", "Float64", "Float16 inside"])
def test_outputs_are_those_of_onnxruntime(kind, tmp_path):
    path = saved(tmp_path / "typed.onnx", FILES[kind]())
    x, _ = batches()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(
        None,
        {
            "x": x.astype("float64" if kind == "Float64" else kind[:7].lower())
            if "inside" not in kind
            else x.astype("float32")
        },
    )
    for mode in MODES:
        network = OnnxNetwork(str(path), logits=False)
        (made,) = step_of(network.set_train(False).construct, mode)(x)
        assert made.dtype == np.float32
        assert relative(made, wanted) < (1e-6 if kind == "Float64" else 5e-3)


@pytest.mark.parametrize("mode", MODES)
def test_a_run_says_what_it_does_and_compares_with_onnxruntime(mode, tmp_path, caplog):
    path = saved(tmp_path / "half.onnx", converted(classifier((1, 32, 32), 10), "Float16", "Float16"))
    words = ["network=onnx", f"network.path={path}", "dataset=digits", "max_steps=3", f"mode={mode}"]
    with caplog.at_level("INFO", logger=LOG.name):
        runner.run([*words, "callbacks=quiet", f"hydra.run.dir={tmp_path / 'run'}"])
    assert "half.onnx: its weights of Float16 are trained in Float32, session.precision_mode=force_fp16" in caplog.text
    assert cli.main(["compare", str(path), str(tmp_path / "run")]) == 0


def test_numbers_of_float64_beyond_float32_stay_finite(tmp_path):
    """The lowest number of Float64, as masks have it, would be infinite, and a row of it NaN after a Softmax."""
    lowest = np.finfo(np.float64).min
    arrays = {"w": np.eye(3), "mask": np.array([[0, lowest, 0], [lowest] * 3, [-np.inf, 0, 0]])}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "mask"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    made = model(nodes, {"x": [3, 3]}, ["y"], arrays)
    made.graph.input[0].type.tensor_type.elem_type = made.graph.output[0].type.tensor_type.elem_type = KINDS["Float64"]
    network = OnnxNetwork(str(saved(tmp_path / "mask.onnx", made)), logits=False)
    (y,) = step_of(network.construct, "pynative")(np.zeros((3, 3)))
    np.testing.assert_allclose(y, [[0.5, 0, 0.5], [1 / 3] * 3, [0, 0.5, 0.5]], rtol=1e-6)


def test_a_file_of_float16_without_weights_computes_what_it_says(tmp_path):
    nodes = [helper.make_node("Cast", ["x"], ["h"], to=KINDS["Float16"]), helper.make_node("Neg", ["h"], ["y"])]
    made = model(nodes, {"x": [3]}, ["y"], {})
    made.graph.output[0].type.tensor_type.elem_type = KINDS["Float16"]
    x = np.array([1 / 3, 1e-9, 7e4], np.float32)
    for mode in MODES:
        with np.errstate(over="ignore"):
            (y,) = step_of(OnnxNetwork(str(saved(tmp_path / "cast.onnx", made))).construct, mode)(x)
        assert (y.dtype, y.tolist()) == (np.float16, [float(-np.float16(1 / 3)), -0.0, -np.inf])
