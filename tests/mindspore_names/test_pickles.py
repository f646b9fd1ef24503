"""Pickles are read without executing anything: against Python's own reader, and with hostile and damaged files."""

import os
import pickle
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from patience import not_for_ever
from record_bytes import old_cifar
from soak import thinned
from tables import table

from runner.errors import DataError
from runner.mindspore import pickles
from runner.mindspore.pickles import LABELS_10, read_batches, read_pickle

VALUES = {
    b"data": np.arange(24, dtype=np.uint8).reshape(4, 6),
    b"other": np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
    "labels": [0, 255, 256, -1, 1 << 40, -(1 << 70)],
    "nested": {"text \u00e9": (1.5, None, True, False), "empty": [(), [], {}], "pair": (1, 2)},
    "twice": [b"same"] * 3,
    "long": [b"x" * 300, "y" * 300],
}


def same(a, b) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_values_are_those_of_python(tmp_path, protocol):
    path = tmp_path / "values"
    path.write_bytes(pickle.dumps(VALUES, protocol))
    assert same(read_pickle(path), VALUES)


def test_a_file_of_python_2(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 3072)).astype(np.uint8)
    path = tmp_path / "data_batch_1"
    path.write_bytes(old_cifar([3, 1, 9], images))
    oracle = pickle.loads(path.read_bytes(), encoding="bytes")
    assert same(read_pickle(path), oracle)
    found, labels = read_batches([path, path], LABELS_10)
    np.testing.assert_array_equal(found, np.tile(images, (2, 1)).reshape(6, 3, 32, 32).transpose(0, 2, 3, 1))
    assert labels["label"].tolist() == [3, 1, 9, 3, 1, 9]


class Command:
    def __reduce__(self):
        return os.mkdir, ("executed",)


class Attribute:
    def __init__(self):
        self.name = "value"


HOSTILE = {
    "a call": pickle.dumps(Command(), 2),
    "a call of protocol 4": pickle.dumps({b"data": Command()}, 4),
    "an object": pickle.dumps(Attribute(), 2),
    "an object of protocol 0": pickle.dumps(Attribute(), 0),
    "an instance": b"(S'executed'\nios\nmkdir\n.",
    "an instance on the stack": b"(cos\nmkdir\nS'executed'\no.",
    "a function of numpy": b"cnumpy\nsave\n(S'executed'\nK\x01tR.",
    "objects in an array": pickle.dumps(np.array([Attribute()], object), 2),
    "a state for a function": b"cos\nmkdir\nS'executed'\nb.",
    "a name for another reader": b"Pexecuted\n.",
    "an extension": b"\x82\x01.",
    "a set": pickle.dumps({1, 2}, 4),
    "a list in itself": b"]q\x00h\x00a.",
    "a dict in itself": b"}q\x00K\x01h\x00s.",
    "lists inside each other": b"]" * 100_000 + b"a" * 99_999 + b".",
    "another byte order": pickle.dumps(np.arange(3, dtype=">i4"), 2),
}


SHARED = b")" + b"q\0h\0\x86" * 60  # a tuple of the one before, twice: 2**60 elements in 241 bytes
DEEP = b")" + b"\x85" * 200_000
NUMBERS = (20_000_000).to_bytes(4, "little") + b"\1" * 20_000_000
TEXT = b"X" + (1_000_000).to_bytes(4, "little") + b"a" * 1_000_000
NAMES = b"\x8c\x01a\x8c\x01b\x93" + b"q\0h\0\x93" * 60
for kind, value in (("shared", SHARED), ("deep", DEEP)):
    HOSTILE |= {
        f"{kind} tuples as a key": b"}" + value + b"Ns.",
        f"{kind} tuples as a key of a dict of old": b"(" + value + b"Nd.",
        f"{kind} tuples for a call": b"cos\nmkdir\n" + value + b"R.",
        f"{kind} tuples that are called": value + b")R.",
        f"{kind} tuples as a name": value + b"\x8c\x01x\x93.",
        f"{kind} tuples as a module": b"\x8c\x01x" + value + b"\x93.",
        f"{kind} tuples with a state": value + b"Nb.",
        f"{kind} tuples as an element type": b"cnumpy.core.numeric\n_frombuffer\n(C\x01a"
        + value
        + b"(K\1tX\1\0\0\0CtR.",
    }
