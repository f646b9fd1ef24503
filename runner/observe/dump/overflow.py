"""Overflow detection: the operators that a mode checks, and the overflow record `Opdebug.Node_OpDebug.*`.

The record has 2048 bytes (spec section 3.7): the tasks of three kinds of units, then their status.

    0     DHA Atomic Add   model_id, stream_id, task_id, task_type, pc_start, para_base     uint64 each
    128   L2 Atomic Add    the same fields
    256   AI Core          the same fields
    512   status of DHA Atomic Add
    768   status of L2 Atomic Add
    1024  kernel_code, block_idx and status of AI Core
"""

import struct
from typing import Any

from runner.errors import DataError

OP_TYPE, OP_NAME = "Opdebug", "Node_OpDebug"
COMPUTE, ATOMIC, ALL = 1, 2, 3  # op_debug_mode
RECORD_SIZE = 2048
STATUS_OVERFLOW = 1
_FIELDS = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")
_ADDRESSES = ("pc_start", "para_base", "kernel_code")
_LAYOUT: dict[str, tuple[int, int, tuple[str, ...]]] = {  # offsets of task and status, fields of the status
    "DHA Atomic Add": (0, 512, ("status",)),
    "L2 Atomic Add": (128, 768, ("status",)),
    "AI Core": (256, 1024, ("kernel_code", "block_idx", "status")),
}
_UNITS = {COMPUTE: ("AI Core",), ATOMIC: ("DHA Atomic Add",), ALL: ("AI Core", "DHA Atomic Add")}

# Mode 2 of the reference checks atomic additions: many tasks add partial sums to the same memory. These are reductions,
# and gradients of parameters, which are sums over the batch and all positions. Matrix products and convolutions
# accumulate inside of one unit, so that they belong to mode 1, as on the device.
ACCUMULATING = frozenset(
    {
        *("BatchNormGrad", "BiasAddGrad", "Conv2DBackpropFilter", "LayerNormGrad"),
        *("ReduceMean", "ReduceSum", "UnsortedSegmentSum"),
    }
)


def mode_of(op_type: str) -> int:
    """The mode that checks operators of this type: COMPUTE or ATOMIC."""
    return ATOMIC if op_type in ACCUMULATING else COMPUTE


def detects(mode: int, op_type: str) -> bool:
    """Whether an `op_debug_mode` checks an operator: 0 none, 1 those that compute, 2 those that accumulate, 3 all."""
    return mode in (ALL, mode_of(op_type))


def record(mode: int, task_id: int, stream_id: int = 0, model_id: int = 0) -> bytes:
    """The record of an overflow that `mode` has detected; with ALL in units of both kinds.

    Addresses of code and operands do not exist here: they are 0.
    """
    content = bytearray(RECORD_SIZE)
    for unit in _UNITS[mode]:
        task, status, names = _LAYOUT[unit]
        struct.pack_into("<3Q", content, task, model_id, stream_id, task_id)
        struct.pack_into("<Q", content, status + 8 * names.index("status"), STATUS_OVERFLOW)
    return bytes(content)


def parse(content: bytes | memoryview) -> dict[str, dict[str, Any]]:
    """The fields of a record as msaccucmp writes them into a JSON file: numbers, and addresses in hexadecimal.

    Raises DataError if it has another size: newer versions of CANN have other records.
    """
    if len(content) != RECORD_SIZE:
        expected, found = f"{RECORD_SIZE} bytes", f"{len(content)} bytes"
        raise DataError("not an overflow record", expected=expected, found=found)
    return {unit: _parse_unit(content, *layout) for unit, layout in _LAYOUT.items()}


def _parse_unit(content: bytes | memoryview, task: int, status: int, names: tuple[str, ...]) -> dict[str, Any]:
    values = dict(zip(_FIELDS, struct.unpack_from("<6Q", content, task), strict=True))
    values |= zip(names, struct.unpack_from(f"<{len(names)}Q", content, status), strict=True)
    return {name: hex(value) if name in _ADDRESSES else value for name, value in values.items()}
