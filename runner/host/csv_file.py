"""Comma-separated values as text."""

import csv
import io
from collections.abc import Iterable, Sequence


def csv_text(rows: Iterable[Sequence[object]], line_end: str = "\n") -> str:
    """A line for each row, of which the first are the columns; fields with commas or quotes are quoted.

    >>> csv_text([("name", "shape"), ("a", "1,2")])
    'name,shape\\na,"1,2"\\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator=line_end).writerows(rows)
    return text.getvalue()
