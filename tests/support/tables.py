"""Tables of cases in one test, where a test for each row would cost more than the check."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def check_rows(rows: Iterable[Any], check: Callable[[Any], object], name: Callable[[Any], object] = str) -> None:
    """Call `check` for every row, also after one has failed.

    Raises an exception group whose message names the rows that fail, with the error of each; AssertionError when there
    is no row. A row may be skipped; when all are, the test is.
    """
    errors: dict[str, BaseException] = {}
    count, skipped = 0, list[BaseException]()
    for count, row in enumerate(rows, start=1):
        try:
            check(row)
        except pytest.skip.Exception as reason:
            skipped.append(reason)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"in the row {name(row)}")
            errors[f"{count}: {name(row)}"] = error
    assert count, "a table without rows"
    if errors:
        raise BaseExceptionGroup(f"{len(errors)} of {count} rows fail: {', '.join(errors)}", [*errors.values()])
    if len(skipped) == count:
        raise skipped[0]


def table(
    names: str | Sequence[str], rows: Iterable[Any], ids: Callable[[Any], object] | Iterable[object] = repr
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, in one test, with `check_rows`. For tests that leave nothing to the next row: all
    rows share the fixtures. `ids` are the names of the rows, or names a value.
    """
    arguments = [names] if isinstance(names, str) else list(names)
    values = [(row,) if isinstance(names, str) else tuple(row) for row in rows]
    labels = ["-".join(str(ids(v)) for v in row) for row in values] if callable(ids) else [*map(str, ids)]
    cases = dict(enumerate(zip(labels, values, strict=True)))

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def whole(**fixtures: Any) -> None:
            def check(number: int) -> None:
                test(**dict(zip(arguments, cases[number][1], strict=True)), **fixtures)

            check_rows(cases, check, name=lambda number: cases[number][0])

        rest = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        whole.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return whole

    return decorated
