"""Print files: what is written is what protobuf's own library reads, and what is damaged is refused with a place."""

import itertools
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import runner
from runner import Tensor, cli, dtype, parse_print
from runner.errors import DataError
from runner.ops import effects
from runner.ops.effects import PrintFile, print_entries

RNG = np.random.default_rng(0)
ARRAYS = [
    *[(RNG.normal(size=(2, 3)) * 3).astype(kind.numpy) for kind in dtype.ALL],
    np.array(0.1, np.float32),
    np.array(True),
    np.array([7], np.int64),
    np.zeros((0,), np.float32),
    np.zeros((2, 0, 3), np.int8),
    np.array([np.nan, -np.inf, -0.0], np.float32),
    np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1),
]
PARTS = ["x is", *ARRAYS, "", "ü\nsecond line", "\0"]


def written(path: Path, *prints) -> Path:
    grows = PrintFile(path)
    for parts in prints:
        grows.append(parts)
    grows.close()
    return path


def plain(part) -> object:
    """Type, shape and bytes of an array, or the string."""
    array = part.asnumpy() if isinstance(part, Tensor) else part
    return array if isinstance(array, str) else (array.dtype, array.shape, array.tobytes())


@pytest.fixture(scope="module")
def schema():
    """The message `Print` of `print.proto`, for protobuf's own library."""
    pb = pytest.importorskip("google.protobuf.descriptor_pb2")
    pool = pytest.importorskip("google.protobuf.descriptor_pool").DescriptorPool()
    factory = pytest.importorskip("google.protobuf.message_factory")
    whole = pb.FileDescriptorProto(name="print.proto", package="mindspore.prntpb", syntax="proto2")
    kinds, labels = pb.FieldDescriptorProto, {"repeated": 3, "required": 2, "optional": 1}

    def add(message, number, label, kind, name, **more):
        message.field.add(name=name, number=number, label=labels[label], type=kind, **more)

    tensor, printed = whole.message_type.add(name="TensorProto"), whole.message_type.add(name="Print")
    add(tensor, 1, "repeated", kinds.TYPE_INT64, "dims")
    add(tensor, 2, "required", kinds.TYPE_STRING, "tensor_type")
    add(tensor, 3, "required", kinds.TYPE_BYTES, "tensor_content")
    value = printed.nested_type.add(name="Value")
    value.oneof_decl.add(name="value")
    add(value, 1, "optional", kinds.TYPE_STRING, "desc", oneof_index=0)
    add(value, 2, "optional", kinds.TYPE_MESSAGE, "tensor", oneof_index=0, type_name=".mindspore.prntpb.TensorProto")
    add(printed, 1, "repeated", kinds.TYPE_MESSAGE, "value", type_name=".mindspore.prntpb.Print.Value")
    pool.Add(whole)
    return factory.GetMessageClass(pool.FindMessageTypeByName("mindspore.prntpb.Print"))


def test_what_goes_in_comes_out(tmp_path):
    path = written(tmp_path / "print.pb", PARTS[:5], [], PARTS[5:])
    found = parse_print(path)
    assert list(map(plain, found)) == list(map(plain, PARTS))
    assert all(isinstance(part, str | Tensor) for part in found)
    assert list(map(plain, runner.parse_print(str(path)))) == list(map(plain, PARTS))


def test_protobuf_reads_what_is_written(tmp_path, schema):
    content = written(tmp_path / "print.pb", PARTS[:3], PARTS[3:]).read_bytes()
    message = schema.FromString(content)
    assert len(message.value) == len(PARTS)
    for value, part in zip(message.value, PARTS, strict=True):
        if isinstance(part, str):
            assert (value.WhichOneof("value"), value.desc) == ("desc", part)
        else:
            assert value.WhichOneof("value") == "tensor"
            assert value.tensor.tensor_type == str(dtype.of(part.dtype))
            assert tuple(value.tensor.dims) == part.shape
            assert value.tensor.tensor_content == part.tobytes()


@pytest.mark.parametrize(
    ("kind", "dims", "content", "shape"),
    [
        ("Uint8", [2], b"\1\2", (2,)),  # as r1.2 spells it
        ("UInt8", [2], b"\1\2", (2,)),
        ("Float32", [], b"\0" * 4, ()),
        ("Float32", [0], b"\0" * 4, ()),  # another way to say that there are no axes
        ("Float32", [0], b"", (0,)),
        ("Bool", [1], b"\1", (1,)),
    ],
)
def test_what_protobuf_writes_is_read(tmp_path, schema, kind, dims, content, shape):
    message = schema()
    value = message.value.add()
    value.tensor.dims.extend(dims)
    value.tensor.tensor_type, value.tensor.tensor_content = kind, content
    (tmp_path / "print.pb").write_bytes(message.SerializeToString())
    (found,) = parse_print(tmp_path / "print.pb")
    assert found.shape == shape
    assert found.asnumpy().tobytes() == content


def test_packed_dims_are_read(tmp_path):
    tensor = b"\n\2\2\1" + b"\x12\x04Int8" + b"\x1a\2\5\6"
    value = b"\x12" + bytes([len(tensor)]) + tensor
    (tmp_path / "print.pb").write_bytes(b"\n" + bytes([len(value)]) + value)
    (found,) = parse_print(tmp_path / "print.pb")
    assert found.asnumpy().tolist() == [[5], [6]]


