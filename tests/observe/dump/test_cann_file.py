"""The dump file: what protobuf's runtime writes is read, what we write it reads, and damage is refused with a place."""

import itertools
import struct

import foreign_files as foreign
import numpy as np
import pytest

from runner import dtype as dt
from runner.errors import ConfigError, DataError, StorageError
from runner.observe.dump import cann
from runner.observe.dump.cann import FORMATS, TensorHeader, header, read

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3)).astype(np.float16)
Y = RNG.normal(size=(2, 1, 1, 2, 16)).astype(np.float32)
MASK = np.array([True, False, True])
INPUTS = [(X, "ND", (2, 3)), (MASK, "NCHW", ())]
OUTPUTS = [(Y, "NC1HWC0", (2, 5, 1, 2)), foreign.scalar(7, np.int64)]
NAME = "Default/network/conv1-Conv2d/Conv2D-op1"


def written(tmp_path, content):
    path = tmp_path / "Conv2D.Default_conv1.1.0.5"
    path.write_bytes(content)
    return path


def described(tensor):
    return tensor.dtype, tensor.format, tensor.shape, tensor.original, tensor.groups, tensor.array.tobytes()


def expected(array, format, original=(), groups=1):
    return dt.of(array.dtype), format, array.shape, original, groups, array.tobytes()


# Written by us, read by protobuf


@pytest.mark.parametrize("kind", dt.ALL, ids=str)
def test_what_we_write_is_what_protobuf_reads(kind):
    tensors = [
        TensorHeader(kind, "NCHW", (2, 3, 4, 5), (2, 3, 4, 5)),
        TensorHeader(kind, "CHWN", (3, 4, 5, 2), (2, 3, 4, 5)),
    ]
    content = header(
        NAME, 1624605159829577, tensors, [TensorHeader(kind, "ND", (), ()), TensorHeader(kind, "ND", (0, 300), ())]
    )
    (length,) = struct.unpack("<Q", content[:8])
    assert length == len(content) - 8
    found = foreign.parsed(content[8:])
    assert (found.version, found.dump_time, found.op_name) == ("2.0", 1624605159829577, NAME)
    code = foreign.TYPES[kind.numpy.name]
    assert [(t.data_type, t.format, list(t.shape.dim), list(t.original_shape.dim), t.size) for t in found.input] == [
        (code, 0, [2, 3, 4, 5], [2, 3, 4, 5], 120 * kind.size),
        (code, 14, [3, 4, 5, 2], [2, 3, 4, 5], 120 * kind.size),
    ]
    assert [(t.data_type, t.format, list(t.shape.dim), list(t.original_shape.dim), t.size) for t in found.output] == [
        (code, 2, [], [], kind.size),
        (code, 2, [0, 300], [], 0),
    ]
    assert not any(t.data for t in (*found.input, *found.output))


def test_a_whole_message_is_that_of_protobuf():
    tensors = [[TensorHeader(dt.of(a.dtype), f, a.shape, o) for a, f, o in side] for side in (INPUTS, OUTPUTS)]
    assert foreign.parsed(header(NAME, 1624605159829577, *tensors)[8:]) == foreign.message(NAME, INPUTS, OUTPUTS)


def test_formats_have_the_numbers_of_the_schema():
    known = {name: number for name, number in foreign.FORMATS.items() if number < len(FORMATS)}
    assert {name: FORMATS.index(name) for name in known} == known
    assert len(set(FORMATS)) == len(FORMATS) == 41


def test_a_format_that_files_do_not_know():
    with pytest.raises(ConfigError) as caught:
        header("x", 0, [TensorHeader(dt.float32, "NCWH", (1,), ())], [])
    assert caught.value.rows["nearest"] == "NCHW"


def test_bytes_of_a_small_message():
    """Written by hand from the schema, field by field."""
    content = header("a", 300, [TensorHeader(dt.float16, "ND", (2, 3), ())], [TensorHeader(dt.int64, "NCHW", (), ())])
    output = b"\x08\x08" + b"\x10\x00" + b"\x1a\x00" + b"\x30\x08"
    taken = b"\x08\x02" + b"\x10\x02" + b"\x1a\x04\x0a\x02\x02\x03" + b"\x28\x0c"
    body = b"\x0a\x032.0" + b"\x10\xac\x02" + b"\x1a" + bytes([len(output)]) + output
    body += b"\x22" + bytes([len(taken)]) + taken + b"\x32\x01a"
    assert content == struct.pack("<Q", len(body)) + body


# Written by protobuf, read by us


