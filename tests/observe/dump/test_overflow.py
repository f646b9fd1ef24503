"""Overflow records have MindSpore's layout, and every operator is watched by one of the two modes."""

import json
import struct

import pytest

from runner import ops
from runner.core.operators import Primitive
from runner.errors import DataError
from runner.observe.dump import dumper

TYPES = {t.__name__ for t in map(ops.__getattr__, ops.__all__) if isinstance(t, type) and issubclass(t, Primitive)}
SECTIONS = {"DHA Atomic Add": (0, 512), "L2 Atomic Add": (128, 768), "AI Core": (256, 1024)}
NAMES = ["model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base"]


def numbers(content, at, count):
    return list(struct.unpack_from(f"<{count}Q", content, at))


@pytest.mark.parametrize(
    ("kind", "units"), [(1, {"AI Core"}), (2, {"DHA Atomic Add"}), (3, {"AI Core", "DHA Atomic Add"})]
)
def test_a_record_is_where_the_layout_says(kind, units):
    content = dumper.overflow_record(kind, 57, 563, 514)
    assert len(content) == 2048
    for unit, (place, status) in SECTIONS.items():
        hit = unit in units
        assert numbers(content, place, 6) == ([514, 563, 57, 0, 0, 0] if hit else [0] * 6)
        states = numbers(content, status, 3)
        assert states == ([0, 0, 1] if unit == "AI Core" else [1, 0, 0]) if hit else [0, 0, 0]
    parsed = dumper.parse_overflow_record(content)
    assert {unit for unit, section in parsed.items() if section["status"]} == units


def test_a_record_of_a_device():
    """The example of CANN's documentation."""
    content = bytearray(2048)
    struct.pack_into("<6Q", content, 256, 514, 563, 57, 0, 0x1008005B0000, 0x100800297000)
    struct.pack_into("<3Q", content, 1024, 0x1008005AE000, 1, 32)
    quiet = dict.fromkeys(NAMES, 0) | {"pc_start": "0x0", "para_base": "0x0", "status": 0}
    assert dumper.parse_overflow_record(bytes(content)) == {
        "DHA Atomic Add": quiet,
        "L2 Atomic Add": quiet,
        "AI Core": {
            "model_id": 514,
            "stream_id": 563,
            "task_id": 57,
            "task_type": 0,
            "pc_start": "0x1008005b0000",
            "para_base": "0x100800297000",
            "kernel_code": "0x1008005ae000",
            "block_idx": 1,
            "status": 32,
        },
    }
    assert json.loads(json.dumps(dumper.parse_overflow_record(memoryview(content)))) == dumper.parse_overflow_record(
        content
    )


@pytest.mark.parametrize("size", [0, 1047, 2047, 2049])
def test_a_record_of_another_size(size):
    with pytest.raises(DataError) as caught:
        dumper.parse_overflow_record(bytes(size))
    assert caught.value.rows == {"expected": "2048 bytes", "found": f"{size} bytes"}


def test_each_operator_belongs_to_one_of_two_modes():
    assert dumper.ACCUMULATING <= TYPES
    for name in TYPES:
        assert [dumper.detects(mode, name) for mode in (0, 3)] == [False, True]
        assert dumper.detects(1, name) != dumper.detects(2, name)


@pytest.mark.parametrize(
    ("name", "mode"),
    [("Conv2D", 1), ("MatMul", 1), ("ReLU", 1), ("BiasAddGrad", 2), ("Conv2DBackpropFilter", 2), ("ReduceSum", 2)],
)
def test_who_watches_whom(name, mode):
    assert dumper.mode_of(name) == mode
    assert dumper.detects(mode, name)
    assert not dumper.detects(3 - mode, name)
