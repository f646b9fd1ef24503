"""The text of a graph: held whole for a tiny network, read back for large ones, refused where it is damaged."""

import re
from pathlib import Path

import numpy as np
import pytest
from step_graphs import step_graph, tiny_graph

import runner.observe.graph
from runner import dtype as dt, nn, ops
from runner.compile.onnx.describe import describe_model
from runner.compile.onnx.lower import lower, lower_sunk
from runner.compile.passes import PASSES, default_passes, optimize
from runner.core.trace import trace
from runner.core.values import Value
from runner.device import Device
from runner.errors import DataError
from runner.observe.graph.listing import constant_text, describe, parse, text
from runner.types import TensorType

GOLDEN = Path(__file__).with_name("tiny.ir")


def test_the_text_of_a_tiny_network():
    printed = text(describe(tiny_graph(), 7, {"mode": "graph"}))
    printed = re.sub(r"\(\d+\)/", "(N)/", printed.replace(f"{Path(__file__).parents[3]}/", ""))
    assert (
        re.sub(r"(In file runner/.*\(N\))/.*/", r"\1/.../", printed) == GOLDEN.read_text()
    )  # our layers may be rewritten


# Of "Dump in graph mode": the first convolution of a ResNet-50 for CIFAR-10. Its other keys are notes of Ascend.
DOCUMENTED = """{instance name: conv2d} primitive_attrs: {out_channel: 64, kernel_size: (3, 3), pad_mode: pad,
 stride: (1, 1, 1, 1), mode: 1, pad: (1, 1, 1, 1), pad_list: (1, 1, 1, 1), group: 1, format: NCHW,
 dilation: (1, 1, 1, 1), input_names: [x, w], output_names: [output], groups: 1}"""


def attributes_of(layer: nn.Cell, *shapes: tuple[int, ...]) -> dict[str, str]:
    """The instance name and the attributes of the first operator of a layer."""
    listing = describe(trace(layer, [TensorType(dt.float32, shape) for shape in shapes], "layer"))
    first = parse(text(listing)).subgraphs[0].operations[0]
    return {"instance name": first.instance, **dict(first.attributes)}


def test_attributes_are_those_of_the_documented_line():
    written = attributes_of(nn.Conv2d(3, 64, 3, pad_mode="pad", padding=1), (32, 3, 32, 32))
    line = DOCUMENTED.replace("\n", "").replace(": {", ", ")
    listed = re.findall(r"([\w ]+): ([^{}(\[]*?|\(.*?\)|\[.*?\])[,}]", line)
    assert written == {key.strip(): value for key, value in listed if value}
    assert len(written) == 14


def test_attributes_of_other_windows():
    """`same` has its padding in `pad_list`; gradients have the image's; pools have windows of four numbers."""
    same = attributes_of(nn.Conv2d(2, 4, 3, stride=2, dilation=1, group=2), (1, 2, 8, 8))
    assert [same[key] for key in ("stride", "pad", "pad_list", "groups")] == [
        "(1, 1, 2, 2)",
        "(0, 0, 0, 0)",
        "(0, 1, 0, 1)",
        "2",
    ]
    pool = attributes_of(nn.MaxPool2d(3, 2), (1, 2, 8, 8))
    assert [pool[key] for key in ("instance name", "kernel_size", "strides", "format", "input_names")] == [
        "max_pool",
        "(1, 1, 3, 3)",
        "(1, 1, 2, 2)",
        "NCHW",
        "[x]",
    ]
    step = [o for o in describe(step_graph("lenet")).subgraphs[0].operations if o.op.startswith("Conv2DBackprop")]
    assert {o.op: dict(o.attributes)["input_names"] for o in step} == {
        "Conv2DBackpropFilter": "[out_backprop, input]",
        "Conv2DBackpropInput": "[out_backprop, filter]",
    }
    assert {o.instance for o in step} == {""}


def test_names_of_operators_that_scripts_set():
    """An operator has the name of the attribute that holds it, also when a call passes an argument of it."""

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.statistics = ops.Reshape(), ops.BatchNorm()

        def construct(self, x: Value) -> Value:
            one = self.flat(x, (4, 2))
            scale = ops.ReduceMean()(one, 0)
            return self.statistics(one, scale, scale, scale, scale)[0]

    flat, mean, norm = describe(trace(Net(), [TensorType(dt.float32, (8,))], "net")).subgraphs[0].operations
    assert (flat.instance, mean.instance, norm.instance) == ("flat", "", "statistics")
    assert dict(norm.attributes)["output_names"] == "[y, batch_mean, batch_variance, reserve_space_1, reserve_space_2]"


def test_a_layout_is_a_second_line_of_types():
    """The formats that the forms of the nodes name, with the shapes in memory."""
    first = describe(optimize(step_graph("lenet"), default_passes(Device()))).subgraphs[0].operations[0]
    held = first.device_types
    assert (first.op, held[0][0].format, held[0][0].shape) == ("Conv2D", "CHWN", (1, 32, 32, 32))
    assert (held[1][0].format, held[1][0].shape) == ("22CHWN", (2, 2, 6, 14, 14, 32))
    assert ">) -> (<Float32x22CHWN[const vector][2, 2, 6, 14, 14, 32]>)" in text(
        describe(optimize(step_graph("lenet"), default_passes(Device())))
    )


