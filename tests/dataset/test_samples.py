"""Datasets of a user's own arrays and Python code: element types, samples, and choice and names of columns."""

import numpy as np
import pytest
from tables import table

import runner.dataset as ds
import runner.dataset.transforms.c_transforms as CT
from runner import dtype as dt
from runner.dataset import samples, sources
from runner.errors import ConfigError
from runner.host import machine
from runner.host.machine import CERTAIN_BYTES

X, Y = [[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]], [2, 0, 1]


class Indexed:
    """A random-access object, as of a script of MindSpore."""

    def __init__(self, count: int = 3):
        self.count, self.read = count, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.read.append(index)
        return np.full((2,), index + 0.5), index


def generator():
    yield from zip(X, Y, strict=True)


@table(
    ("given", "kind"),
    [
        ("bool", "Bool"),
        ("int8", "Int8"),
        ("int16", "Int16"),
        ("int32", "Int32"),
        ("int64", "Int32"),
        (">i8", "Int32"),
        (">i4", "Int32"),
        ("uint8", "UInt8"),
        ("uint64", "UInt64"),
        ("float16", "Float16"),
        ("float32", "Float32"),
        ("float64", "Float32"),
        (">f8", "Float32"),
        (">f4", "Float32"),
    ],
)
def test_element_types(given, kind):
    values = np.array([[0, 1], [1, 0], [1, 1]]).astype(given)
    for data in (ds.NumpySlicesDataset({"x": values}), ds.GeneratorDataset(lambda: iter(values), "x")):
        assert [str(found) for found in data.column_types()] == [f"{kind}[2]"]
        (rows,) = data.fetch(np.arange(3))
        np.testing.assert_array_equal(rows, values)
        assert rows.dtype.isnative


def test_arrays_that_fit_are_not_copied(tmp_path):
    values = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (4, 3))
    assert np.shares_memory(ds.NumpySlicesDataset({"x": values}).compact()[0], values)
    floats = np.random.default_rng(0).normal(size=(40, 3))
    before = floats.copy()
    assert ds.NumpySlicesDataset({"x": floats}).fetch(np.arange(40))[0].tobytes() == floats.astype(np.float32).tobytes()
    assert floats.tobytes() == before.tobytes()


@table("part", [1, 24, 10_000])
def test_parts_of_any_size_are_converted_alike(part):
    values = np.arange(60.0).reshape(20, 3) / 7
    before, samples.BYTES = samples.BYTES, part
    try:
        made = samples.narrowed("x", values[::-2])
    finally:
        samples.BYTES = before
    assert made.tobytes() == values[::-2].astype(np.float32).tobytes()


def test_special_numbers_and_the_limits():
    floats = np.array([np.nan, np.inf, -np.inf, 1e-320, 3.4028234663852886e38])
    (made,) = ds.NumpySlicesDataset({"x": floats}).fetch(np.arange(5))
    np.testing.assert_array_equal(made, np.array([np.nan, np.inf, -np.inf, 0, 3.4028234663852886e38], np.float32))
    limits = np.array([2**31 - 1, -(2**31)])
    np.testing.assert_array_equal(ds.NumpySlicesDataset({"x": limits}).fetch(np.arange(2))[0], limits)


@table(
    ("values", "rows"),
    [
        ([1, 2**31], {"column": "x", "row": "1", "value": "2147483648"}),
        ([[1, 2], [-(2**31) - 1, 3]], {"column": "x", "row": "1", "value": "-2147483649"}),
        ([1.0, 1.0, 1e39], {"column": "x", "row": "2", "value": "1e+39"}),
    ],
)
def test_numbers_that_do_not_fit(values, rows):
    allowed = "numbers of Int32" if isinstance(np.ravel(values)[0], np.integer) else "numbers of Float32"
    for make in (lambda: ds.NumpySlicesDataset({"x": values}), lambda: ds.GeneratorDataset(iter(values), ["x"])):
        exact = list(make().create_tuple_iterator(num_epochs=1, output_numpy=True))
        np.testing.assert_array_equal([item[0] for item in exact], values)  # scripts read all numbers
        with pytest.raises(ConfigError, match="a number does not fit its element type") as caught:
            list(make().read(0))
        assert rows.items() <= caught.value.rows.items()
        assert caught.value.rows["allowed"].endswith(allowed)


def test_only_the_rows_that_are_used_have_to_fit():
    assert ds.NumpySlicesDataset({"x": [1, 2, 2**40]}, num_samples=2).get_dataset_size() == 2


