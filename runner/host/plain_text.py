"""Texts of users and files in output that interprets characters: terminals, spreadsheets."""

import re

# Control characters, line and paragraph separators, and those that change the direction of what follows.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def visible(text: str) -> str:
    """The text in one line, with escapes instead of characters that a terminal would interpret.

    >>> print(visible("a\\x1b[2Jb\\nc"))
    a\\x1b[2Jb\\nc
    """
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def as_unicode(text: str) -> str:
    """The text with escapes instead of lone surrogates, which names of files have in place of bytes that are not UTF-8.

    >>> as_unicode("a\\udcff")
    'a\\\\udcff'
    """
    return text.encode(errors="backslashreplace").decode()


def spreadsheet_cell(value: object) -> object:
    """A value for a CSV file: texts that a spreadsheet would take for a formula begin with an apostrophe.

    >>> spreadsheet_cell("=1+1"), spreadsheet_cell("-1e-3"), spreadsheet_cell(-0.5), spreadsheet_cell("a=b")
    ("'=1+1", '-1e-3', -0.5, 'a=b')
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isprintable()
