"""The messages of `mind_ir.proto` that files of runner contain, for protobuf's own library: a reader of its own."""

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Of each field the name, the number and the type, with `*` if it is repeated: those of MindSpore 2.10.
SCHEMA = {
    "TensorProto": "dims 1 int64*, data_type 2 int32, name 7 string, raw_data 9 bytes",
    "AttributeProto": "name 1 string, f 2 float, i 3 int64, s 5 bytes, floats 8 float*, ints 10 int64*, "
    "strings 11 bytes*, tensors 12 TensorProto*, type 16 int32, values 17 AttributeProto*",
    "ValueInfoProto": "name 1 string, tensor 2 TensorProto*",
    "NodeProto": "input 1 string*, output 2 string*, name 3 string, op_type 4 string, attribute 5 AttributeProto*, "
    "domain 7 string",
    "GraphProto": "node 1 NodeProto*, name 2 string, parameter 3 TensorProto*, input 5 ValueInfoProto*, "
    "output 6 ValueInfoProto*",
    "ModelProto": "ir_version 1 string, producer_name 2 string, producer_version 3 string, model_version 5 string, "
    "graph 7 GraphProto, little_endian 10 bool, mind_ir_version 13 int64",
}
# AttributeProto.AttributeType: what a value is, and the fields that have it alone and as an item of a tuple.
ALONE = {1: ("f", "floats"), 7: ("i", "ints"), 8: ("s", "strings"), 9: ("i", "ints")}
TENSORS, TUPLE, BOOL, STRING = 19, 20, 9, 8


@cache
def model_class() -> Any:
    """The class of ModelProto."""
    file = descriptor_pb2.FileDescriptorProto(name="mind_ir.proto", package="mind_ir", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for field, number, kind in (text.split() for text in fields.split(", ")):
            label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field, number=int(number), label=label)
            if (plain := kind.rstrip("*")) in SCHEMA:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".mind_ir.{plain}"
            else:
                added.type = getattr(kinds, f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("mind_ir.ModelProto"))


def decoded(content: bytes) -> Any:
    """The ModelProto of a file, all of whose fields the schema has."""
    model = model_class()()
    model.ParseFromString(content)
    whole = model.ByteSize()
    model.DiscardUnknownFields()
    assert model.ByteSize() == whole == len(content)
    return model


def value_of(attribute: Any) -> Any:
    """What an attribute means: a number, a text, a tuple; for tensors the pairs of element type and shape."""
    if attribute.type == TUPLE:
        return tuple(map(value_of, attribute.values))
    if attribute.type == TENSORS:
        return tuple((x.data_type, tuple(x.dims)) for x in attribute.tensors)
    alone, repeated = ALONE[attribute.type]
    items = getattr(attribute, repeated)
    value = items[0] if items else getattr(attribute, alone)
    return bool(value) if attribute.type == BOOL else value.decode() if attribute.type == STRING else value


def described(model: Any) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Each node but constants: its primitive, its operands (values of constants, `None` for others), attributes."""
    constants = {n.output[0]: value_of(n.attribute[0]) for n in model.graph.node if n.op_type == "Constant"}
    return [
        (node.op_type, tuple(map(constants.get, node.input)), {a.name: value_of(a) for a in node.attribute})
        for node in model.graph.node
        if node.op_type != "Constant"
    ]