@table(
    ("values", "found"),
    [
        (np.array([{"a": 1}, None], object), "object, such as {'a': 1}"),
        (np.array(["2020-01-01"], "datetime64[D]"), "datetime64[D], such as np.datetime64('2020-01-01')"),
        (np.zeros(2, complex), "complex128, such as np.complex128(0j)"),
    ],
)
def test_what_is_not_a_number_is_refused_by_name(values, found):
    for make in (
        lambda: ds.NumpySlicesDataset({"animal": values}),
        lambda: ds.GeneratorDataset([np.asarray(values)], "animal"),
    ):
        with pytest.raises(ConfigError, match="a column has values that are not numbers") as caught:
            make()
        assert caught.value.rows["column"] == "animal"
        assert "Float16, Float32" in caught.value.rows["allowed"]
        assert caught.value.rows["found"] == found


@table(
    "source",
    [
        Indexed(),
        lambda: Indexed(),
        generator,
        generator(),
        list(zip(X, Y, strict=True)),
        lambda: [*zip(X, Y, strict=True)],
    ],
)
def test_sources_of_samples(source):
    data = ds.GeneratorDataset(source, ["x", "y"])
    assert data.get_col_names() == ["x", "y"]
    assert [str(kind) for kind in data.column_types()] == ["Float32[2]", "Int32[]"]
    assert data.get_dataset_size() == 3
    again = data.fetch(np.arange(3)), data.fetch(np.arange(3))
    for first, second in zip(*again, strict=True):
        assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("values", [["cat", "zwölf"], [b"cat", "zwölf".encode()]])
def test_scripts_read_text_as_bytes_and_networks_refuse_it(values):
    for data in (ds.NumpySlicesDataset({"animal": values}), ds.GeneratorDataset(values, "animal")):
        items = data.create_tuple_iterator(num_epochs=1, output_numpy=True)
        assert [item[0].item() for item in items] == [b"cat", "zwölf".encode()]
        with pytest.raises(ConfigError, match="a column has values that are not numbers") as caught:
            list(data.read(0))
        assert caught.value.rows["column"] == "animal"


def test_samples_are_read_once_and_no_more_than_needed(monkeypatch):
    source = Indexed(10)
    data = ds.GeneratorDataset(source, ["x", "y"], num_samples=4).shuffle(4).batch(2)
    for epoch in range(3):
        list(data.read(epoch))
    assert source.read == [0, 1, 2, 3]

    def endless():
        number = 0
        while True:
            yield number
            number += 1

    monkeypatch.setattr(sources, "FIRST_BYTES", 1)  # the arrays grow more than once
    whole = ds.GeneratorDataset(endless, "n", num_samples=5000)
    np.testing.assert_array_equal(whole.fetch(np.arange(5000))[0], np.arange(5000))
    part = ds.GeneratorDataset(endless, "n", num_samples=6, shuffle=True, num_shards=2, shard_id=1)
    assert part.get_dataset_size() == 6  # of each shard
    assert max(part.order(0)) < 12


def test_a_single_column_takes_values_and_tuples():
    for source in ([1.5, 2.5], [(1.5,), (2.5,)]):
        np.testing.assert_array_equal(ds.GeneratorDataset(source, "x").fetch(np.arange(2))[0], [1.5, 2.5])


@table(
    ("source", "names", "what", "rows"),
    [
        (
            [([1.0, 2.0], 0), ([[1.0, 2.0]], 0)],
            ["x", "y"],
            "the samples of a column differ in shape or element type",
            {"column": "x", "sample": "1", "found": "Float32[1, 2]", "first sample": "Float32[2]"},
        ),
        (
            [(1, 0), (1, 0), (1, 0.5)],
            ["x", "y"],
            "the samples of a column differ in shape or element type",
            {"column": "y", "sample": "2", "found": "Float32[]", "first sample": "Int32[]"},
        ),
        (
            [(1, 0), (1, 0, 2)],
            ["x", "y"],
            "a sample needs a value for each column",
            {"sample": "1", "found": "a tuple of 3", "allowed": "a tuple of 2: x, y"},
        ),
        ([[1, 0]], ["x", "y"], "a sample needs a value for each column", {"sample": "0", "found": "list"}),
        ([[[1], [1, 2]]], "x", "the value of a sample is not an array", {"column": "x", "sample": "0"}),
        ([1, "text"], "x", "a column has values that are not numbers", {"column": "x"}),
        ([], "x", "a source without samples", {"argument": "source", "value": "[]"}),
        ({"x": [1]}, "x", "not a source of samples", {"found": "dict"}),
        ("text", "x", "not a source of samples", {"found": "str"}),
        (3, "x", "not a source of samples", {"found": "int"}),
        (lambda: 3, "x", "not a source of samples", {"found": "int, returned by the function"}),
        ([1], [], "column_names must have one different name per column", {"value": "[]"}),
        ([(1, 2)], ["x", "x"], "column_names must have one different name per column", {"value": "['x', 'x']"}),
        ([1], [""], "column_names must have one different name per column", {"value": "['']"}),
    ],
)
def test_samples_that_are_refused(source, names, what, rows):
    with pytest.raises(ConfigError) as caught:
        ds.GeneratorDataset(source, names)
    assert caught.value.what == what
    assert rows.items() <= caught.value.rows.items()