@pytest.mark.parametrize("version", [1, 2])
def test_what_protobuf_writes_is_read(tmp_path, version):
    make = foreign.first if version == 1 else foreign.second
    path = written(tmp_path, make(NAME, INPUTS, OUTPUTS, [b"l1", b""], [b"log"]))
    for requested in (None, version):
        found = read(path, requested)
        assert (found.op_name, found.dump_time) == (NAME, 1624605159829577)
        assert [described(t) for t in found.inputs] == [expected(*t) for t in INPUTS]
        assert [described(t) for t in found.outputs] == [expected(*t) for t in OUTPUTS]
        assert [bytes(b) for b in found.buffers] == [b"l1", b""]
        assert [bytes(b) for b in found.spaces] == [b"log"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", dt.ALL, ids=str)
def test_every_type(tmp_path, kind, version):
    array = (RNG.normal(size=(3, 5)) * 3).astype(kind.numpy)
    path = written(tmp_path, (foreign.first if version == 1 else foreign.second)("x", [], [(array, "ND", ())]))
    (found,) = read(path).outputs
    assert found.dtype is kind
    assert found.array.dtype == kind.numpy
    assert np.array_equal(found.array, array)
    assert not found.array.flags.writeable


@pytest.mark.parametrize("name", foreign.FORMATS)
def test_every_format(tmp_path, name):
    tensors = [(X, name, (5, 6), 4)]
    file = read(written(tmp_path, foreign.second("x", tensors, tensors)))
    for found in (*file.inputs, *file.outputs):
        assert (found.format, found.shape, found.original, found.groups) == (name, (2, 3), (5, 6), 4)


def test_an_operator_without_tensors(tmp_path):
    found = read(written(tmp_path, foreign.second(NAME)))
    assert (found.op_name, found.inputs, found.outputs, found.buffers) == (NAME, (), (), ())


def test_an_operand_that_was_left_out_has_no_elements(tmp_path):
    content = foreign.second("x", [(np.zeros((0,), np.float32), "ND", ())], edit=lambda m: m.input[0].shape.Clear())
    (found,) = read(written(tmp_path, content)).inputs
    assert (found.shape, found.array.size) == ((0,), 0)


def test_dims_one_by_one_are_read(tmp_path):
    shape = b"\x1a\x04\x08\x02\x08\x03"  # not packed
    tensor = b"\x08\x02" + shape + b"\x28\x0c"
    body = b"\x22" + bytes([len(tensor)]) + tensor
    (found,) = read(written(tmp_path, struct.pack("<Q", len(body)) + body + X.tobytes())).inputs
    assert np.array_equal(found.array, X)


def test_unknown_fields_are_skipped(tmp_path):
    body = foreign.message(NAME, INPUTS).SerializeToString() + b"\x82\x01\x02hi" + b"\x88\x01\x05"
    content = struct.pack("<Q", len(body)) + body + X.tobytes() + MASK.tobytes()
    assert len(read(written(tmp_path, content)).inputs) == 2


def test_elements_are_read_when_they_are_looked_at(tmp_path):
    """A file with a hole of 8 GiB takes neither time nor memory."""
    made = foreign.message("x", [(X, "ND", ())])
    tensor = made.output.add(data_type=1, format=2, size=8 << 30)
    tensor.shape.dim.extend([2 << 30])
    head = made.SerializeToString()
    path = written(tmp_path, struct.pack("<Q", len(head)) + head + X.tobytes())
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + (8 << 30))
    (found,) = read(path).outputs
    assert (found.shape, found.array[-1]) == ((2 << 30,), 0)


# Damage


def opened(path):
    """The file, or None when it is refused with its name."""
    try:
        return read(path)
    except DataError as error:
        return None if error.rows["file"] == str(path) else error


@pytest.mark.parametrize("make", [foreign.first, foreign.second])
def test_every_cut_is_noticed(tmp_path, make):
    content = make(NAME, INPUTS, OUTPUTS, [b"l1"])
    refused = 0
    for length in range(len(content)):
        found = opened(written(tmp_path, content[:length]))
        if found is None:
            refused += 1
        else:  # a message that ends between two of its fields is whole
            assert make is foreign.first
            assert foreign.parsed(content[:length]).SerializeToString() == content[:length]
            assert found.op_name == ""  # the last of the fields
    assert refused == len(content) - (6 if make is foreign.first else 0)


def test_what_is_too_long_is_noticed(tmp_path):
    with pytest.raises(DataError) as caught:
        read(written(tmp_path, foreign.second(NAME, INPUTS, OUTPUTS) + b"\0"))
    assert caught.value.rows["left over"] == "1 bytes"


@pytest.mark.parametrize("make", [foreign.first, foreign.second])
def test_no_damage_is_a_surprise(tmp_path, make):
    content = make(NAME, [(X[:1, :1], "ND", (1, 1))], [(MASK, "NCHW", ())], [b"l1"])
    refused = 0
    for at, byte in itertools.product(range(len(content)), (0x00, 0x01, 0x7F, 0x80, 0xFF)):
        refused += opened(written(tmp_path, content[:at] + bytes([byte]) + content[at + 1 :])) is None
    assert refused > len(content)


def change(side, **fields):
    def edit(message):
        for name, value in fields.items():
            tensor = getattr(message, side)[0]
            if name == "shape":
                tensor.shape.ClearField("dim")
                tensor.shape.dim.extend(value)
            else:
                setattr(tensor, name, value)

    return edit


