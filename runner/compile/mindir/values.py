"""Attributes, constants and tensors as messages of MindSpore's `mind_ir.proto`.

An attribute has its value in the field of its type; an item of a tuple has it in the repeated field of that type.
"""

from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dtype import DType
from runner.host.protobuf import message
from runner.types import TensorType

# AttributeProto.AttributeType
_FLOAT, _INT64, _STRING, _BOOL, _TENSORS, _TUPLE = 1, 7, 8, 9, 19, 20
# TensorProto.DataType
ELEMENT_TYPES: dict[DType, int] = {
    dt.float32: 1,
    dt.uint8: 2,
    dt.int8: 3,
    dt.uint16: 4,
    dt.int16: 5,
    dt.int32: 6,
    dt.int64: 7,
    dt.bool_: 9,
    dt.float16: 10,
    dt.float64: 11,
    dt.uint32: 12,
    dt.uint64: 13,
}
# mindspore::TypeId
TYPE_NUMBERS: dict[DType, int] = {
    dt.bool_: 30,
    dt.int8: 32,
    dt.int16: 33,
    dt.int32: 34,
    dt.int64: 35,
    dt.uint8: 37,
    dt.uint16: 38,
    dt.uint32: 39,
    dt.uint64: 40,
    dt.float16: 42,
    dt.float32: 43,
    dt.float64: 44,
}
# The fields of AttributeProto for a value that stands alone, and for an item of a tuple.
_ALONE, _ITEM = {_FLOAT: 2, _INT64: 3, _BOOL: 3, _STRING: 5}, {_FLOAT: 8, _INT64: 10, _BOOL: 10, _STRING: 11}


def attribute(name: str, value: Any) -> bytes:
    """AttributeProto of a bool, number, text, element type (by its number), array, or a tuple of those."""
    return _attribute(name, value, _ALONE)


def _attribute(name: str, value: Any, fields: dict[int, int]) -> bytes:
    names = [(1, name)] if name else []
    if isinstance(value, tuple | list):
        return message(*names, (16, _TUPLE), *((17, _attribute("", item, _ITEM)) for item in value))
    if isinstance(value, DType):
        value = TYPE_NUMBERS[value]
    if isinstance(value, np.ndarray):
        return message(*names, (16, _TENSORS), (12, tensor("", value)))
    if isinstance(value, float):
        kind, value = _FLOAT, np.float32(value)
    else:
        kind = _BOOL if isinstance(value, bool) else _INT64 if isinstance(value, int) else _STRING
    return message(*names, (16, kind), (fields[kind], value))


def types(name: str, *given: TensorType) -> bytes:
    """AttributeProto of the type of a tensor, or of a tuple of several tensors."""
    each = [((16, _TENSORS), (12, tensor_type("", one))) for one in given]
    if len(each) == 1:
        return message((1, name), *each[0])
    return message((1, name), (16, _TUPLE), *((17, message(*one)) for one in each))


def tensor_type(name: str, given: TensorType) -> bytes:
    """TensorProto without elements."""
    return message(*_described(name, given))


def tensor(name: str, array: np.ndarray) -> bytes:
    """TensorProto with elements."""
    return message(*_described(name, TensorType.of(array)), (9, np.ascontiguousarray(array).tobytes()))


def _described(name: str, given: TensorType) -> list[tuple[int, int | str | bytes]]:
    names: list[tuple[int, int | str | bytes]] = [(7, name)] if name else []
    return [*((1, length) for length in given.shape), (2, ELEMENT_TYPES[given.dtype]), *names]
