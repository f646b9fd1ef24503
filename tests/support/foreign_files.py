"""Dump files as another program writes them: protobuf's own runtime, with the schema of dump_data.proto.

Messages here know every field, and refuse those that the schema does not have.
"""

import struct

import numpy as np
from protobuf_schemas import message_classes

# Of the dump files of CANN: number, name and type of each field; `*` is repeated.
SCHEMA = {
    "DumpData": "1 version string, 2 dump_time uint64, 3 output OpOutput*, 4 input OpInput*, 5 buffer OpBuffer*, "
    "6 op_name string, 7 space OpBuffer*",
    "OpOutput": "1 data_type int32, 2 format int32, 3 shape Shape, 4 original_op OriginalOp, 5 data bytes, "
    "6 size uint64, 7 original_shape Shape, 8 sub_format int32",
    "OpInput": "1 data_type int32, 2 format int32, 3 shape Shape, 4 data bytes, 5 size uint64, 6 original_shape Shape, "
    "7 sub_format int32",
    "OriginalOp": "1 name string, 2 output_index uint32, 3 data_type int32, 4 format int32",
    "OpBuffer": "1 buffer_type int32, 2 data bytes, 3 size uint64",
    "Shape": "1 dim uint64*",
}
TYPES = {
    "float32": 1,
    "float16": 2,
    "int8": 3,
    "uint8": 4,
    "int16": 5,
    "uint16": 6,
    "int32": 7,
    "int64": 8,
    "uint32": 9,
    "uint64": 10,
    "bool": 11,
    "float64": 12,
}
FORMATS = {
    "NCHW": 0,
    "NHWC": 1,
    "ND": 2,
    "NC1HWC0": 3,
    "FRACTAL_Z": 4,
    "NC1HWC0_C04": 12,
    "CHWN": 14,
    "HWCN": 16,
    "FRACTAL_NZ": 29,
    "NDC1HWC0": 32,
    "FRACTAL_Z_G": 39,
    "FORMAT_47": 47,
}


CLASSES = message_classes("toolkit.dumpdata", SCHEMA)


def parsed(content):
    """A DumpData that has no other fields than those of the schema."""
    message = CLASSES["DumpData"].FromString(content)
    before = message.SerializeToString(deterministic=True)
    message.DiscardUnknownFields()
    assert message.SerializeToString(deterministic=True) == before
    return message


def message(op_name, inputs=(), outputs=(), buffers=(), spaces=(), inside=False, **more):
    """A DumpData; tensors are (array, format, original shape[, groups]), and `inside` puts the elements into it."""
    made = CLASSES["DumpData"](version="1.0" if inside else "2.0", dump_time=1624605159829577, op_name=op_name, **more)
    for side, tensors in ((made.input, inputs), (made.output, outputs)):
        for array, format, original, *groups in tensors:
            tensor = side.add(data_type=TYPES[array.dtype.name], format=FORMATS[format], size=array.nbytes)
            tensor.shape.dim.extend(array.shape)
            if original:
                tensor.original_shape.dim.extend(original)
            tensor.sub_format = groups[0] if groups else 0
            if inside:
                tensor.data = array.tobytes()
    for kind, pieces in ((made.buffer, buffers), (made.space, spaces)):
        for piece in pieces:
            kind.add(size=len(piece), data=piece if inside else b"")
    return made


def second(op_name, inputs=(), outputs=(), buffers=(), spaces=(), edit=None):
    """A whole file of version 2; `edit` changes the message before it is written."""
    made = message(op_name, inputs, outputs, buffers, spaces)
    if edit:
        edit(made)
    head = made.SerializeToString()
    tensors = [array.tobytes() for array, *_ in (*inputs, *outputs)]
    return b"".join((struct.pack("<Q", len(head)), head, *tensors, *buffers, *spaces))


def first(op_name, inputs=(), outputs=(), buffers=(), spaces=()):
    """A whole file of version 1."""
    return message(op_name, inputs, outputs, buffers, spaces, inside=True).SerializeToString()


def scalar(value, dtype=np.float32):
    """A tensor without axes."""
    return np.array(value, dtype), "ND", ()