@pytest.mark.parametrize(
    ("edit", "rows"),
    [
        (change("input", data_type=27), {"place": "input 0", "found": "BF16"}),
        (change("output", data_type=16), {"place": "output 0", "found": "COMPLEX64"}),
        (change("input", data_type=13), {"place": "input 0", "found": "STRING"}),
        (change("input", data_type=28), {"place": "input 0", "found": "INT4"}),
        (change("input", data_type=0), {"place": "input 0", "found": "UNDEFINED"}),
        (change("input", data_type=99), {"place": "input 0", "found": "99"}),
        (change("input", shape=[2, 4]), {"place": "input 0", "expected": "16 bytes", "found": "12 bytes"}),
        (change("input", shape=[]), {"place": "input 0", "expected": "2 bytes", "found": "12 bytes"}),
        (change("input", shape=[1 << 63, 2]), {"place": "input 0", "found": f"[{1 << 63}, 2]"}),
        (change("input", shape=[0, 1 << 62]), {"place": "input 0", "found": f"[0, {1 << 62}]"}),
        (change("input", shape=[1] * 33), {"place": "input 0", "expected": "at most 32 axes"}),
        (change("input", size=11), {"place": "input 0", "expected": "12 bytes", "found": "11 bytes"}),
        (change("input", size=1 << 40), {"place": "input 0", "expected": f"{1 << 40} bytes", "found": "209 bytes"}),
        (change("output", size=0), {"place": "output 0", "expected": "128 bytes", "found": "0 bytes"}),
    ],
)
def test_tensors_that_cannot_be(tmp_path, edit, rows):
    path = written(
        tmp_path, foreign.second(NAME, [(X, "ND", ())], [(Y[:1], "ND", ()), (np.int8([1] * 69), "ND", ())], edit=edit)
    )
    with pytest.raises(DataError) as caught:
        read(path)
    found = caught.value.rows
    assert {name: found.get(name) for name in rows} == rows
    assert found["file"] == str(path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "too short"),
        (b"\x01", "too short"),
        (struct.pack("<Q", 0), "does not fit"),
        (struct.pack("<Q", 1), "does not fit"),
        (struct.pack("<Q", 0) + b"abc", "does not fit"),
        (struct.pack("<Q", 1 << 40) + b"\x0a\x032.0", "neither"),
        (struct.pack("<Q", (1 << 64) - 1), "neither"),
        (struct.pack("<Q", 4) + b"\x32\x02\xff\xfe", "not UTF-8"),
        (struct.pack("<Q", 4) + b"\x32\x02a\0", "character 0"),
        (struct.pack("<Q", 2) + b"\x30\x02", "bytes were expected"),
        (struct.pack("<Q", 2) + b"\x18\x02", "bytes were expected"),
        (struct.pack("<Q", 3) + b"\x12\x01a", "a number was expected"),
        (struct.pack("<Q", 2) + b"\x04\x01", "field"),
        (struct.pack("<Q", 8194) + b"\x1a\0" * 4097, "too many tensors"),
        (b"PK\x03\x04 this is another file", "neither"),
        (b"\x93NUMPY\x01\x00", "neither"),
    ],
)
def test_other_files(tmp_path, content, what):
    path = written(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read(path)
    assert what in caught.value.what
    assert caught.value.rows["file"] == str(path)


@pytest.mark.parametrize("version", [None, 2])
def test_a_header_beyond_all_limits(tmp_path, version):
    path = written(tmp_path, struct.pack("<Q", (1 << 24) + 1))
    with path.open("r+b") as file:
        file.truncate(1 << 25)
    with pytest.raises(DataError):
        read(path, version)


def test_the_wrong_version_is_refused(tmp_path):
    path = written(tmp_path, foreign.first(NAME, INPUTS))
    with pytest.raises(DataError):
        read(path, 2)
    path = written(tmp_path, foreign.second(NAME, INPUTS))
    with pytest.raises(DataError):
        read(path, 1)


def test_a_bool_that_is_neither(tmp_path):
    content = foreign.second("x", [(MASK, "ND", ())])
    with pytest.raises(DataError) as caught:
        read(written(tmp_path, content[:-1] + b"\2"))
    assert caught.value.rows["place"] == "input 0"


def test_sizes_inside_of_version_1(tmp_path):
    made = foreign.message(NAME, INPUTS, inside=True)
    made.input[0].size = 0  # not said
    assert len(read(written(tmp_path, made.SerializeToString())).inputs) == 2
    made.input[0].size = 13
    with pytest.raises(DataError) as caught:
        read(written(tmp_path, made.SerializeToString()))
    assert (caught.value.rows["expected"], caught.value.rows["found"]) == ("13 bytes", "12 bytes")


def test_no_file(tmp_path):
    with pytest.raises(DataError) as caught:
        read(tmp_path / "none")
    assert "missing" in caught.value.what
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    assert "regular" in caught.value.what


def test_a_file_that_the_system_cannot_read(tmp_path, monkeypatch):
    path = written(tmp_path, foreign.second(NAME))

    def broken(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(cann.np, "memmap", broken)
    with pytest.raises(StorageError) as caught:
        read(path)
    assert caught.value.rows == {"path": str(path), "reason": "Input/output error"}
