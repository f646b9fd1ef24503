"""Overflow detection: which operators a mode watches, and the record of an overflow, `Opdebug.Node_OpDebug.*`.

The record has 2048 bytes (spec section 3.7): places of three kinds of units, then what happened there.

    0     DHA Atomic Add   model_id, stream_id, task_id, task_type, pc_start, para_base     uint64 each
    128   L2 Atomic Add    the same
    256   AI Core          the same
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
OVERFLOWN = 1
_FIELDS = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")
_STATUS = {
    "DHA Atomic Add": ("status",),
    "L2 Atomic Add": ("status",),
    "AI Core": ("kernel_code", "block_idx", "status"),
}
_ADDRESSES = ("pc_start", "para_base", "kernel_code")
_PLACES = {"DHA Atomic Add": (0, 512), "L2 Atomic Add": (128, 768), "AI Core": (256, 1024)}
_UNITS = {COMPUTE: ("AI Core",), ATOMIC: ("DHA Atomic Add",), ALL: ("AI Core", "DHA Atomic Add")}

# Mode 2 of the reference watches additions into memory ("Atomic Add"): many tasks add their shares of one sum to the
# same place. These are reductions, and the gradients of parameters, which are sums over a batch and all its places.
# Matrix products and convolutions add up, too, but inside of one unit: those belong to mode 1, as on the device.
ACCUMULATING = frozenset(
    {
        *("BatchNormGrad", "BiasAddGrad", "Conv2DBackpropFilter", "LayerNormGrad"),
        *("ReduceMean", "ReduceSum", "UnsortedSegmentSum"),
    }
)


def kind(op_type: str) -> int:
    """Which mode watches an operator of this type: COMPUTE or ATOMIC."""
    return ATOMIC if op_type in ACCUMULATING else COMPUTE


def detects(mode: int, op_type: str) -> bool:
    """Whether an `op_debug_mode` watches an operator: 0 none, 1 those that compute, 2 those that accumulate, 3 all."""
    return mode in (ALL, kind(op_type))


def record(kind: int, task_id: int, stream_id: int = 0, model_id: int = 0) -> bytes:
    """The record that an operator has overflown; ALL says that it was one of either kind.

    Addresses of code and operands mean nothing here: they are 0.
    """
    made = bytearray(RECORD_SIZE)
    for unit in _UNITS[kind]:
        place, status = _PLACES[unit]
        struct.pack_into("<3Q", made, place, model_id, stream_id, task_id)
        struct.pack_into("<Q", made, status + 8 * _STATUS[unit].index("status"), OVERFLOWN)
    return bytes(made)


def parse(content: bytes | memoryview) -> dict[str, dict[str, Any]]:
    """What a record says, as msaccucmp writes it into a JSON file: numbers, and addresses in hexadecimal.

    Raises DataError when it has another size: newer versions of CANN have other records.
    """
    if len(content) != RECORD_SIZE:
        expected, found = f"{RECORD_SIZE} bytes", f"{len(content)} bytes"
        raise DataError("not a record of an overflow", expected=expected, found=found)
    return {unit: _shown(unit, content) for unit in _PLACES}


def _shown(unit: str, content: bytes | memoryview) -> dict[str, Any]:
    place, status = _PLACES[unit]
    values = dict(zip(_FIELDS, struct.unpack_from("<6Q", content, place), strict=True))
    names = _STATUS[unit]
    values |= zip(names, struct.unpack_from(f"<{len(names)}Q", content, status), strict=True)
    return {name: hex(value) if name in _ADDRESSES else value for name, value in values.items()}
