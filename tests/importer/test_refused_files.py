"""What ONNX's checker refuses, and what it should, is refused before anything else looks at the file."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_files import classifier, model, saved
from tables import table

import runner
from runner import cli
from runner.errors import ConfigError, DataError
from runner.importer import file
from runner.importer.file import read_model

ONES = np.ones((2, 2), np.float32)
TRUE = np.array(True)
DATA = "dataset=digits", "max_steps=1", "callbacks=quiet", "device.threads=1"
CHECKER = "ONNX's checker refuses an ONNX file"


def product() -> onnx.ModelProto:
    """y = x @ w"""
    return model([helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")], {"x": ["n", 2]}, ["y"], {"w": ONES})


def relu() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"], name="layer")], {"x": [2]}, ["y"], {})


def softmax() -> onnx.ModelProto:
    return model([helper.make_node("Softmax", ["x"], ["y"], name="layer", axis=0)], {"x": [2]}, ["y"], {})


def function(*inputs: str, nodes: Sequence[onnx.NodeProto] = ()) -> onnx.ModelProto:
    """y = F(inputs) with b = F(a), by default Relu."""
    made = model([helper.make_node("F", inputs or ["x"], ["y"], name="call", domain="own")], {"x": [2]}, ["y"], {})
    opsets = [helper.make_opsetid("own", 1), helper.make_opsetid("", 17)]
    made.opset_import.append(opsets[0])
    nodes = nodes or [helper.make_node("Relu", ["a"], ["b"])]
    made.functions.append(helper.make_function("own", "F", ["a"], ["b"], nodes, opsets))
    return made


def branches(conditions: int = 1, length: int = 1) -> onnx.ModelProto:
    """If with so many conditions, and branches of so many nodes."""
    names = ["x", *(f"h{k}" for k in range(length - 1)), "q"]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    part = helper.make_graph(nodes, "part", [], [helper.make_tensor_value_info("q", TensorProto.FLOAT, [2])])
    node = helper.make_node("If", ["c"] * conditions, ["y"], name="layer", then_branch=part, else_branch=part)
    return model([node], {"x": [2]}, ["y"], {"c": TRUE})


def reshape(shape: np.ndarray) -> onnx.ModelProto:
    return model([helper.make_node("Reshape", ["x", "s"], ["y"], name="layer")], {"x": [2, 2]}, ["y"], {"s": shape})


FAMILIES: dict[str, tuple[Callable[[], onnx.ModelProto], Callable[[onnx.ModelProto], object], str]] = {
    # tensors
    "another typed field": (product, lambda m: weight(m, "int64_data", [1, 2, 3, 4]), "another field than their type"),
    "a wider typed field": (product, lambda m: weight(m, "double_data", [1, 2, 3, 4]), "another field than their type"),
    "two typed fields": (product, lambda m: m.graph.initializer[0].float_data.append(1), "another field than"),
    "texts as numbers": (product, lambda m: weight(m, "string_data", [b"1"] * 4), "another field than their type"),
    "a segment": (product, lambda m: setattr(m.graph.initializer[0].segment, "end", 2), "a tensor in segments"),
    "dims of 2^62": (product, lambda m: dims(m, 1 << 62), "a tensor has an impossible shape"),
    "dims of 2^62 and 0": (product, lambda m: dims(m, 1 << 62, 0), "a tensor has an impossible shape"),
    "72 axes": (product, lambda m: dims(m, *[1] * 70, 2, 2), "a tensor has an impossible shape"),
    "an input of 72 axes": (relu, lambda m: lengths(m, *[1] * 72), "an input or output has an impossible"),
    "an input of 2^62 rows": (relu, lambda m: lengths(m, 1 << 62, 1 << 62), "an input or output has an impossible"),
    "a location with NUL": (product, lambda m: elsewhere(m, "a\0b"), "outside of the model's directory"),
    "a sparse tensor": (relu, lambda m: m.graph.sparse_initializer.add(dims=[2]), CHECKER),
    # names
    "one initializer twice": (product, lambda m: m.graph.initializer.add().CopyFrom(m.graph.initializer[0]), CHECKER),
    "one input twice": (product, lambda m: m.graph.input.add().CopyFrom(m.graph.input[0]), CHECKER),
    "a Constant with an initializer's name": (product, lambda m: constant(m, ["w"]), "a node writes an input"),
    "a Constant with an input's name": (product, lambda m: constant(m, ["x"]), "a node writes an input"),
    "a Constant without output": (product, lambda m: constant(m, []), CHECKER),
    "a Constant with an empty output": (product, lambda m: constant(m, [""]), CHECKER),
    "an undefined input": (product, lambda m: rename(m, 0), CHECKER),
    "an undefined weight": (product, lambda m: rename(m, 1), CHECKER),
    "an undefined output": (product, lambda m: setattr(m.graph.output[0], "name", "z"), CHECKER),
    "no name of the graph": (product, lambda m: m.graph.ClearField("name"), CHECKER),
    # operators
    "an attribute twice": (softmax, lambda m: attributes(m).add().CopyFrom(attributes(m)[0]), CHECKER),
    "an attribute with two values": (softmax, lambda m: setattr(attributes(m)[0], "f", 1.0), CHECKER),
    "an attribute without a type": (softmax, lambda m: attributes(m)[0].ClearField("type"), "another type than ONNX"),
    "an attribute of no function": (softmax, lambda m: reference(m), "refers to one of a function"),
    "a misspelt attribute": (softmax, lambda m: setattr(attributes(m)[0], "name", "Axis"), "no such attribute"),
    "Relu with two outputs": (relu, lambda m: m.graph.node[0].output.append("z"), CHECKER),
    "Relu with two inputs": (relu, lambda m: m.graph.node[0].input.append("x"), CHECKER),
    "MatMul with one input": (product, lambda m: m.graph.node[0].input.pop(), CHECKER),
    "no operator": (relu, lambda m: m.graph.node[0].ClearField("op_type"), CHECKER),
    "If with 0 conditions": (lambda: branches(0), lambda m: None, CHECKER),
    "If with 2 conditions": (lambda: branches(2), lambda m: None, CHECKER),
    "If with one branch": (branches, lambda m: attributes(m).pop(), "an attribute is missing"),
    "an undefined branch output": (branches, lambda m: setattr(attributes(m)[0].g.output[0], "name", "z"), CHECKER),
    "Reshape with a float shape": (lambda: reshape(np.array([4.0], np.float32)), lambda m: None, "an element type"),
    "operands of two types": (lambda: reshape(np.array([4])), lambda m: add_ints(m), "different element types"),
    # opsets and versions
    "opset 999": (relu, lambda m: setattr(m.opset_import[0], "version", 999), "new"),
    "opset 2^62": (relu, lambda m: setattr(m.opset_import[0], "version", 1 << 62), "new"),
    "opset 2^62 of another domain": (relu, lambda m: m.opset_import.add(domain="ai.onnx.ml", version=1 << 62), "new"),
    "a negative opset": (relu, lambda m: setattr(m.opset_import[0], "version", -3), "too old"),
    "two opsets": (relu, lambda m: m.opset_import.add(version=13), "two opsets of one domain"),
    "two opsets by two names": (relu, lambda m: m.opset_import.add(domain="ai.onnx", version=13), "two opsets of one"),
    "no opset": (relu, lambda m: m.ClearField("opset_import"), CHECKER),
    "no version": (relu, lambda m: m.ClearField("ir_version"), CHECKER),
    "version 99": (relu, lambda m: setattr(m, "ir_version", 99), CHECKER),
    # functions
    "a call with too many inputs": (lambda: function("x", "x"), lambda m: None, "a function is called with other"),
    "a call with too many outputs": (function, lambda m: m.graph.node[0].output.append("z"), "a function is called"),
    "a call with a misspelt attribute": (function, lambda m: attributes(m).add(name="k", type=2), "no such attribute"),
    "a function defined twice": (function, lambda m: m.functions.add().CopyFrom(m.functions[0]), "two functions"),
    "a recursive function": (lambda: function(nodes=[calls()]), lambda m: None, "call each other in a circle"),
    "an undefined output of a function": (function, lambda m: m.functions[0].node[0].output.append("c"), CHECKER),
    "a function without its result": (lambda: function(nodes=[other()]), lambda m: None, CHECKER),
}  # fmt: skip


def weight(made: onnx.ModelProto, field: str, values: Sequence[object]) -> None:
    made.graph.initializer[0].ClearField("raw_data")
    getattr(made.graph.initializer[0], field).extend(values)


def dims(made: onnx.ModelProto, *shape: int) -> None:
    made.graph.initializer[0].dims[:] = shape
    if 0 in shape:
        made.graph.initializer[0].raw_data = b""


def lengths(made: onnx.ModelProto, *shape: int) -> None:
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, shape))


def elsewhere(made: onnx.ModelProto, location: str) -> None:
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)


def constant(made: onnx.ModelProto, outputs: Sequence[str]) -> None:
    node = helper.make_node("Constant", [], outputs, value=numpy_helper.from_array(ONES))
    made.graph.node.insert(0, node)


def rename(made: onnx.ModelProto, place: int) -> None:
    made.graph.node[0].input[place] = "nothing"


def attributes(made: onnx.ModelProto):
    return made.graph.node[0].attribute


def reference(made: onnx.ModelProto) -> None:
    attributes(made)[0].ClearField("i")
    attributes(made)[0].ref_attr_name = "axis"


def add_ints(made: onnx.ModelProto) -> None:
    made.graph.node.append(helper.make_node("Add", ["y", "s"], ["z"]))


def calls() -> onnx.NodeProto:
    return helper.make_node("F", ["a"], ["b"], domain="own")


def other() -> onnx.NodeProto:
    return helper.make_node("Relu", ["a"], ["c"])


@table("family", FAMILIES)
def test_what_onnx_does_not_allow_is_refused(tmp_path, family):
    make, change, message = FAMILIES[family]
    made = make()
    change(made)
    with pytest.raises((DataError, ConfigError), match=message) as caught:
        read_model(saved(tmp_path / "model.onnx", made))
    assert caught.value.rows["file"] == str(tmp_path / "model.onnx")


@table("make", [product, relu, softmax, function, branches])
def test_the_models_without_the_change_are_read(tmp_path, make):
    assert read_model(saved(tmp_path / "model.onnx", make())).nodes


def test_what_the_checker_says_has_node_and_operator(tmp_path):
    made = relu()
    made.graph.node[0].output.append("z")
    with pytest.raises(DataError, match=CHECKER) as caught:
        read_model(saved(tmp_path / "model.onnx", made))
    assert (caught.value.rows["node"], caught.value.rows["operator"]) == ("layer", "Relu")
    assert "has output size 2" in caught.value.rows["reason"]


@table("place", [b"\x01w", b"\x05layer", b"\x06MatMul", b"\x05graph"])
def test_names_that_are_not_utf_8(tmp_path, place):
    path = tmp_path / "model.onnx"
    path.write_bytes(product().SerializeToString().replace(place, place[:1] + b"\xff" * (len(place) - 1)))
    with pytest.raises(DataError, match="a text in an ONNX file is not UTF-8"):
        read_model(path)


@table("name", [name for name, (make, _, _) in FAMILIES.items() if make is product])
def test_large_tensors_are_checked_too(tmp_path, monkeypatch, name):
    """The checker gets only names and types of them."""
    monkeypatch.setattr(file, "LARGE_BYTES", 0)
    make, change, _ = FAMILIES[name]
    made = make()
    assert read_model(saved(tmp_path / "model.onnx", made)).initializers["w"].shape == (2, 2)
    change(made)
    with pytest.raises((DataError, ConfigError)):
        read_model(saved(tmp_path / "model.onnx", made))


@table("words", [
    ["inspect", "model.onnx"],
    ["network=onnx", "network.path=model.onnx", *DATA],
    ["network=onnx", "network.path=model.onnx", "network.head=replace", "network.freeze=[a.*]", *DATA],
    ["compare", "model.onnx", "run"],
    ["eval", "run"],
    ["export", "run", "--to", "exported"],
])  # fmt: skip
def test_every_command_refuses(run, words, capsys):
    (run / "model.onnx").write_bytes(model([relu().graph.node[0]], {"z": [2]}, ["y"], {}).SerializeToString())
    assert cli.main(words) == DataError.exit_code
    assert CHECKER in capsys.readouterr().err


@table(("rows", "message"), [(0, "has no elements"), (5000, "has more rows than the test split")])
def test_a_batch_of_the_file_that_no_data_have(run, capsys, rows, message):
    made = classifier((1, 32, 32), 10)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = rows
    saved(run / "model.onnx", made)
    assert cli.main(["compare", "model.onnx", "run"]) == ConfigError.exit_code
    assert message in capsys.readouterr().err


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The working directory, with a run of a network of an ONNX file."""
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "model.onnx", classifier((1, 32, 32), 10))
    runner.run(["network=onnx", "network.path=model.onnx", *DATA, "hydra.run.dir=run"])
    return tmp_path


def test_nodes_in_branches_count(tmp_path):
    with pytest.raises(ConfigError, match="too many nodes") as caught:
        read_model(saved(tmp_path / "model.onnx", branches(length=50_000)))
    assert caught.value.rows["nodes"] == "100001"


def test_parts_count(tmp_path):
    """Two bytes each, of which protobuf makes messages."""
    path = tmp_path / "model.onnx"
    path.write_bytes(relu().SerializeToString() + b"\x72\0" * file.MOST_PARTS)
    with pytest.raises(ConfigError, match="too many parts"):
        read_model(path)


def test_a_function_is_as_large_as_its_calls(tmp_path):
    """A function of 1 MB that is called 100 times."""
    large = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.zeros(1 << 18, np.float32)))
    made = function(nodes=[large, helper.make_node("Relu", ["a"], ["b"])])
    for k in range(100):
        made.graph.node.append(helper.make_node("F", ["x"], [f"y{k}"], domain="own"))
    with pytest.raises(DataError, match="too large where they are called"):
        read_model(saved(tmp_path / "model.onnx", made))
