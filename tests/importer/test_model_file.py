"""Files that cannot be imported are errors that name the problem, in bounded time and memory."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_files import classifier, model, saved

from runner.errors import ConfigError, DataError
from runner.importer.file import read_model
from runner.importer.network import OnnxNetwork

ONES = np.ones((2, 2), np.float32)


def relu(name="y", source="x"):
    return helper.make_node("Relu", [source], [name])


def test_every_cut_of_a_file_is_an_error_of_data(tmp_path):
    data = classifier().SerializeToString()
    for end in range(0, len(data), 7):
        path = tmp_path / "cut.onnx"
        path.write_bytes(data[:end])
        with pytest.raises((DataError, ConfigError)):
            OnnxNetwork(str(path))


def test_other_files(tmp_path):
    with pytest.raises(DataError, match="a file is missing"):
        read_model(tmp_path / "none.onnx")
    for content in (b"", b"not a model", bytes(1000), b"\x89PNG\r\n" * 50):
        path = tmp_path / "other.onnx"
        path.write_bytes(content)
        with pytest.raises(DataError, match="ONNX file"):
            read_model(path)


def external(name, location, **entries):
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2, 2], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    made = model([helper.make_node("MatMul", ["x", name], ["y"])], {"x": ["n", 2]}, ["y"], {})
    made.graph.initializer.append(tensor)
    return made


@pytest.mark.parametrize(
    ("location", "entries", "message"),
    [
        ("../secret.bin", {}, "outside of the model's directory"),
        ("/etc/passwd", {}, "outside of the model's directory"),
        ("link.bin", {}, "outside of the model's directory"),
        ("", {}, "outside of the model's directory"),
        (".", {}, "outside of the model's directory"),
        ("none.bin", {}, "a file is missing"),
        ("short.bin", {}, "too short"),
        ("whole.bin", {"offset": 8}, "too short"),
        ("whole.bin", {"length": 12}, "another length than the tensor"),
        ("whole.bin", {"offset": -4}, "no number"),
        ("whole.bin", {"offset": 10**30}, "no number"),
    ],
)
def test_external_data_are_below_the_file_and_of_the_right_size(tmp_path, location, entries, message):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(ONES.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "short.bin").write_bytes(ONES.tobytes()[:-1])
    (folder / "whole.bin").write_bytes(ONES.tobytes())
    path = saved(folder / "model.onnx", external("w", location, **entries))
    with pytest.raises(DataError, match=message) as raised:
        read_model(path)
    assert raised.value.rows["tensor"] == "w"


def test_external_data(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"\0" * 8 + (ONES * 3).tobytes())
    graph = read_model(saved(tmp_path / "model.onnx", external("w", "sub/w.bin", offset=8, length=16)))
    assert (graph.initializers["w"] == 3).all()
    assert graph.files == ((tmp_path / "sub" / "w.bin").resolve(),)


def test_a_cycle(tmp_path):
    made = model([relu("a", "b"), relu("b", "a"), relu("y", "b")], {"x": [2]}, ["y"], {})
    with pytest.raises(DataError, match="the graph has a cycle") as raised:
        read_model(saved(tmp_path / "m.onnx", made))
    assert "Relu(a) -> b" in raised.value.rows["nodes"]


def test_functions_that_call_each_other(tmp_path):
    made = model([helper.make_node("F", ["x"], ["y"], domain="own")], {"x": [2]}, ["y"], {})
    opsets = [helper.make_opsetid("own", 1), helper.make_opsetid("", 17)]
    for name, other in (("F", "G"), ("G", "F")):
        nodes = [helper.make_node(other, ["a"], ["b"], domain="own")]
        made.functions.append(helper.make_function("own", name, ["a"], ["b"], nodes, opsets))
    made.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(DataError, match="call each other in a circle"):
        read_model(saved(tmp_path / "m.onnx", made))


def test_functions_that_double_each_other(tmp_path):
    """40 functions that each call the next one twice would be 2**40 nodes."""
    made = model([helper.make_node("F0", ["x"], ["y"], domain="own")], {"x": [2]}, ["y"], {})
    opsets = [helper.make_opsetid("own", 1), helper.make_opsetid("", 17)]
    for k in range(40):
        step = {"domain": "own"} if k < 39 else {}
        kind = f"F{k + 1}" if k < 39 else "Relu"
        nodes = [helper.make_node(kind, ["a"], ["c"], **step), helper.make_node(kind, ["c"], ["b"], **step)]
        made.functions.append(helper.make_function("own", f"F{k}", ["a"], ["b"], nodes, opsets))
    with pytest.raises(DataError, match="too many nodes"):
        read_model(saved(tmp_path / "m.onnx", made))


def test_nodes_in_another_order_and_local_functions(tmp_path):
    nodes = [relu("y", "b"), helper.make_node("F", ["x"], ["b"], domain="own")]
    made = model(nodes, {"x": [2]}, ["y"], {})
    inner = [helper.make_node("Neg", ["a"], ["b"])]
    made.functions.append(helper.make_function("own", "F", ["a"], ["b"], inner, [helper.make_opsetid("", 17)]))
    made.opset_import.append(helper.make_opsetid("own", 1))
    graph = read_model(saved(tmp_path / "m.onnx", made))
    assert [node.op_type for node in graph.nodes] == ["Neg", "Relu"]


def test_too_many_nodes(tmp_path):
    nodes = [relu(f"v{k + 1}" if k < 99_999 else "y", f"v{k}" if k else "x") for k in range(100_000)]
    with pytest.raises(ConfigError, match="too many nodes") as raised:
        read_model(saved(tmp_path / "m.onnx", model(nodes, {"x": [2]}, ["y"], {})))
    assert raised.value.rows["nodes"] == "100000"


def test_old_opsets(tmp_path):
    with pytest.raises(ConfigError, match="the opset of an ONNX file is too old") as raised:
        read_model(saved(tmp_path / "m.onnx", model([relu()], {"x": [2]}, ["y"], {}, opset=8)))
    assert raised.value.rows["allowed"] == "9 and newer"


def test_tensors_of_another_size_than_their_shape(tmp_path):
    for shape in ([2, 3], [-1, 4], [1 << 40, 1 << 40], [1 << 62]):
        made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 2]}, ["y"], {"w": ONES})
        del made.graph.initializer[0].dims[:]
        made.graph.initializer[0].dims.extend(shape)
        with pytest.raises(DataError, match="a tensor has"):
            read_model(saved(tmp_path / "m.onnx", made))


def test_all_unsupported_operators_are_listed(tmp_path):
    names = (("Frobnicate", "x", "a", "first"), ("Bernoulli", "a", "y", "second"))
    nodes = [helper.make_node(operator, [x], [y], name) for operator, x, y, name in names]
    with pytest.raises(ConfigError, match="2 operators of an ONNX file cannot be imported") as raised:
        OnnxNetwork(str(saved(tmp_path / "m.onnx", model(nodes, {"x": [2]}, ["y"], {}))))
    assert raised.value.rows["operators"].split("\n") == [
        "Bernoulli, opset 17: second; draws other numbers in each run, which no seed of a run decides",
        "Frobnicate, opset 17: first; no rule has been written",
    ]


def test_quantized_models(tmp_path):
    arrays = {"s": np.float32(0.1), "z": np.int8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    with pytest.raises(ConfigError, match="a quantized model: rounding has no gradient") as raised:
        OnnxNetwork(str(saved(tmp_path / "m.onnx", model(nodes, {"x": [2]}, ["y"], arrays))))
    assert raised.value.rows["repair"] == "import the model from before quantization"


def test_element_types_without_operators(tmp_path):
    tensor = numpy_helper.from_array(np.zeros(2, np.float32), "w")
    tensor.data_type = TensorProto.BFLOAT16
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2]}, ["y"], {})
    made.graph.initializer.append(tensor)
    with pytest.raises(ConfigError, match="an element type is not supported") as raised:
        read_model(saved(tmp_path / "m.onnx", made))
    assert raised.value.rows["value"] == "BFLOAT16"
    assert raised.value.rows["hint"] == "a model in Float32; of a quantized model, the original"


def test_nothing_is_written(tmp_path):
    folder = tmp_path / "only"
    folder.mkdir()
    path = saved(folder / "m.onnx", classifier())
    OnnxNetwork(str(path))
    assert list(folder.iterdir()) == [path]
    assert onnx.load(str(path)).graph.node
