"""HTML and SVG from Python values: text is escaped unless it is `Markup`, so that no file of a run can add elements."""

from html import escape

_VOID = {"meta", "input", "img", "br", "link"}


class Markup(str):
    """Text that is HTML already."""


Inside = str | int | float | None


def tag(name: str, /, *inside: Inside, **attributes: Inside | bool) -> Markup:
    """An element. `class_` is the attribute class, `data_x` is data-x; None and False leave an attribute out.

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
    return Markup(start if name in _VOID else f"{start}{together(*inside)}</{name}>")


def together(*inside: Inside) -> Markup:
    """One after the other; None is nothing."""
    return Markup("".join(one if isinstance(one, Markup) else escape(str(one)) for one in inside if one is not None))


def table(columns: tuple[str, ...], rows: list[tuple[Inside, ...]], sortable: bool = False) -> Markup:
    """A table in a box of its own that scrolls. Cells with numbers stand to the right; `sortable` by a click."""
    numeric = [bool(rows) and all(isinstance(row[k], int | float | None) for row in rows) for k in range(len(columns))]
    head = [tag("th", name, class_="n" if right else None) for name, right in zip(columns, numeric, strict=True)]
    body = [tag("tr", *map(_cell, row)) for row in rows]
    made = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_="sortable" if sortable else None)
    return tag("div", made, class_="scroll")


def number(value: Inside) -> str:
    """Five digits of a number, all of a whole one.

    >>> number(0.00091881), number(2640), number(None), number(1234567.8)
    ('0.00091881', '2640', '-', '1.2346e+06')
    """
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def told(metric: str) -> str:
    """What a metric is called on the page.

    >>> told("eval.loss")
    'test loss'
    """
    return metric.replace("eval.", "test ")


def _cell(value: Inside) -> Markup:
    if isinstance(value, int | float) or value is None:
        return tag("td", number(value), class_="n", data_value=None if value is None else repr(value))
    return tag("td", value)
