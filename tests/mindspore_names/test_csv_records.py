"""CSV files for MindRecord: the types of columns, and damaged files."""

import pytest
from tables import table

from runner.errors import DataError
from runner.mindspore.mindrecord import csv_records


def test_a_column_has_the_narrowest_type_of_all_its_values(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("id,name,score,is_new\n1,Ann,2,true\n2,Bob,0.5,False\n")
    kinds, rows = csv_records(file, None)
    assert kinds == {"id": "int64", "name": "string", "score": "float64", "is_new": "int32"}
    assert list(rows) == [
        {"id": 1, "name": "Ann", "score": 2.0, "is_new": 1},
        {"id": 2, "name": "Bob", "score": 0.5, "is_new": 0},
    ]


DAMAGED = {
    "another length": (b"a,b\n\n1,2\n1\n", "1 fields in line 4"),
    "no rows": (b"a,b\n", "without rows"),
    "nothing": (b"", "without rows"),
    "a field without end": (b'a,b\n"' + b"x" * 200_000, "field larger than field limit"),
    "no text": (b"a,b\n\xff,1\n", "not UTF-8 text"),
}


@table(("content", "text"), DAMAGED.values())
def test_damaged_files(tmp_path, content, text):
    file = tmp_path / "a.csv"
    file.write_bytes(content)
    with pytest.raises(DataError, match=text):
        csv_records(file, None)
