"""What the one reader of JSON data takes, and what it refuses with which reason."""

import json
import os

import pytest
from tables import table

from runner.errors import DataError
from runner.host import json as reader

REFUSED = {
    b"": "Expecting value: line 1 column 1 (char 0)",
    b"{": "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    b"NaN": "NaN is not JSON",
    b'{"a": [-Infinity]}': "-Infinity is not JSON",
    b"1e999": "a number above the range of Float64",
    b"9223372036854775808": "an integer of 19 digits, above 64 bits",
    b"-9223372036854775809": "an integer of 20 digits, above 64 bits",
    b"9" * 400: "an integer of 400 digits, above 64 bits",
    b"9" * 5000: "an integer of 5000 digits, above 64 bits",
    b'["\\ud800"]': "text with a lone surrogate",
    b'{"a": {"\\udfff": 1}}': "text with a lone surrogate",
    b'"\xff"': "'utf-8' codec can't decode byte 0xff in position 1: invalid start byte",
    b"[" * 100_000: "it is nested too deeply",
    b"[" * 100_000 + b"]" * 100_000: "it is nested too deeply",
    b"[" * 101 + b"]" * 101: "it is nested too deeply",
    b'{"a":' * 101 + b"1" + b"}" * 101: "it is nested too deeply",
}
TAKEN = (
    *(None, True, 0, 2**63 - 1, -(2**63), 1e308, -5e-324, "", "\0", "\U0001f600", [], {}, [{"a": [None, "\ud7ff"]}]),
    json.loads("[" * 99 + "]" * 99),
)


@table(("content", "reason"), REFUSED.items(), ids=lambda value: repr(value)[:40])
def test_what_is_refused(content, reason):
    with pytest.raises(DataError) as caught:
        reader.parse_data(content)
    assert caught.value.rows == {"reason": reason}


@table("value", TAKEN, ids=lambda value: repr(value)[:40])
def test_what_is_taken(value):
    assert reader.parse_data(json.dumps(value).encode()) == value


def test_a_byte_order_mark_is_skipped():
    assert reader.parse_data(b"\xef\xbb\xbf[1]") == [1]


def test_files(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(DataError, match="a file is missing"):
        reader.read(path)
    path.write_text("[1]")
    assert reader.read(path) == [1]
    with pytest.raises(DataError, match="a file is too long"):
        reader.read(path, 2)
    with pytest.raises(DataError, match="not a group of keys"):
        reader.read_object(path)
    assert reader.read_optional(path) == {}
    path.write_text('{"a": 1}')
    assert reader.read_optional(path) == {"a": 1}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_only_regular_files_are_read(tmp_path, make):
    make(tmp_path / "a.json")
    with pytest.raises(DataError, match="not a regular file"):
        reader.read(tmp_path / "a.json")


@pytest.mark.parametrize("name", ["a\0b", "a" * 300, "a/" * 2100, "\ud800"])
def test_a_name_that_no_file_can_have(tmp_path, name):
    with pytest.raises(DataError, match=r"a path|a name of 300 bytes"):
        reader.read(tmp_path / name)
