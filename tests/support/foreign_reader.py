"""Reads the CANN dump file from its byte layout with protobuf's own runtime."""

import struct
from typing import NamedTuple

import numpy as np
from protobuf_schemas import message_classes

SCHEMA = {
    "DumpData": "1 version string, 2 dump_time uint64, 3 output OpOutput*, 4 input OpInput*, 6 op_name string",
    "OpOutput": "1 data_type int32, 2 format int32, 3 shape Shape, 6 size uint64, 7 original_shape Shape",
    "OpInput": "1 data_type int32, 2 format int32, 3 shape Shape, 5 size uint64, 6 original_shape Shape",
    "Shape": "1 dim uint64*",
}
TYPES = dict(enumerate(("<f4", "<f2", "<i1", "<u1", "<i2", "<u2", "<i4", "<i8", "<u4", "<u8", "?", "<f8"), start=1))
FORMATS = {0: "NCHW", 2: "ND", 14: "CHWN"}


class Tensor(NamedTuple):
    format: str
    original: tuple
    array: np.ndarray


class Operator(NamedTuple):
    name: str
    time: int
    inputs: list
    outputs: list


DUMP_DATA = message_classes("foreign", SCHEMA)["DumpData"]


def read(path):
    """One operator. Fails unless the sizes add up to the size of the file and all fields are of the schema."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    message = DUMP_DATA.FromString(content[8 : 8 + length])
    known = DUMP_DATA.FromString(content[8 : 8 + length])
    known.DiscardUnknownFields()
    assert known.SerializeToString() == message.SerializeToString()
    assert message.version == "2.0"
    assert 8 + length + sum(t.size for t in (*message.input, *message.output)) == len(content)
    place, sides = 8 + length, []
    for side in (message.input, message.output):
        sides.append([])
        for tensor in side:
            elements = np.frombuffer(content[place : place + tensor.size], TYPES[tensor.data_type])
            place += tensor.size
            original = tuple(tensor.original_shape.dim)
            sides[-1].append(Tensor(FORMATS[tensor.format], original, elements.reshape(tuple(tensor.shape.dim))))
    return Operator(message.op_name, message.dump_time, *sides)
