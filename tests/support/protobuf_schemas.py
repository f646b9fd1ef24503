"""Messages of protobuf's own runtime for a schema that is written down in a test: an oracle for files that we write."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def message_classes(package: str, schema: Mapping[str, str], syntax: str = "proto3") -> dict[str, Any]:
    """Classes by name. A schema has for each message its fields as `1 name type, 2 name type*`; `*` is repeated."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in schema.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            number, called, kind = field.split()
            label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            made = message.field.add(name=called, number=int(number), label=label)
            kind = kind.rstrip("*")
            if kind in schema:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                made.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in schema}
