"""HTML and SVG elements, and the frame of the page: style, script, navigation.

Text is escaped unless it is `Markup`, so that files of a run cannot inject elements; a content security policy forbids
the page to load anything.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from runner.report.record import metric_text

# Elements.

CARDS = 4  # columns: a table with so many is a list of cards on a phone
HALF_LINE = 20  # letters
DENSE, DENSEST = 12, 18  # columns: smaller letters, and numbers that may be broken
_VOID = {"meta", "input", "img", "br", "link", "wbr"}


class Markup(str):
    """HTML that needs no escaping."""


class MeasuredValue(float):
    """A loss or metric: tables show it as the console does."""


Content = str | int | float | None


def tag(name: str, /, *content: Content, **attributes: Content | bool) -> Markup:
    """An element. `class_` is the attribute class, `data_x` is data-x; attributes that are None or False are omitted.

    >>> tag("td", "a < b", class_="n")
    '<td class="n">a &lt; b</td>'
    """
    words = [name]
    for key, value in attributes.items():
        label = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(label)
        elif value is not None and value is not False:
            words.append(f'{label}="{escape(str(value))}"')
    start = f"<{' '.join(words)}>"
    return Markup(start if name in _VOID else f"{start}{concat(*content)}</{name}>")


def concat(*content: Content) -> Markup:
    """The concatenation of all values that are not None."""
    return Markup("".join(one if isinstance(one, Markup) else escape(str(one)) for one in content if one is not None))


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Content]],
    sortable: bool = False,
    sorted_by: tuple[str, str] | None = None,
) -> Markup:
    """A table that fits into any width. Numbers are right-aligned; `sortable` by a click on the header, and sorted by a
    column in the direction `ascending` or `descending` at first."""
    numeric = [bool(rows) and all(isinstance(row[k], int | float | None) for row in rows) for k in range(len(columns))]
    is_cards = len(columns) >= CARDS
    order = dict([sorted_by] if sorted_by else [])
    row_role, head_role = ("row", "columnheader") if is_cards else (None, None)  # cards are no table to a browser
    places = [(name, is_cards and _is_wide(name, [row[k] for row in rows])) for k, name in enumerate(columns)]
    head = [
        tag(
            "th", breakable(name), class_="n" if right else None, scope="col", role=head_role, aria_sort=order.get(name)
        )
        for name, right in zip(columns, numeric, strict=True)
    ]
    body = [
        tag("tr", *(_cell(x, is_cards, *place) for x, place in zip(row, places, strict=True)), role=row_role)
        for row in rows
    ]
    kinds = {"sortable": sortable, "cards": is_cards, "dense": len(columns) > DENSE, "densest": len(columns) > DENSEST}
    names = " ".join(name for name, has in kinds.items() if has)
    content = tag("thead", tag("tr", *head, role=row_role)), tag("tbody", *body)
    element = tag("table", *content, class_=names or None, role="table" if is_cards else None)
    return tag("div", element, class_="scroll")


def breakable(name: str) -> Markup:
    """A name that may be broken after its underscores and dots.

    >>> breakable("optimizer.learning_rate")
    'optimizer.<wbr>learning_<wbr>rate'
    """
    return Markup(re.sub(r"([._])(?=.)", r"\1<wbr>", escape(name)))


def measured(value: float | None) -> Content:
    """A loss or metric as the content of a cell; whole numbers stay whole."""
    return MeasuredValue(value) if isinstance(value, float) else value


def number(value: Content) -> str:
    """A float with five digits, a metric as on the console, an integer with all.

    >>> number(0.00091881), number(MeasuredValue(0.98333)), number(2640), number(None), number(1234567.8)
    ('0.00091881', '0.9833', '2640', '-', '1.2346e+06')
    """
    if value is None:
        return "-"
    if isinstance(value, MeasuredValue):
        return metric_text(value)
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def metric_label(metric: str) -> str:
    """The name of a metric on the page.

    >>> metric_label("eval.loss")
    'test loss'
    """
    return metric.replace("eval.", "test ")


def _is_wide(name: str, column: Sequence[Content]) -> bool:
    """Whether the cells of a column need a whole line of a card."""
    texts = (re.sub("<[^>]*>", "", x) if isinstance(x, Markup) else number(x) for x in column)
    return len(name) + max(map(len, texts), default=0) > HALF_LINE


def _cell(value: Content, is_card: bool, name: str, is_wide: bool) -> Markup:
    """A cell; a card shows the name of its column beside it."""
    wide = "wide" if is_wide else None
    role, label = ("cell", name) if is_card else (None, None)
    if isinstance(value, int | float) or value is None:
        exact = None if value is None else repr(float(value) if isinstance(value, MeasuredValue) else value)
        return tag("td", number(value), class_="n wide" if wide else "n", data_value=exact, data_label=label, role=role)
    return tag("td", value, class_=wide, data_label=label, role=role)


# The frame.

_HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


class Section(NamedTuple):
    """A part of the page with a heading; it is omitted without content."""

    title: str
    content: Markup | None

    @property
    def id(self) -> str:
        """The anchor of the section.

        >>> Section("What the numbers depend on", Markup()).id
        'what-the-numbers-depend-on'
        """
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower())


def page(title: str, head: Markup, sections: Sequence[Section]) -> str:
    """The content of the HTML file."""
    sections = [section for section in sections if section.content]
    links = tag(
        "nav", *(tag("a", one.title, href=f"#{one.id}") for one in sections), aria_label="Sections of this page"
    )
    parts = [tag("section", tag("h2", s.title), s.content, id=s.id) for s in sections]
    meta = concat(
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", asset("page.css")),
    )
    body = tag("main", head, links, *parts)
    document = tag(
        "html", tag("head", meta), tag("body", body, tag("script", asset("tables.js"), asset("charts.js"))), lang="en"
    )
    return f"<!doctype html>\n{document}\n"


def badge(state: str) -> Markup:
    """The status of a run, by word and colour."""
    return tag("span", state, class_=f"badge {state}")


def tiles(values: dict[str, str]) -> Markup:
    """The most important figures, as tiles."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in values.items()), class_="tiles")


def notes(lines: Sequence[str]) -> Markup | None:
    """Reasons why the data may be incomplete, as a list."""
    return tag("ul", *(tag("li", line) for line in lines), class_="notes") if lines else None


def collapsible(title: str, content: Markup, is_open: bool = False) -> Markup:
    """Content below a title that shows and hides it."""
    return tag("details", tag("summary", title), content, open=is_open)


def bar(parts: dict[str, float], unit: str) -> Markup:
    """A stacked bar of the parts of a total, with a legend."""
    total = sum(parts.values()) or 1.0
    segments = [
        tag("i", style=f"flex:{max(value, 0) / total:.5f}", class_=f"c{k}") for k, value in enumerate(parts.values(), 1)
    ]
    texts = [f"{name} {value:.4g} {unit} ({100 * value / total:.0f}%)" for name, value in parts.items()]
    return concat(tag("div", *segments, class_="bar"), legend((f"area c{k}", text) for k, text in enumerate(texts, 1)))


def legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """A list of names, each with the classes of its symbol."""
    return tag("ul", *(tag("li", tag("i", class_=symbol), name) for symbol, name in entries), class_="legend")


def asset(name: str) -> Markup:
    """The content of a file of this package, such as page.css."""
    return Markup((_HERE / name).read_text(encoding="utf-8"))
