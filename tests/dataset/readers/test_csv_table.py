"""Tables: encoded by hand, splits, targets, new files, and tables that are wrong."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from damage import damaged
from tables import table

import runner.dataset as ds
from runner.dataset.readers import csv
from runner.errors import ConfigError, DataError, RunnerError

HOUSES = """area,city,rooms,price
10,Rome,1,100
20,Oslo,,220
30,Rome,3,330
40,?,4,410
50,Bern,NA,500
"""


@pytest.fixture
def write(tmp_path: Path):
    """Writes a text as a file of the test, by default `data.csv`."""

    def write(text: str | bytes, name: str = "data.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def values(data: ds.Dataset) -> tuple[np.ndarray, ...]:
    return tuple(np.stack(column) for column in zip(*data.read(0), strict=True))


def opened(path: Path, split: str = "train", **keys: object) -> ds.Dataset:
    keys = {"target": "price", "test_file": path, **keys}
    return ds.csv_table(split, data_file=path, **keys)


def standardised(column: list[float | None]) -> list[float]:
    present = [x for x in column if x is not None]
    mean = sum(present) / len(present)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in present) / len(present))
    return [0.0 if x is None else (x - mean) / deviation for x in column]


def test_features_by_hand(write) -> None:
    data = opened(write(HOUSES))
    features, target = values(data)
    assert [str(kind) for kind in data.column_types()] == ["Float32[6]", "Float32[1]"]
    assert data.get_col_names() == ["features", "target"]
    np.testing.assert_allclose(features[:, 0], standardised([10, 20, 30, 40, 50]), rtol=1e-6)
    cities = {"Rome": [0, 0, 1, 0], "Oslo": [0, 1, 0, 0], "Bern": [1, 0, 0, 0], "?": [0, 0, 0, 1]}
    assert features[:, 1:5].tolist() == [cities[name] for name in ("Rome", "Oslo", "Rome", "?", "Bern")]
    np.testing.assert_allclose(features[:, 5], standardised([1, None, 3, 4, None]), rtol=1e-6)
    assert target.tolist() == [[100], [220], [330], [410], [500]]
    assert (data.class_names, data.num_classes) == (None, None)


def test_the_statistics_are_those_of_the_training_split(write) -> None:
    test = opened(
        write(HOUSES), "test", test_file=write("price,rooms,city,note,area\n1,2,Paris,x,30\n2,,,y,60\n", "t.csv")
    )
    features, target = values(test)
    mean, deviation = 30, math.sqrt(200)
    np.testing.assert_allclose(features[:, 0], [0, (60 - mean) / deviation], rtol=1e-6)
    assert features[:, 1:5].tolist() == [[0, 0, 0, 0], [0, 0, 0, 1]]  # an unknown city, and a missing one
    rooms = [1, 3, 4]
    np.testing.assert_allclose(features[:, 5], [(2 - np.mean(rooms)) / np.std(rooms), 0], rtol=1e-5)
    assert target.ravel().tolist() == [1, 2]


def test_a_target_of_text_has_classes(write) -> None:
    path = write("x,kind\n1,pear\n2,apple\n3,pear\n4,apple\n")
    data = opened(path, target="kind")
    assert str(data.column_types()[1]) == "Int32[]"
    assert (data.class_names, data.num_classes) == (("apple", "pear"), 2)
    assert values(data)[1].tolist() == [1, 0, 1, 0]


def test_classes_that_are_numbers_are_in_their_order(write) -> None:
    path = write("x,kind\n1,10\n2,9\n3,-1\n4,10\n")
    assert str(opened(path, target="kind").column_types()[1]) == "Float32[1]"
    data = opened(path, target="kind", task="classification")
    assert data.class_names == ("-1", "9", "10")
    assert values(data)[1].tolist() == [2, 1, 0, 2]


def test_numbers_that_are_categories(write) -> None:
    path = write("zip,price\n8001,1\n4051,2\n8001,3\n")
    data = opened(path, categorical=("zip",))
    assert values(data)[0].tolist() == [[0, 1], [1, 0], [0, 1]]


def test_features_are_selected_in_order(write) -> None:
    whole = values(opened(write(HOUSES)))[0]
    chosen = values(opened(write(HOUSES), features=("rooms", "area")))[0]
    assert chosen.tolist() == whole[:, [5, 0]].tolist()


def test_a_fraction_is_stratified_and_complete(write) -> None:
    rows = "".join(f"{k},{'abc'[k % 3]}\n" for k in range(90))
    path = write("x,kind\n" + rows)
    keys = {"target": "kind", "test_file": None, "test_fraction": 0.2}
    train, test = (opened(path, split, **keys) for split in ("train", "test"))
    assert np.bincount(values(test)[1]).tolist() == [6, 6, 6]
    reading = train.preprocessing.as_json()["features"][0]
    x = [values(data)[0][:, 0].astype(np.float64) * reading["deviation"] + reading["mean"] for data in (train, test)]
    assert sorted(np.rint(np.concatenate(x)).tolist()) == list(range(90))
    np.testing.assert_allclose([reading["mean"], reading["deviation"]], [x[0].mean(), x[0].std()], rtol=1e-6)
    assert opened(path, "test", **keys).fingerprint() == test.fingerprint()
    assert opened(path, "test", **keys, seed=1).fingerprint() != test.fingerprint()


def test_a_constant_column_is_0(write) -> None:
    path = write("a,b,price\n" + "0.1,7,1\n" * 30)
    assert not values(opened(path))[0].any()


def test_forms_of_files(write) -> None:
    expected = values(opened(write("a,b,price\n1,x,1\n2,y z,2\n")))[0].tolist()
    for text in (
        "a,b,price\r\n1,x,1\r\n2,y z,2\r\n",
        "\ufeffa,b,price\n1,x,1\n2,y z,2",
        '"a", "b",price\n1, "x",1\n\n2,"y z", 2\n   \n',
    ):
        assert values(opened(write(text)))[0].tolist() == expected
    for delimiter in (";", "\t", "|"):
        path = write("a,b,price\n1,x,1\n2,y z,2\n".replace(",", delimiter))
        assert values(opened(path, delimiter=delimiter))[0].tolist() == expected


def test_a_quoted_field_has_commas_and_lines(write) -> None:
    path = write('city,price\n"Rome, Italy",1\n"two\nlines",2\nRome,oops\nx,3\nx,4\n')
    with pytest.raises(DataError, match=r"data\.csv:5"):
        opened(path)
    data = opened(write('city,price\n"Rome, Italy",1\n"two\nlines",2\n'))
    assert data.preprocessing.as_json()["features"][0]["categories"] == ["Rome, Italy", "two\nlines"]


def test_new_files_are_read_as_the_training_files(write, tmp_path) -> None:
    path = write(HOUSES)
    data = opened(path)
    stored = json.loads(json.dumps(data.preprocessing.as_json()))
    path.unlink()  # the training data are not needed
    new = write("rooms,extra,city,area\n3,,Rome,30\n,x,Nowhere,10\n", "new.csv")
    read = ds.stored_preprocessing(stored).read([new, new])
    assert read.get_col_names() == ["features"]
    assert read.row_names == [f"{new}:2", f"{new}:3"] * 2
    features = values(read)[0]
    assert features[0].tobytes() == values(data)[0][2].tobytes()
    assert features[1, 1:5].tolist() == [0, 0, 0, 0]
    assert features[2:].tobytes() == features[:2].tobytes()
    assert ds.stored_preprocessing(stored).as_json() == stored


def test_workers_change_no_byte_and_a_pass_can_begin_anywhere(write) -> None:
    path = write("a,b,price\n" + "".join(f"{k % 7},{'xyz'[k % 3]},{k}\n" for k in range(50)))
    one, four = (opened(path).shuffle(50).batch(8, False, n) for n in (1, 4))
    for epoch in range(2):
        whole = [[column.tobytes() for column in batch] for batch in one.read(epoch)]
        assert [[column.tobytes() for column in batch] for batch in four.read(epoch)] == whole
        assert [
            [column.tobytes() for column in batch] for batch in opened(path).shuffle(50).batch(8).read(epoch, 4)
        ] == (whole[4:])


# Tables that are wrong

WRONG: list[tuple[str | bytes, dict, str]] = [
    ("", {}, "a table is empty | file: {path}"),
    ("\n\n", {}, "a table is empty"),
    ("a,price\n", {}, "a table has no rows | file: {path}"),
    ("a,price\n1,2\n", {}, "a table has one row | file: {path}"),
    ("a,price\n1,2\n3\n", {}, "a row has another length | at: {path}:3 | expected: 2 fields"),
    ("a,price\n1,2\n\n3,4,5\n", {}, "a row has another length | at: {path}:4"),
    ("a,a,price\n1,2,3\n", {}, "a header has a name twice | at: {path}:1 | column: a"),
    ("a,,price\n1,2,3\n", {}, "a header has a column without a name | at: {path}:1 | found: column 2 has no name"),
    ("a;price\n1;2\n", {}, "a table has one column | at: {path}:1 | found: 'a;price' | repair: set delimiter to ';'"),
    ("a,price\n1,2\nx,3\n2,4\n", {}, "text in a column of numbers | at: {path}:3 | column: a | found: 'x'"),
    ("a,price\n1,2\n1e999,3\n2,4\n", {}, "text in a column of numbers | at: {path}:3"),
    ("a,price\n1,2\n1_0,3\n2,4\n", {}, "text in a column of numbers | at: {path}:3"),
    ("a,price\n1,2\n1,x\n2,4\n", {}, "text in a column of numbers | at: {path}:3 | column: price"),
    ("a,price\n1,x\n1,y\n", {"task": "regression"}, "text in a column of numbers | at: {path}:2 | column: price"),
    ("a,price\n1,2\n1,\n2,4\n", {}, "a row has no target | at: {path}:3 | column: price"),
    ("a,price\n,1\n,2\n", {}, "a column has no value in the training split | file: {path} | column: a"),
    ("a,price\n1,x\n2,x\n", {}, "a target has one class | file: {path} | column: price | found: x"),
    ("a,price\n1e39,1\n2,2\n", {}, "a number is too large"),
    ("a,price\n1,1e39\n2,2\n", {}, "a number is too large | at: {path}:2 | column: price"),
    (b"a,price\n1,2\n\xff,3\n", {}, "not UTF-8 text | at: {path}:3 | found: the byte 0xff"),
    ("a,price\n1,2\n\0,3\n", {}, "not a CSV file | at: {path}:3 | found: a NUL character"),
    ('a,price\n1,2\n"x,3\n', {}, "not a CSV file | at: {path}:3"),
    ('a,price\n1,2\n"x"y,3\n', {}, "not a CSV file | at: {path}:3"),
    ("a,price\n1,2\n" + "x" * 200_000 + ",3\n", {}, "not a CSV file | at: {path}:3 | found: field larger"),
    ("a,price\n1,2\n" + "x" * 2_000_000 + ",3\n", {}, "a line is too long | at: {path}:3"),
    ("a,price\n1\r2,3\n", {}, "not a CSV file | at: {path}:2"),
    ("x" * 2000 + ",price\n1,2\n", {}, "a name of a column is too long"),
    (",".join(f"c{k}" for k in range(10_001)) + "\n", {}, "a table has too many columns"),
    ("a,price\n" + "".join(f"x{k},1\n" for k in range(1001)), {}, "a column has too many different texts"),
    ("a,price\n" + "".join(f"1,x{k}\n" for k in range(1001)), {}, "a column has too many different texts"),
]


@table(("text", "keys", "expected"), WRONG, ids=lambda value: repr(value)[:60])
def test_a_wrong_table_is_reported_with_the_line(write, text, keys, expected) -> None:
    path = write(text)
    with pytest.raises(DataError) as caught:
        opened(path, **keys)
    what, *rows = expected.format(path=path).split(" | ")
    assert caught.value.what == what
    for row in rows:
        label, _, value = row.partition(": ")
        assert caught.value.rows[label].startswith(value)


def test_the_test_file_is_checked_too(write) -> None:
    path = write("a,kind\n1,cat\n2,dog\n")
    for text, expected in (
        ("a,kind\n1,cats\n", "a class that the training split lacks\n  at       {other}:2\n  column   kind\n"
         "  found    cats\n  nearest  cat\n"),
        ("a,sort\n1,cat\n", "a table lacks a column\n  file     {other}\n  column   kind\n  allowed  a, sort\n"),
        ("a,kind\n1,cat\nx,dog\n", "text in a column of numbers\n  at      {other}:3\n"),
    ):  # fmt: skip
        other = write(text, "other.csv")
        with pytest.raises(DataError) as caught:
            opened(path, "test", target="kind", test_file=other)
        assert str(caught.value).startswith(f"DataError: {expected.format(other=other)}"[:-1])


@table(
    ("keys", "expected"),
    [
        ({"data_file": None}, "data_file is missing"),
        ({"target": None}, "target is missing"),
        ({"target": "prise"}, "a table lacks a column\n  argument  target"),
        ({"features": ("areas",)}, "a table lacks a column\n  argument  features"),
        ({"features": ()}, "not the features of a table"),
        ({"features": ("area", "area")}, "not the features of a table"),
        ({"features": ("area", "price")}, "not the features of a table"),
        ({"categorical": ("town",)}, "a table lacks a column\n  argument  categorical"),
        ({"categorical": ("price",)}, "a categorical column is not a feature"),
        ({"task": "ranking"}, "task is not one of the choices"),
        ({"delimiter": ";;"}, "not a delimiter"),
        ({"delimiter": "\n"}, "not a delimiter"),
        ({"test_fraction": 0.5}, "the data already have a test split"),
        ({"test_file": None}, "the data have no test split"),
        ({"test_file": None, "test_fraction": 2.0}, "not a part of the data"),
        ({"seed": 1 << 40}, "seed must be"),
        ({"split": "valid"}, "split is not one of the choices"),
    ],
)
def test_wrong_arguments(write, keys, expected) -> None:
    path = write(HOUSES)
    with pytest.raises(ConfigError) as caught:
        ds.csv_table(**{"split": "train", "data_file": path, "test_file": path, "target": "price", **keys})
    assert expected in str(caught.value)


def test_the_nearest_column_is_named(write) -> None:
    path = write(HOUSES)
    with pytest.raises(ConfigError) as caught:
        opened(path, target="prices")
    assert str(caught.value) == (
        "ConfigError: a table lacks a column\n"
        "  argument  target\n"
        f"  file      {path}\n"
        "  column    prices\n"
        "  allowed   area, city, rooms, price\n"
        "  nearest   price"
    )


def test_missing_files(write, tmp_path) -> None:
    with pytest.raises(DataError, match="a file is missing"):
        opened(tmp_path / "none.csv")
    with pytest.raises(DataError, match="not a regular file"):
        opened(tmp_path)


def test_memory_is_checked_while_a_table_is_read(write, monkeypatch) -> None:
    requested: list[int] = []
    monkeypatch.setattr(csv, "ROWS_PER_CHECK", 2)
    monkeypatch.setattr(csv, "require_memory", lambda needed, **rows: requested.append(needed))
    opened(write(HOUSES))
    assert requested == [2 * 4 * 12, 4 * 4 * 12, 5 * 4 * 12]  # rows while they are read, then all of them


def test_damage_gives_a_table_or_an_error(write) -> None:
    codes = set()
    for _, content in damaged(HOUSES.encode(), "csv", 300):
        path = write(content)
        try:
            features, target = values(opened(path))
        except RunnerError as error:
            codes.add(error.exit_code)
        else:
            assert np.isfinite(features).all()
            assert np.isfinite(target).all()
    assert codes == {2, 7}
