"""HTML and SVG elements. Text is escaped unless it is `Markup`, so that files of a run cannot inject elements."""

from collections.abc import Sequence
from html import escape

_VOID = {"meta", "input", "img", "br", "link"}


class Markup(str):
    """HTML that needs no escaping."""


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


def table(columns: Sequence[str], rows: Sequence[Sequence[Content]], sortable: bool = False) -> Markup:
    """A table in a scrollable box. Numbers are right-aligned; `sortable` by a click on the header."""
    numeric = [bool(rows) and all(isinstance(row[k], int | float | None) for row in rows) for k in range(len(columns))]
    head = [tag("th", name, class_="n" if right else None) for name, right in zip(columns, numeric, strict=True)]
    body = [tag("tr", *map(_cell, row)) for row in rows]
    element = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_="sortable" if sortable else None)
    return tag("div", element, class_="scroll")


def number(value: Content) -> str:
    """A float with five digits; an integer with all.

    >>> number(0.00091881), number(2640), number(None), number(1234567.8)
    ('0.00091881', '2640', '-', '1.2346e+06')
    """
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def metric_label(metric: str) -> str:
    """The name of a metric on the page.

    >>> metric_label("eval.loss")
    'test loss'
    """
    return metric.replace("eval.", "test ")


def _cell(value: Content) -> Markup:
    if isinstance(value, int | float) or value is None:
        return tag("td", number(value), class_="n", data_value=None if value is None else repr(value))
    return tag("td", value)
