"""MindSpore's `.ckpt` files, against protobuf's own runtime with the schema of the specification."""

import stat
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from soak import SOAK, thinned

from runner import dtype
from runner.errors import ConfigError, DataError
from runner.train.checkpoint import parameters

FIELD = descriptor_pb2.FieldDescriptorProto
# `checkpoint.proto` of MindSpore r1.2, and inside of MindSpore 2.10 (proto2: lengths one by one, not packed).
SCHEMA = {
    "Checkpoint": [("value", 1, FIELD.LABEL_REPEATED, FIELD.TYPE_MESSAGE, ".Value")],
    "Value": [
        ("tag", 1, FIELD.LABEL_REQUIRED, FIELD.TYPE_STRING, None),
        ("tensor", 2, FIELD.LABEL_OPTIONAL, FIELD.TYPE_MESSAGE, ".TensorProto"),
        ("maptensor", 3, FIELD.LABEL_OPTIONAL, FIELD.TYPE_BYTES, None),
    ],
    "TensorProto": [
        ("dims", 1, FIELD.LABEL_REPEATED, FIELD.TYPE_INT64, None),
        ("tensor_type", 2, FIELD.LABEL_REQUIRED, FIELD.TYPE_STRING, None),
        ("tensor_content", 3, FIELD.LABEL_REQUIRED, FIELD.TYPE_BYTES, None),
    ],
}


def message_class():
    file = descriptor_pb2.FileDescriptorProto(name="specification.proto", syntax="proto2")
    for message, fields in SCHEMA.items():
        made = file.message_type.add(name=message)
        for name, number, label, kind, of in fields:
            made.field.add(name=name, number=number, label=label, type=kind, type_name=of)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Checkpoint"))


Checkpoint = message_class()
TYPE_NAMES = {"Bool": "?", "Int8": "i1", "Int16": "<i2", "Int32": "<i4", "Int64": "<i8", "Float16": "<f2"}
TYPE_NAMES |= {"UInt8": "u1", "UInt16": "<u2", "UInt32": "<u4", "UInt64": "<u8", "Float32": "<f4", "Float64": "<f8"}
NAME_OF = {np.dtype(code): name for name, code in TYPE_NAMES.items()}


def independent_read(content: bytes) -> dict[str, np.ndarray]:
    """As MindSpore: all messages are one, neighbours with one tag are joined, lengths [0] are a scalar."""
    arrays, joined = {}, b""
    values = Checkpoint.FromString(content).value
    for k, value in enumerate(values):
        joined += value.tensor.tensor_content
        if k + 1 == len(values) or values[k + 1].tag != value.tag:
            dims = list(value.tensor.dims)
            shape = [] if dims == [0] and joined else dims
            arrays[value.tag] = np.frombuffer(joined, TYPE_NAMES[value.tensor.tensor_type]).reshape(shape)
            joined = b""
    return arrays


def message(name: str, dims: list[int], kind: str, content: bytes) -> bytes:
    made = Checkpoint()
    value = made.value.add(tag=name)
    value.tensor.dims.extend(dims)
    value.tensor.tensor_type, value.tensor.tensor_content = kind, content
    return made.SerializeToString()


