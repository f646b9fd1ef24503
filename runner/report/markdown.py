"""Texts of users and files in Markdown: names of metrics, values of keys, paths."""

import re

from runner.host.console import visible

# Texts that mean themselves in Markdown and to GitHub. The others have elements, emphasis, links, images, entities,
# addresses, mentions or references to issues.
_PLAIN = re.compile(r"[\w .,:;%+=/()'\"?$^{}|-]*")
_NOT_PLAIN = re.compile(r"://|www\.|\bGH-\d|(?<!\w)_|_(?!\w)|^ | $", re.IGNORECASE)


def inline(text: str) -> str:
    """The text as itself: unchanged if it is plain, otherwise in a code span, which nothing is interpreted in.

    >>> inline("network.name: lenet5"), inline("<b>*now*</b>")
    ('network.name: lenet5', '`<b>*now*</b>`')
    """
    shown = visible(text)
    return shown if _PLAIN.fullmatch(shown) and not _NOT_PLAIN.search(shown) else code(shown)


def code(text: str) -> str:
    """The text in a code span, whatever backticks it has."""
    shown = visible(text)
    runs = {len(run) for run in re.findall("`+", shown)}
    fence = "`" * next(count for count in range(1, len(runs) + 2) if count not in runs)
    # One space at both ends is removed; it separates backticks, and keeps spaces that belong to the text.
    margin = " " if shown[:1] in ("`", " ") or shown[-1:] in ("`", " ") else ""
    return f"{fence}{margin}{shown}{margin}{fence}" if shown else ""


def table_row(cells: list[str]) -> str:
    """A row of a table; a pipe in a cell is escaped, in code spans as well."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
