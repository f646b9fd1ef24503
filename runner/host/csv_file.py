"""Comma-separated values as text."""

import csv
import io
from collections.abc import Iterable, Sequence


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A line with the names of the columns, then one for each row; fields with commas or quotes are quoted.

    >>> csv_text(("name", "shape"), [("a", "1,2")])
    'name,shape\\na,"1,2"\\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()