def independent_write(arrays: dict[str, np.ndarray], scalar: list[int]) -> bytes:
    """One message per parameter; r1.2 writes the lengths of a scalar as [0], MindSpore 2 writes none."""
    return b"".join(
        message(name, list(array.shape) or scalar, NAME_OF[array.dtype], array.tobytes())
        for name, array in arrays.items()
    )


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    def facts(arrays):
        return [(name, array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()]

    return facts(found) == facts(expected)


ARRAYS = {
    "conv1.weight": np.arange(12, dtype=np.float32).reshape(3, 2, 2).transpose(1, 2, 0),
    "learning_rate": np.array(0.1, np.float32),
    "step": np.array([7], np.int64),
    "mask": np.array([True, False]),
}
GOLDEN = (
    # key 1, 28 bytes; tag: 1 byte "a"; tensor, 23 bytes: lengths 2 and 1, "Float32", 8 bytes
    "0a1c" + "0a0161" + "1217" + "08020801" + "1207466c6f61743332" + "1a08" + "0000803f00000040"
    # tag "b"; a scalar has the length 0; "Int32", 4 bytes
    + "0a14" + "0a0162" + "120f" + "0800" + "1205496e743332" + "1a04" + "07000000"
)  # fmt: skip


def test_golden_bytes(tmp_path):
    arrays = {"a": np.array([[1.0], [2.0]], np.float32), "b": np.array(7, np.int32)}
    path = tmp_path / "tiny.ckpt"
    parameters.write(path, arrays, crc_check=False)
    assert path.read_bytes() == bytes.fromhex(GOLDEN)
    assert same(parameters.read(path), arrays)


def test_golden_bytes_with_a_checksum(tmp_path):
    """A field 1001 of eight bytes, the size of the file, comes first; MindSpore's checksum last."""
    arrays = {"a": np.array([[1.0], [2.0]], np.float32), "b": np.array(7, np.int32)}
    path = tmp_path / "tiny.ckpt"
    parameters.write(path, arrays, crc_check=True)
    size = 10 + len(bytes.fromhex(GOLDEN)) + 17
    messages = bytes.fromhex("c93e") + size.to_bytes(8, "little") + bytes.fromhex(GOLDEN)
    assert path.read_bytes() == messages + b"crc_num" + zlib.crc32(messages).to_bytes(10, "big")
    assert same(parameters.read(path), arrays)
    assert same(independent_read(messages), arrays)  # readers skip the unknown field


def test_only_the_owner_may_read_and_nobody_write(tmp_path):
    path = tmp_path / "x.ckpt"
    for _ in range(2):  # also when it replaces one
        parameters.write(path, ARRAYS, crc_check=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert [inner.name for inner in tmp_path.iterdir()] == ["x.ckpt"]


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=200)
ANY_ARRAY = st.sampled_from(dtype.ALL).flatmap(
    lambda kind: hnp.arrays(kind.numpy, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
)


@settings(max_examples=150)
@given(
    st.dictionaries(NAMES, ANY_ARRAY, min_size=1, max_size=4),
    st.sampled_from([1, 7, 1 << 29]),
    st.booleans(),
    st.booleans(),
)
def test_any_arrays(arrays, slice_bytes, transposed, crc_check):
    """Written here, read here and by protobuf; written by protobuf, read here."""
    if transposed:
        arrays = {name: array.T for name, array in arrays.items()}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "x.ckpt"
        patch.setattr(parameters, "SLICE_BYTES", slice_bytes)
        parameters.write(path, arrays, crc_check=crc_check)
        assert same(parameters.read(path), arrays)
        assert same(independent_read(path.read_bytes()[: -17 if crc_check else None]), arrays)
        for scalar in ([0], []):
            (path := Path(folder) / f"{len(scalar)}.ckpt").write_bytes(independent_write(arrays, scalar))
            assert same(parameters.read(path), arrays)


def test_our_bytes_are_those_of_protobuf(tmp_path):
    parameters.write(tmp_path / "x.ckpt", ARRAYS, crc_check=False)
    assert (tmp_path / "x.ckpt").read_bytes() == independent_write(ARRAYS, [0])


def test_large_parameters_are_sliced(tmp_path, monkeypatch):
    assert parameters.SLICE_BYTES == 512 * 1024 * 1024
    monkeypatch.setattr(parameters, "SLICE_BYTES", 16)
    parameters.write(tmp_path / "x.ckpt", ARRAYS, crc_check=False)
    values = Checkpoint.FromString((tmp_path / "x.ckpt").read_bytes()).value
    tags = ["conv1.weight"] * 3 + ["learning_rate", "step", "mask"]
    assert [value.tag for value in values] == tags
    assert [len(value.tensor.tensor_content) for value in values] == [16, 16, 16, 4, 8, 2]
    assert [list(value.tensor.dims) for value in values[:4]] == [[2, 2, 3]] * 3 + [[0]]
    assert same(parameters.read(tmp_path / "x.ckpt"), ARRAYS)


def read(folder: Path, content: bytes) -> dict[str, np.ndarray]:
    (folder / "x.ckpt").write_bytes(content)
    return parameters.read(folder / "x.ckpt")


def test_what_mindspore_2_adds(tmp_path):
    """Text notes are left out; a checksum is compared; lengths may be packed; unknown fields are skipped."""
    whole = independent_write(ARRAYS, [])
    note = message("note", [0], "str", "hello".encode("utf-32-le"))
    assert same(read(tmp_path, whole + note), ARRAYS)
    checksum = b"crc_num" + zlib.crc32(whole).to_bytes(10, "big")
    assert same(read(tmp_path, whole + checksum), ARRAYS)
    packed = bytes.fromhex("0a130a0161120e0a0202011204496e74381a020708")
    unknown = bytes.fromhex("12070000000000000018012100000000000000ff2d000000ffaa0602ffff")
    assert same(read(tmp_path, packed + unknown), {"a": np.array([[7], [8]], np.int8)})
    with pytest.raises(DataError) as error:
        read(tmp_path, whole[:-1] + b"\x01" + checksum)
    assert str(error.value) == (
        "DataError: the checksum of a checkpoint does not match\n"
        f"  expected  {zlib.crc32(whole)}\n  found     {zlib.crc32(whole[:-1] + bytes([1]))}\n"
        f"  file      {tmp_path / 'x.ckpt'}\n  repair    save it again, or fetch another copy"
    )


A = message("a", [2], "Float32", bytes(8))
REFUSED = {
    "empty": (b"", "a checkpoint without parameters", {}),
    "another file": (
        b"\x89PNG\r\n\x1a\n",
        "a field is truncated",
        {"offset in message": "0", "expected": "8 bytes", "found": "6 bytes"},
    ),
    "cut": (A[:-1], "a field is truncated", {"offset in message": "0", "expected": "26 bytes", "found": "25 bytes"}),
    "a size beyond the file": (
        b"\x0a" + b"\xff" * 8 + b"\x7f",
        "a field is truncated",
        {"offset in message": "0", "expected": "9223372036854775807 bytes", "found": "0 bytes"},
    ),
    "no end": (b"\x0a" + b"\xff" * 20, "a number is truncated or has more than 64 bits", {"offset in message": "1"}),
    "65 bits": (
        b"\x0a" + b"\xff" * 9 + b"\x02",
        "a number is truncated or has more than 64 bits",
        {"offset in message": "1"},
    ),
    "a group": (b"\x0b", "unknown wire type", {"offset in message": "0", "found": "3"}),
    "field 0": (b"\x02\x00", "invalid field number 0", {"offset in message": "0"}),
    "a number for a message": (b"\x08\x00", "a required field of a message is missing", {}),
    "eight bytes for a message": (b"\x09" + bytes(8), "a required field of a message is missing", {}),
    "no name": (b"\x0a\x00", "a required field of a message is missing", {}),
    "no tensor": (b"\x0a\x03\x0a\x01a", "a required field of a message is missing", {}),
    "a name that is no text": (b"\x0a\x03\x0a\x01\xff", "a text is not UTF-8", {}),
    "a map parameter": (b"\x0a\x05\x0a\x01a\x1a\x00", "runner has no map parameters", {"parameter": "a"}),
    "too much": (
        message("a", [2], "Float32", bytes(9)),
        "the size of a tensor differs from its shape",
        {"parameter": "a", "shape": "Float32[2]", "expected": "8 bytes", "found": "9 bytes"},
    ),
    "terabytes": (
        message("a", [1 << 40], "Float32", b""),
        "the size of a tensor differs from its shape",
        {"parameter": "a", "shape": "Float32[1099511627776]", "expected": "4398046511104 bytes", "found": "0 bytes"},
    ),
    "a negative length": (
        message("a", [-1], "Float32", b""),
        "impossible shape of a tensor",
        {"parameter": "a", "found": "[18446744073709551615]"},
    ),
    "many axes": (
        message("a", [1] * 33, "Int8", b"a"),
        "impossible shape of a tensor",
        {"parameter": "a", "found": str([1] * 33)},
    ),
    "a type that numpy lacks": (
        message("a", [1], "BFloat16", b"ab"),
        "unknown element type",
        {
            "parameter": "a",
            "found": "'BFloat16'",
            "allowed": "Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64",
        },
    ),
    "a Bool of 2": (message("a", [2], "Bool", b"\1\2"), "a Bool is neither 0 nor 1", {"parameter": "a"}),
    "slices that differ": (
        A + message("a", [1], "Float32", bytes(4)),
        "slices of one parameter have several types",
        {"parameter": "a"},
    ),
    "a missing slice": (
        message("a", [3], "Int8", b"a") + message("a", [3], "Int8", b"b"),
        "the size of a tensor differs from its shape",
        {"parameter": "a", "shape": "Int8[3]", "expected": "3 bytes", "found": "2 bytes"},
    ),
    "twice": (
        A + message("b", [1], "Int8", b"b") + A,
        "a checkpoint names a parameter twice",
        {"parameter": "a"},
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path, case):
    content, what, rows = REFUSED[case]
    with pytest.raises(DataError) as error:
        read(tmp_path, content)
    place = {"file": str(tmp_path / "x.ckpt"), "repair": "save it again, or fetch another copy"}
    assert (error.value.what, error.value.rows) == (what, rows | place)


def test_a_shape_that_numpy_cannot_have(tmp_path):
    with pytest.raises(DataError, match="impossible shape"):
        read(tmp_path, message("a", [0, 1 << 62, 1 << 62], "Float64", b""))


def protected(folder: Path) -> bytes:
    parameters.write(folder / "x.ckpt", ARRAYS, crc_check=True)
    whole = (folder / "x.ckpt").read_bytes()
    (folder / "x.ckpt").unlink()
    return whole


def test_every_cut_of_a_file_with_a_checksum_is_found(tmp_path):
    """Also between two parameters: the file begins with its size."""
    whole = protected(tmp_path)
    for size in range(len(whole)):
        with pytest.raises(DataError) as error:
            read(tmp_path, whole[:size])
        if size >= 10:
            assert error.value.what == "a checkpoint is incomplete, or has additional bytes"
            assert (error.value.rows["expected"], error.value.rows["found"]) == (f"{len(whole)} bytes", f"{size} bytes")
    assert same(read(tmp_path, whole), ARRAYS)


def test_every_flipped_bit_of_a_file_with_a_checksum_is_found(tmp_path):
    whole = protected(tmp_path)
    for bit in thinned(range(8 * len(whole)), 3):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DataError):
            read(tmp_path, flipped)
    assert 8 * len(whole) > 1500


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole + b"\0",
        lambda whole: whole + whole,
        lambda whole: whole[:-17] + bytes(17),
        lambda whole: whole[:-17] + message("b", [1], "Int8", b"b")[:17],
        lambda whole: whole[20:],
        lambda whole: whole[:40] + whole[60:80] + whole[40:60] + whole[80:],
    ],
    ids=["longer", "twice", "no checksum", "another end", "no start", "exchanged blocks"],
)
def test_other_damage_of_a_file_with_a_checksum(tmp_path, damage):
    with pytest.raises(DataError):
        read(tmp_path, damage(protected(tmp_path)))