HOSTILE |= {
    "tuples inside each other": DEEP + b".",
    "a name of names of names": NAMES + b".",
    "a number of 20 MB": b"}\x8b" + NUMBERS + b"q\0K\1s" + b"h\0K\1s" * 1000 + b".",
    "a text that is encoded many times": b"](c_codecs\nencode\nq\1" + TEXT + b"q\2X\6\0\0\0latin1q\3\x86R"
    + b"h\1h\2h\3\x86R" * 1000 + b"e.",
    "many lists": b"]" * 1_000_000 + b".",
}  # fmt: skip


@table(("name",), [(name,) for name in HOSTILE])
def test_nothing_is_executed(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(DataError, match="a data file is not as expected"), not_for_ever(name):
        read_pickle(path)
    assert not Path("executed").exists()
    path.unlink()


@table("name", ["a name of names of names", "a text that is encoded many times", "many lists"])
def test_little_memory_is_taken(tmp_path, monkeypatch, name):
    monkeypatch.setattr(pickles, "MOST_INSTRUCTIONS", 20_000)
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[name])
    tracemalloc.start()
    with pytest.raises(DataError, match="a data file is not as expected"):
        read_pickle(path)
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()


def test_a_list_that_is_named_many_times_is_one(tmp_path):
    value: list = []
    for _ in range(30):  # 2**30 lists, if each were a copy
        value = [value, value]
    (tmp_path / "small").write_bytes(pickle.dumps(value, 2))
    found = read_pickle(tmp_path / "small")
    assert found[0] is found[1]
    assert found[0][1][0] is found[1][0][1]


def test_damaged_files_are_errors_of_data(tmp_path):
    path = tmp_path / "damaged"
    whole = [pickle.dumps(VALUES, protocol) for protocol in (0, 2, 4, 5)]
    for content in whole:
        for length in thinned(range(len(content)), 17):
            path.write_bytes(content[:length])
            with pytest.raises(DataError):
                read_pickle(path)
    draws = random.Random(0)
    for _ in thinned(range(4000), 10):
        changed = bytearray(draws.choice(whole))
        for _ in range(draws.randint(1, 4)):
            changed[draws.randrange(len(changed))] = draws.randrange(256)
        path.write_bytes(changed)
        try:
            read_pickle(path)
        except DataError:
            continue


IMAGES = np.zeros((2, 3072), np.uint8)
WHOLE, LABEL = old_cifar([1], IMAGES), b"]q\6(K\1eu."
LAYOUTS = {
    "no dict": (pickle.dumps([1]), "list"),
    "no labels": (old_cifar([1, 2], IMAGES, b"fine"), "a dict with labels"),
    "too few labels": (old_cifar([1], IMAGES), "labels: 2 whole numbers"),
    "a label out of range": (old_cifar([1, 10], IMAGES), "labels from 0 to 9"),
    "another size": (old_cifar([1, 2], IMAGES[:, :3000]), r"data of UInt8 \[N, 3072\]"),
    "images that are shared tuples": (b"}\x8c\4data" + SHARED[:121] + b"s.", "a tuple"),
    "labels that are shared tuples": (WHOLE.removesuffix(LABEL) + SHARED[:121] + b"u.", "labels: 2 whole numbers"),
    "images that are no array": (pickle.dumps({b"data": [1], b"labels": [1]}), "data of UInt8"),
}


@table(("name",), [(name,) for name in LAYOUTS])
def test_other_layouts_are_errors_of_data(tmp_path, name):
    content, text = LAYOUTS[name]
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    with pytest.raises(DataError, match=text):
        read_batches([path], LABELS_10)