@pytest.mark.parametrize("passes", [(), PASSES, default_passes(Device())], ids=["traced", "plain", "placed"])
@pytest.mark.parametrize("name", ["lenet", "resnet18"])
def test_what_is_printed_is_read_back(name, passes, tmp_path):
    listing = describe(optimize(step_graph(name), passes), 3, {"mode": "graph", "note": "a : b"})
    (tmp_path / "x.ir").write_text(text(listing))
    assert runner.observe.graph.read(tmp_path / "x.ir") == listing


class Odd(nn.Cell):
    """Attributes and constants that are hard to print."""

    def construct(self, x: Value) -> Value:
        ops.Print()('two "words", and ) a } brace', x, "\\")
        pieces = ops.Split(1, 3)(x)
        large, small = np.arange(24, dtype=np.float32).reshape(4, 6), np.array([[True], [False], [True], [False]])
        return ops.Select()(small, ops.Concat(1)(pieces) + large, ops.Cast(dt.float32)(x))


def test_quotes_brackets_and_constants_are_read_back():
    listing = describe(trace(Odd().construct, [TensorType(dt.float32, (4, 6))], "odd"))
    operations = {operation.op: operation for operation in listing.subgraphs[0].operations}
    assert parse(text(listing)) == listing
    assert operations["Print"].results == ()
    assert operations["Split"].results == ("%1[0]", "%1[1]", "%1[2]")
    assert operations["Concat"].operands == operations["Split"].results
    assert "Bool[4, 1]{True, False, True, False}" in operations["Select"].operands
    assert any(x.endswith(":Float32[4, 6]{...}") for x in operations["Add"].operands)


def test_a_long_constant_prints_the_digits_of_its_type():
    """0.1 was 0.10000000149011612."""
    assert constant_text("cst1", np.full(20, 0.1, np.float32)) == "cst1:Float32[20]{0.1, ...}"
    assert constant_text("cst2", np.arange(20)) == "cst2:Int64[20]{...}"


def test_new_values_of_parameters_are_named():
    listing = describe(step_graph("lenet"))
    subgraph = listing.subgraphs[0]
    weights = [p.reference for p in listing.parameters if p.is_weight]
    updates = dict(subgraph.updates)
    assert set(updates) == {w for w in weights if not w.endswith("_learning_rate")}
    last = {operation.full_name.rpartition("/")[2]: operation for operation in subgraph.operations}[
        "ApplyMomentum-op37"
    ]
    assert [updates[last.operands[0]], updates[last.operands[1]]] == ["%37[0]", "%37[1]"]


def test_a_lowered_step_is_read_back():
    graph = optimize(step_graph("lenet"), default_passes(Device()))
    model = lower(graph, ("image", "label"), ("loss",))
    listing = describe_model(model, graph, 0)
    operations = listing.subgraphs[0].operations
    assert parse(text(listing)) == listing
    assert [(o.op, o.name) for o in operations] == [(node.op_type, node.name) for node in model.graph.node]
    assert {o.full_name for o in operations} <= {node.name for node in graph.nodes}
    assert None not in {kind for o in operations for kind in (*o.operand_types, *o.result_types)}


def test_a_sunk_step_is_a_subgraph():
    graph = optimize(step_graph("lenet"), default_passes(Device()))
    kinds = [TensorType(dt.int64, (32,)), graph.inputs[0].type.with_shape(9, 1, 32, 32), TensorType(dt.int32, (9,))]
    fetch = optimize(trace(lambda n, x, y: [ops.Gather(0)(x, n), ops.Gather(0)(y, n)], kinds, "fetch", "Dataset"))
    listing = describe_model(lower_sunk(fetch, graph, ["rows"], ["image", "label"]), graph, 5)
    scan, step = listing.subgraphs
    assert parse(text(listing)) == listing
    assert ("body", "@step.5") in scan.operations[0].attributes
    assert step.operations[0].operands == ("%para2_image", step.parameters[-1])
    assert step.parameters[-1].endswith("_rows:entry")


# What is not such a text


def damaged(text: str) -> dict[str, str]:
    lines = text.splitlines(keepends=True)
    return {
        "empty": "",
        "cut": text[: len(text) // 2],
        "cut in front of the last line": "".join(lines[:-1]),
        "cut inside an update": text.partition("  return(")[0] + "  Assign(%para1_x, %0)",
        "a line is gone": "".join(lines[:15] + lines[16:]),
        "more after the end": text + "x\n",
        "one parameter less than counted": "".join(lines[:6] + lines[7:]),
        "another entry": text.replace("@tiny.0\n", "@other.0\n"),
        "an unknown element type": text.replace("Tensor[Float32]", "Tensor[Float31]"),
        "a count that is none": text.replace("#Total params  : 3", "#Total params  : x"),
        "a shape that is none": text.replace("[4, 3]>", "[4 3]>"),
    }


DAMAGED = damaged(text(describe(tiny_graph())))


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_text_is_refused_with_its_line(content, tmp_path):
    (tmp_path / "x.ir").write_text(content)
    with pytest.raises(DataError, match="not the text of a graph") as caught:
        runner.observe.graph.read(tmp_path / "x.ir")
    assert {"line", "expected", "found", "file"} <= set(caught.value.rows)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "x.ir").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not a text file"):
        runner.observe.graph.read(tmp_path / "x.ir")
    with pytest.raises(DataError, match="a file is missing"):
        runner.observe.graph.read(tmp_path / "y.ir")