def test_every_cut_gives_an_error_or_the_parameters_before_it(tmp_path):
    whole = independent_write(ARRAYS, [0])
    ends = {len(independent_write(dict(list(ARRAYS.items())[:k]), [0])): k for k in range(1, 4)}
    for size in range(len(whole)):
        if size in ends:  # between two messages: the format cannot tell
            assert same(read(tmp_path, whole[:size]), dict(list(ARRAYS.items())[: ends[size]]))
            continue
        with pytest.raises(DataError):
            read(tmp_path, whole[:size])


def test_flipped_bits_give_an_error_or_arrays(tmp_path):
    """Without a checksum, a flip inside of the numbers cannot be found; there is never another exception."""
    whole = independent_write(ARRAYS, [0])
    whole += b"".join(message(f"p{k}", [k, 3], "UInt8", bytes(3 * k)) for k in range(12))
    found = 0
    for bit in thinned(range(8 * len(whole)), 5):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            read(tmp_path, flipped)
        except DataError:
            found += 1
    assert 8 * len(whole) > 3000
    assert found > (1000 if SOAK else 200)


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_any_bytes_give_an_error_or_arrays(content):
    with tempfile.TemporaryDirectory() as folder:
        try:
            arrays = read(Path(folder), content)
        except DataError:
            return
        assert same(arrays, independent_read(content))


@pytest.mark.parametrize("name", ["", "a\n", "\ud800"])
def test_names_that_cannot_be_saved(tmp_path, name):
    with pytest.raises(ConfigError, match="not a name"):
        parameters.write(tmp_path / "x.ckpt", {name: np.zeros(1)}, crc_check=False)
    assert list(tmp_path.iterdir()) == []
