"""The messages of `mind_ir.proto` that files of runner contain, for protobuf's own library: a reader of its own."""

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Field: number, type, and `*` if it is repeated. Numbers and names are those of MindSpore 2.10.
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


@cache
def model_class() -> Any:
    """The class of ModelProto."""
    file = descriptor_pb2.FileDescriptorProto(name="mind_ir.proto", package="mind_ir", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for text in fields.split(", "):
            field, number, kind = text.split()
            label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field, number=int(number), label=label)
            if (kind := kind.rstrip("*")) in SCHEMA:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".mind_ir.{kind}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("mind_ir.ModelProto"))


def decoded(content: bytes) -> Any:
    """The ModelProto of a file. Raises ValueError for fields that the schema does not have."""
    model = model_class()()
    model.ParseFromString(content)
    if model.ByteSize() != len(content) or model.UnknownFields() if hasattr(model, "UnknownFields") else False:
        raise ValueError("the file has fields that mind_ir.proto does not have")
    return model


def value_of(attribute: Any) -> Any:
    """What an attribute means: a number, text, a tuple, or for a tensor its element type and shape."""
    kind = attribute.type
    if kind == 20:
        return tuple(map(value_of, attribute.values))
    if kind == 19:
        return tuple((x.data_type, tuple(x.dims)) for x in attribute.tensors)
    if kind == 25:
        return None
    alone, repeated = {1: ("f", "floats"), 7: ("i", "ints"), 8: ("s", "strings"), 9: ("i", "ints")}[kind]
    items = getattr(attribute, repeated)
    value = items[0] if items else getattr(attribute, alone)
    return bool(value) if kind == 9 else value.decode() if kind == 8 else value
