"""Tables of cases in one test, where a test for each row would cost more than the check."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def check_rows(rows: Iterable[Any], check: Callable[[Any], object], name: Callable[[Any], object] = str) -> None:
    """Call `check` for every row, also after one has failed.

    Raises an exception group whose message names the rows that fail, with the error of each; AssertionError when there
    is no row.
    """
    errors: dict[str, BaseException] = {}
    count = 0
    for row in rows:
        count += 1
        try:
            check(row)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"in the row {name(row)}")
            errors[f"{count}: {name(row)}"] = error
    assert count, "a table without rows"
    if errors:
        raise BaseExceptionGroup(f"{len(errors)} of {count} rows fail: {', '.join(errors)}", [*errors.values()])
