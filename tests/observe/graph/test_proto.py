"""`ms_output_*.pb` is what MindSpore's schema says: protobuf's own runtime reads it, with a schema built here."""

import numpy as np
import pytest
from protobuf_schemas import message_classes
from step_graphs import step_graph

from runner import dtype as dt, nn, ops
from runner.compile.passes import PASSES, optimize
from runner.core.trace import trace
from runner.observe.graph.proto import proto, value
from runner.types import TensorType

# `mind_ir.proto` of MindSpore: fields of each message as number, name, type; `*` is repeated.
SCHEMA = {
    "ModelProto": "1 ir_version int64, 2 domain string, 3 model_version int64, 4 graph GraphProto",
    "GraphProto": "1 node NodeProto*, 2 name string, 3 parameters ParameterProto*, 4 outputs OutputProto*, "
    "5 const_vals NamedValueProto*",
    "NodeProto": "1 input InputProto*, 2 name string, 3 op_type string, 4 scope string, 5 attribute AttributeProto*, "
    "6 output_type TypeProto, 7 output_i uint64, 8 full_name string",
    "InputProto": "1 name string, 2 type int32",
    "ParameterProto": "1 name string, 2 type TypeProto, 3 default_val ValueProto",
    "OutputProto": "1 name string, 2 type TypeProto",
    "AttributeProto": "1 name string, 2 value ValueProto",
    "NamedValueProto": "1 key string, 2 value ValueProto",
    "TypeProto": "1 data_type int32, 2 tensor_type Tensor, 3 sequence_type Sequence",
    "Tensor": "1 elem_type int32, 2 shape Shape",
    "Shape": "1 dim Dimension*",
    "Dimension": "1 size int64, 2 name string",
    "Sequence": "1 elem_types TypeProto*",
    "ValueProto": "1 dtype int32, 2 bool_val bool, 3 int_val int64, 4 uint_val uint64, 5 float_val float, "
    "6 double_val double, 7 str_val string, 8 tensor_val TensorProto, 18 values ValueProto*, 20 type_val TypeProto",
    "TensorProto": "1 dims int64*, 2 data_type int32, 8 raw_data bytes",
}
BOOL, INT64, FLOAT32, STRING, TENSOR, TUPLE, NONE, TYPE = 1, 5, 11, 13, 14, 31, 34, 39

ONE, FALSE = {"dtype": INT64, "int_val": 1}, {"dtype": BOOL, "bool_val": False}


@pytest.fixture(scope="module")
def messages():
    """The classes of the schema, which refuse fields that they do not know."""
    return message_classes("irpb", SCHEMA, "proto2")


def parsed(messages, graph):
    """The model that a graph becomes; every byte is one of the schema's fields."""
    content = proto(graph)
    model = messages["ModelProto"].FromString(content)
    before = model.SerializeToString(deterministic=True)
    model.DiscardUnknownFields()
    assert model.SerializeToString(deterministic=True) == before
    return model


def shape(type):
    return [d.size for d in type.tensor_type.shape.dim]


def test_a_training_step(messages):
    graph = optimize(step_graph("lenet"), PASSES)
    model = parsed(messages, graph)
    nodes = {node.full_name: node for node in model.graph.node if node.full_name}
    assert model.ir_version == 1
    assert model.graph.name == "train_step"
    assert list(nodes) == [node.name for node in graph.nodes]
    assert [node.name for node in model.graph.node] == [str(k + 1) for k in range(len(model.graph.node))]
    for node in graph.nodes:
        written = nodes[node.name]
        assert (written.op_type, written.scope) == (node.op.name, node.scope)
        assert [a.name for a in written.attribute] == list(node.listed_attributes())
        if len(node.outputs) == 1:
            assert shape(written.output_type) == list(node.outputs[0].shape)
            assert (written.output_type.data_type, written.output_type.tensor_type.elem_type) == (TENSOR, FLOAT32)
    given = [*graph.inputs, *graph.parameters.values()]
    assert [(p.name, shape(p.type)) for p in model.graph.parameters] == [(s.name, list(s.shape)) for s in given]


def test_every_edge_leads_somewhere(messages):
    graph = step_graph("resnet18")
    model = parsed(messages, graph)
    known = {p.name for p in model.graph.parameters} | {c.key for c in model.graph.const_vals}
    for node in model.graph.node:
        assert {x.name for x in node.input} <= known
        known.add(node.name)
    assert {output.name for output in model.graph.outputs} <= known


def test_several_results_are_a_tuple_and_updates_are_assigned(messages):
    graph = step_graph("lenet")
    model = parsed(messages, graph)
    step = next(node for node in model.graph.node if node.op_type == "ApplyMomentum")
    items = [n for n in model.graph.node if n.op_type == "TupleGetItem" and n.input[0].name == step.name]
    constants = {c.key: np.frombuffer(c.value.tensor_val.raw_data, np.int64)[0] for c in model.graph.const_vals[-2:]}
    assert step.output_type.data_type == TUPLE
    assert [shape(t) for t in step.output_type.sequence_type.elem_types] == [[6, 1, 5, 5]] * 2
    assert [constants[item.input[1].name] for item in items] == [0, 1]
    assigned = {n.input[0].name: n.input[1].name for n in model.graph.node if n.op_type == "Assign"}
    assert set(assigned) == {p.name for p in graph.updates}
    assert [assigned[x.name] for x in step.input[:2]] == [item.name for item in items]


def test_constants(messages):
    class Net(nn.Cell):
        def construct(self, x):
            return x * np.float32([1, 2, 3]) + np.ones((200, 200, 3), np.float32)

    graph = trace(Net().construct, [TensorType(dt.float32, (200, 3))], "net")
    small, large = (c.value for c in parsed(messages, graph).graph.const_vals)
    assert (small.dtype, small.tensor_val.data_type, list(small.tensor_val.dims)) == (TENSOR, FLOAT32, [3])
    assert np.frombuffer(small.tensor_val.raw_data, np.float32).tolist() == [1, 2, 3]
    assert (list(large.tensor_val.dims), large.tensor_val.raw_data) == ([200, 200, 3], b"")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (True, {"dtype": BOOL, "bool_val": True}),
        (-3, {"dtype": INT64, "int_val": -3}),
        (2**62, {"dtype": INT64, "int_val": 2**62}),
        (0.1, {"dtype": 12, "double_val": 0.1}),
        ("same", {"dtype": STRING, "str_val": "same"}),
        (None, {"dtype": NONE}),
        (dt.float16, {"dtype": TYPE, "type_val": {"data_type": 10}}),
        ((1, (False,)), {"dtype": TUPLE, "values": [ONE, {"dtype": TUPLE, "values": [FALSE]}]}),
    ],
)
def test_attributes(messages, given, expected):
    assert messages["ValueProto"].FromString(value(given)) == messages["ValueProto"](**expected)


def test_effects_are_nodes_without_results(messages):
    class Net(nn.Cell):
        def construct(self, x):
            ops.Print()("x is", x)
            return x + x

    graph = trace(Net().construct, [TensorType(dt.float32, (2,))], "net")
    told = parsed(messages, graph).graph.node[-1]
    assert (told.op_type, [x.name for x in told.input]) == ("Print", ["input0"])
    assert list(told.output_type.sequence_type.elem_types) == []