def test_samples_of_several_shapes_cannot_be_stacked():
    data = ds.GeneratorDataset([([1.0, 2.0], 0), ([1.0, 2.0, 3.0], 0)], ["x", "y"])
    with pytest.raises(ConfigError, match="the samples of a column differ in shape or element type") as caught:
        list(data.batch(2).read(0))
    rows = {"column": "x", "sample": "1", "found": "float64[3]", "first sample": "float64[2]"}
    assert rows.items() <= caught.value.rows.items()


def test_memory_is_checked_before_it_is_taken(monkeypatch):
    monkeypatch.setattr(machine, "available_bytes", lambda: CERTAIN_BYTES)
    side = 1024
    per_sample = side * side * 4
    count = CERTAIN_BYTES // per_sample + 1

    class Large(Indexed):
        def __getitem__(self, index):
            return np.zeros((side, side), np.float32)

    with pytest.raises(ConfigError, match="there is not enough memory") as caught:
        ds.GeneratorDataset(Large(count), "x")
    assert {"column": "x", "sample": "0", "value": "Float32[1024, 1024]"}.items() <= caught.value.rows.items()
    wide = np.broadcast_to(np.float64(0.0), (count, side, side))
    with pytest.raises(ConfigError, match="there is not enough memory") as caught:
        ds.NumpySlicesDataset({"x": wide})
    assert caught.value.rows["column"] == "x"
    monkeypatch.setattr(sources, "FIRST_BYTES", 1)
    monkeypatch.setattr(machine, "available_bytes", lambda: 0)
    assert ds.GeneratorDataset(lambda: (np.zeros(3) for _ in range(50)), "x").get_dataset_size() == 50


def test_project_and_rename():
    rng = np.random.default_rng(0)
    data = ds.NumpySlicesDataset({"a": rng.random((8, 2)), "b": np.arange(8), "c": rng.random(8)}).map(
        CT.TypeCast(dt.float32), "b"
    )
    for batched in (False, True):
        whole = data.shuffle(8).batch(4) if batched else data
        chosen = whole.project(["c", "a"]).rename(["a", "c"], ["c", "the target"])
        assert chosen.get_col_names() == ["the target", "c"]
        a, _, c = next(whole.read(1))
        made = next(chosen.read(1))
        assert [made[0].tobytes(), made[1].tobytes()] == [c.tobytes(), a.tobytes()]
        assert whole.project("b").get_col_names() == ["b"]
        assert whole.rename("b", "label").column_types() == whole.column_types()
        assert whole.rename(["a", "b"], ["b", "a"]).get_col_names() == ["b", "a", "c"]
    assert data.get_col_names() == ["a", "b", "c"]
    assert data.rename("a", "z").fingerprint() != data.fingerprint()


@table(
    ("change", "what", "rows"),
    [
        (lambda d: d.project(["a", "lable"]), "no such column", {"argument": "columns", "nearest": "label"}),
        (lambda d: d.project(["a", "a"]), "project needs different columns", {"value": "['a', 'a']"}),
        (lambda d: d.project([]), "project needs different columns", {"allowed": "different ones of a, label"}),
        (lambda d: d.rename("b", "c"), "no such column", {"argument": "input_columns", "value": "b"}),
        (lambda d: d.rename("a", "label"), "rename needs one new name per column", {"columns": "a, label"}),
        (lambda d: d.rename("a", ""), "rename needs one new name per column", {"value": "['']"}),
        (lambda d: d.rename(["a", "label"], ["x"]), "rename needs one new name per column", {"value": "['x']"}),
        (lambda d: d.rename(["a", "a"], ["x", "y"]), "rename needs one new name per column", {"value": "['x', 'y']"}),
    ],
)
def test_columns_that_cannot_be_chosen(change, what, rows):
    with pytest.raises(ConfigError) as caught:
        change(ds.NumpySlicesDataset({"a": [1, 2], "label": [0, 1]}))
    assert caught.value.what == what
    assert rows.items() <= caught.value.rows.items()
