"""LSTM, GRU and RNN against stock onnxruntime, the batch-first layout against the other one, and gradients."""

import numpy as np
import pytest
from both_modes import MODES, nodes_of, step_of
from one_node import RNG, Constant, check_gradients, check_outputs, node, stock
from onnx import TensorProto, helper, numpy_helper
from tables import table

from runner.errors import ConfigError
from runner.importer.network import OnnxNetwork

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, INPUTS, HIDDEN = 3, 2, 3, 4


def normal(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) * 0.5).astype(np.float32)


def layer(operator, *, bias=True, lengths=None, states=True, peepholes=False, note="", opset=14, **attributes):
    """A node of random operands."""
    directions = 1 + (attributes.get("direction") == "bidirectional")
    rows = GATES[operator] * HIDDEN
    inputs = [normal(STEPS, BATCH, INPUTS), normal(directions, rows, INPUTS), normal(directions, rows, HIDDEN)]
    inputs += [normal(directions, 2 * rows) if bias else None, lengths]
    cells = 2 if operator == "LSTM" else 1
    inputs += [normal(directions, BATCH, HIDDEN) if states else None for _ in range(cells)]
    inputs += [normal(directions, 3 * HIDDEN)] if peepholes else []
    while inputs[-1] is None:
        inputs.pop()
    return node(
        operator,
        *inputs,
        outputs=1 + cells,
        opset=opset,
        hidden_size=HIDDEN,
        note=note or str(attributes),
        **attributes,
    )


def lengths(*numbers: int, known: bool = False):
    array = np.array(numbers, np.int32)
    return Constant(array) if known else array


ROWS = [
    *(
        layer(operator, direction=direction, bias=bias, states=states)
        for operator in GATES
        for direction in ("forward", "reverse", "bidirectional")
        for bias, states in ((True, True), (False, False))
    ),
    layer("LSTM", peepholes=True, note="peepholes"),
    layer("LSTM", peepholes=True, direction="bidirectional", note="peepholes in both directions"),
    layer("LSTM", input_forget=1),
    layer("GRU", linear_before_reset=1),
    layer("GRU", linear_before_reset=1, direction="bidirectional", bias=False),
    layer("GRU", linear_before_reset=1, direction="reverse"),
    layer("LSTM", activations=["HardSigmoid", "Softsign", "Tanh"]),
    layer("LSTM", activations=["Sigmoid", "Relu", "Relu"]),
    layer("GRU", activations=["HardSigmoid", "Tanh"], activation_alpha=[0.3], activation_beta=[0.4]),
    layer("RNN", activations=["Relu"]),
    layer("RNN", activations=["Affine"], activation_alpha=[0.5], activation_beta=[0.1]),
    layer("RNN", activations=["LeakyRelu"], activation_alpha=[0.2]),
    layer("RNN", activations=["ThresholdedRelu"], activation_alpha=[0.1]),
    layer("RNN", activations=["ScaledTanh"], activation_alpha=[0.7], activation_beta=[1.3]),
    layer("RNN", activations=["Elu"], activation_alpha=[0.9]),
    layer("RNN", activations=["Softplus"]),
    layer("RNN", activations=["Tanh", "Relu"], direction="bidirectional"),
    layer("RNN", opset=9),
    layer("LSTM", opset=9, direction="bidirectional"),
    layer("GRU", opset=9),
    layer("LSTM", lengths=lengths(3, 3, known=True), note="known full lengths"),
    *(
        layer(operator, lengths=lengths(1, 3), direction=direction, note=f"lengths {direction}")
        for operator in GATES
        for direction in ("forward", "reverse", "bidirectional")
    ),
    layer("GRU", lengths=lengths(2, 1, known=True), note="known lengths"),
]
SMOOTH = [one for one in ROWS if "Relu" not in str(one.attributes)]
CLIPPED = [layer("LSTM", clip=0.3), layer("GRU", clip=0.3), layer("RNN", clip=0.3)]


@table("one", ROWS + CLIPPED, ids=str)
def test_outputs(one, tmp_path):
    check_outputs(one, tmp_path)


@table("one", SMOOTH[::4], ids=str)
def test_gradients(one, tmp_path):
    check_gradients(one, tmp_path)


@table("operator", GATES)
@table("direction", ["forward", "bidirectional"])
def test_the_batch_can_be_first(operator, direction, tmp_path):
    """onnxruntime has only the other layout."""
    one = layer(operator, direction=direction)
    expected = stock(one.write(tmp_path), one.arrays())
    x, w, r, b, *states = one.given
    turned = [x.swapaxes(0, 1), w, r, b, None, *(state.swapaxes(0, 1) for state in states)]
    first = node(operator, *turned, outputs=one.outputs, opset=14, layout=1, **one.attributes)
    check_outputs(first, tmp_path, [expected[0].transpose(2, 0, 1, 3), *(y.swapaxes(0, 1) for y in expected[1:])])


def test_the_inputs_of_all_steps_are_multiplied_at_once(tmp_path):
    one = layer("LSTM", direction="bidirectional")
    network = one.network(one.write(tmp_path))
    made = [entry.op.name for entry in nodes_of(network.network.construct, "graph", *one.given)]
    assert made.count("MatMul") == 1 + 2 * STEPS


def fixed_batch(folder):
    """A file as exporters write it for a batch of two: states of zeros and a shape for two samples."""
    _, w, r, b, *_ = layer("LSTM").given
    arrays = {"w": w, "r": r, "b": b, "zeros": np.zeros((1, BATCH, HIDDEN), np.float32)}
    arrays["shape"] = np.array([STEPS, BATCH, HIDDEN])
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["turned", "w", "r", "b", "", "zeros", "zeros"], ["y"], hidden_size=HIDDEN),
        helper.make_node("Reshape", ["y", "shape"], ["steps"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (BATCH, STEPS, INPUTS))
    y = helper.make_tensor_value_info("steps", TensorProto.FLOAT, (STEPS, BATCH, HIDDEN))
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "fixed_batch", [x], [y], initializers)
    path = folder / "fixed.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=7).SerializeToString()
    )
    return path


@table("mode", MODES)
def test_a_file_of_a_fixed_batch_takes_another(mode, tmp_path):
    path, x = fixed_batch(tmp_path), normal(2 * BATCH, STEPS, INPUTS)
    network = OnnxNetwork(str(path))
    halves = [stock(path, {"x": part})[0] for part in np.split(x, 2)]
    (made,) = step_of(network.construct, mode)(x)
    assert np.allclose(made, np.concatenate(halves, 1), atol=1e-6)
    assert {parameter.name for parameter in network.trainable_params()} == {"w", "r", "b"}


def refused(one, folder):
    with pytest.raises(ConfigError) as caught:
        one.network(one.write(folder)).run("pynative")
    return str(caught.value)


def test_what_is_refused(tmp_path):
    assert "unknown activation" in refused(layer("RNN", activations=["Cosine"]), tmp_path)
    assert "another number of activations" in refused(layer("LSTM", activations=["Tanh"]), tmp_path)
    assert "unknown direction" in refused(layer("GRU", direction="sideways"), tmp_path)
    x, w, r, *rest = layer("GRU").given
    other = node("GRU", x, w[:, :-1], r, *rest[:1], opset=14, outputs=2, hidden_size=HIDDEN)
    assert "the operands of a recurrent layer do not match" in refused(other, tmp_path)
