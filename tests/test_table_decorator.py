"""A table reports every row that fails, by its name, and no row is left out."""

import pytest
from tables import check_rows, table

SEEN = []


@table(("number", "text"), [(1, "a"), (2, "b"), (3, "c")])
def rows_of(number, text, place):
    SEEN.append((number, text, place))
    if number == 2:
        pytest.skip("not this one")
    assert number < 0, "too large"


@table("one", [1, 2])
@table("other", "ab")
def test_tables_of_tables(one, other, tmp_path):
    SEEN.append((one, other))
    assert tmp_path.is_dir()


def test_all_rows_are_checked_and_those_that_fail_are_named():
    SEEN.clear()
    with pytest.raises(ExceptionGroup) as caught:
        rows_of(place="here")
    assert SEEN == [(1, "a", "here"), (2, "b", "here"), (3, "c", "here")]
    assert caught.value.message == "2 of 3 rows fail: 1: 1-'a', 3: 3-'c'"
    assert [error.__notes__ for error in caught.value.exceptions] == [["in the row 1-'a'"], ["in the row 3-'c'"]]


def test_a_check_that_expects_an_error_fails_like_any_other():
    def check(row):
        with pytest.raises(ValueError, match="none"):
            int(row)

    with pytest.raises(BaseExceptionGroup, match=r"1 of 1 rows fail: 1: 7"):
        check_rows([7], check)


def test_a_table_without_rows_is_a_mistake():
    with pytest.raises(AssertionError, match="without rows"):
        check_rows([], print)


def test_a_table_is_skipped_when_all_rows_are():
    with pytest.raises(pytest.skip.Exception, match="nothing here"):
        check_rows([1, 2], lambda row: pytest.skip("nothing here"))