def test_every_cut_is_noticed_or_lies_between_two_values(tmp_path):
    path, parts = tmp_path / "print.pb", ["step", np.arange(6, dtype=np.float32).reshape(2, 3), np.array(5, np.int32)]
    content = written(path, parts).read_bytes()
    whole = {0}
    for number in range(1, 4):
        (tmp_path / f"{number}").unlink(missing_ok=True)
        whole.add(len(written(tmp_path / f"{number}", parts[:number]).read_bytes()))
    for length in range(len(content)):
        path.write_bytes(content[:length])
        if length in whole - {0}:
            assert len(parse_print(path)) == sorted(whole).index(length)
        else:
            with pytest.raises(DataError) as caught:
                parse_print(path)
            assert caught.value.rows["file"] == str(path)


def test_all_entries_before_a_cut_are_there(tmp_path, capsys):
    """A file cut anywhere gives the entries that are complete, and the offset up to which it is."""
    parts = ["step", np.arange(6, dtype=np.float32).reshape(2, 3), "ü", np.array(5, np.int32)]
    ends = [0, *(len(written(tmp_path / f"{k}", parts[:k]).read_bytes()) for k in range(1, 5))]
    content, path = (tmp_path / "4").read_bytes(), tmp_path / "print.pb"
    for at in range(1, len(content)):
        path.write_bytes(content[:at])
        whole = sum(end <= at for end in ends) - 1
        code = cli.main(["parse-print", str(path)])
        out, err = capsys.readouterr()
        if whole:
            effects.write(parts[:whole])
        assert out == capsys.readouterr().out
        assert list(map(plain, up_to_error(print_entries(path)))) == list(map(plain, parts[:whole]))
        assert code == (0 if at in ends else 7)
        assert at in ends or f"offset             {ends[whole]} of {at} bytes\n" in err
        assert at in ends or f"entry              {whole + 1}\n" in err


def up_to_error(entries):
    with suppress(DataError):
        yield from entries


def test_what_is_printed_before_an_invalid_entry(tmp_path, capsys):
    path = written(tmp_path / "print.pb", ["first", "second"])
    whole = len(path.read_bytes())
    path.write_bytes(path.read_bytes() + b"\n\x04\n\x02\xff\xfe" + b"\n\x03\n\x01x")
    assert cli.main(["parse-print", str(path)]) == 7
    out, err = capsys.readouterr()
    assert out == "first\nsecond\n"
    assert "a text is not UTF-8" in err
    assert "entry   3\n" in err
    assert f"offset  {whole} of {whole + 11} bytes" in err


def test_no_damage_is_a_surprise(tmp_path):
    path = tmp_path / "print.pb"
    content = written(
        path, ["step", np.arange(6, dtype=np.float32).reshape(2, 3), np.array([True, False])]
    ).read_bytes()
    refused = 0
    for at, byte in itertools.product(range(len(content)), (0x00, 0x01, 0x7F, 0x80, 0xFF)):
        path.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
        try:
            parse_print(path)
        except DataError:
            refused += 1
    assert refused > len(content)  # many more than one of the five for each byte outside of the elements


WRONG = [
    (b"", "the print file is empty"),
    (b"\n\x05\n\x02ab", "a field is truncated"),
    (b"\n\x04\n\x02\xff\xfe", "a text is not UTF-8"),
    (b"\n\x00", "a required field of a message is missing"),
    (b"\n\x0e\x12\x0c\x08\x03\x12\x05Int16\x1a\x01\0", "the size of a tensor differs from its shape"),
    (b"\n\x0d\x12\x0b\x08\x01\x12\x04Text\x1a\x01a", "unknown element type"),
    (b"\n\x0d\x12\x0b\x08\x01\x12\x04Bool\x1a\x01\x02", "a Bool is neither 0 nor 1"),
    (b"\n\x16\x12\x14\x08" + b"\xff" * 9 + b"\x01\x12\x04Int8\x1a\x01\0", "impossible shape of a tensor"),
]


@pytest.mark.parametrize(("content", "what"), WRONG, ids=[what for _, what in WRONG])
def test_damaged_files(tmp_path, capsys, content, what):
    path = tmp_path / "print.pb"
    path.write_bytes(content)
    assert cli.main(["parse-print", str(path)]) == 7
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"DataError: {what}\n")
    assert f"{path}\n" in err


def test_a_missing_file(tmp_path, capsys):
    assert cli.main(["parse-print", str(tmp_path / "none.pb")]) == 7
    assert capsys.readouterr().err.startswith("DataError: a file is missing\n")
    with pytest.raises(ValueError, match="a file is missing"):
        parse_print(tmp_path / "none.pb")


@pytest.mark.parametrize("words", [[], ["a", "b"], ["--all"]])
def test_wrong_words(words, capsys):
    assert cli.main(["parse-print", *words]) == 2
    assert "  usage   runner parse-print FILE\n" in capsys.readouterr().err


def test_the_command_shows_what_the_screen_would_have_shown(tmp_path, capsys):
    path = written(tmp_path / "print.pb", PARTS[:4], PARTS[4:])
    assert cli.main(["parse-print", str(path)]) == 0
    shown = capsys.readouterr().out
    effects.write(PARTS)
    assert shown == capsys.readouterr().out
    assert "Tensor(shape=[2, 3], dtype=Float32, value=\n" in shown
