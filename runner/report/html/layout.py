"""The frame of the page: style, script, navigation. A content security policy forbids it to load anything."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from runner.report.html.markup import Markup, concat, tag

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
