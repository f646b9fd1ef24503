"""Formats of dump files: what each writes, it reads back, and names of files belong to one format only."""

import numpy as np
import pytest

from runner import dtype as dt
from runner.observe.dump.cann import TensorHeader
from runner.observe.dump.files import ASYNCHRONOUS, FORMATS, SYNC, AsyncName
from runner.observe.dump.settings import FILE_FORMATS, AsyncDump
from runner.observe.dump.writers import write_pieces
from runner.validation.rules import rule_of

OPERATOR = AsyncName("Conv2D", "Default_conv1_Conv2D-op3", 3, 0, 1234567)
FULL_NAME = "Default/conv1/Conv2D-op3"
ARRAYS = (
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.float16(1.5).reshape(()),
    np.array([True, False]),
    np.zeros((0, 4), np.int32),
    np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
)
each_format = pytest.mark.parametrize("format", FORMATS, ids=lambda one: type(one).__name__)


def described(array):
    return TensorHeader(dt.of(array.dtype), "ND", array.shape, array.shape), array


@each_format
def test_what_is_written_is_read_back(tmp_path, format):
    tensors = [described(array) for array in ARRAYS]
    found = {}
    for file in format.files(OPERATOR, FULL_NAME, tensors, tensors[::-1]):
        path = tmp_path / file.name
        write_pieces(path, file.pieces)
        stored = format.parse(file.name, path.stat().st_size)
        assert stored.operator.op_name == (FULL_NAME if format.has_full_names else OPERATOR.op_name)
        assert format.has_full_names or stored.operator == OPERATOR
        found |= {(one.io, one.slot): one for one in stored.read(path)}
    assert len(found) == 2 * len(ARRAYS)
    for slot, array in enumerate(ARRAYS):
        for one in (found["input", slot], found["output", len(ARRAYS) - 1 - slot]):
            read = one.elements()
            assert (one.header.dtype, one.header.shape) == (dt.of(array.dtype), array.shape)
            assert read.dtype == array.dtype
            assert np.array_equal(read, array)


@each_format
def test_a_file_names_the_tensors_in_it(format):
    """Statistics are made of them."""
    files = list(format.files(OPERATOR, FULL_NAME, [described(ARRAYS[0])], [described(ARRAYS[1])]))
    inside = [(io, slot, array) for file in files for io, slot, _, array in file.tensors]
    assert [(io, slot) for io, slot, _ in inside] == [("input", 0), ("output", 0)]
    assert inside[0][2] is ARRAYS[0]
    assert inside[1][2] is ARRAYS[1]


@each_format
def test_names_belong_to_one_format(format):
    for file in format.files(OPERATOR, FULL_NAME, [described(ARRAYS[0])], []):
        assert [one for one in FORMATS if one.parse(file.name, 24)] == [format]
        assert not any(one.parse(file.name + ".txt", 24) for one in FORMATS)


def test_numbers_that_python_does_not_convert_are_no_names():
    """`mapping.csv` may have names of any length."""
    nines = "9" * 5000
    sync = (
        f"Add_input_0_shape_{nines}_Float32_DefaultFormat.bin",
        f"Add_input_{nines}_shape_1_Float32_DefaultFormat.bin",
    )
    operators = f"Add.a.{nines}.0.7", f"Add.a.0.{nines}.7", f"Add.a.0.0.{nines}"
    npy = *(f"{name}.input.0.DefaultFormat.npy" for name in operators), f"Add.a.0.0.7.input.{nines}.DefaultFormat.npy"
    for name in (*sync, *operators, *npy):
        assert [one for one in FORMATS if one.parse(name, 4)] == []


def test_settings_offer_the_asynchronous_formats():
    assert tuple(ASYNCHRONOUS) == FILE_FORMATS == rule_of(AsyncDump, "file_format").choices
    assert AsyncDump().file_format == FILE_FORMATS[0]
    assert all(name == one.name for name, one in ASYNCHRONOUS.items())
    assert SYNC not in ASYNCHRONOUS.values()
