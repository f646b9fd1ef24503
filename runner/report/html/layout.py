"""The frame of the page: style, script, links to the sections. It may load nothing, and the browser holds that."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from runner.report.html.markup import Markup, tag, together

_HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


class Section(NamedTuple):
    """A part of the page with a heading."""

    title: str
    content: Markup

    @property
    def id(self) -> str:
        """Its place in the page.

        >>> Section("What the numbers depend on", Markup()).id
        'what-the-numbers-depend-on'
        """
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower())


def page(title: str, head: Markup, sections: Sequence[Section]) -> str:
    """The whole file."""
    links = tag("nav", *(tag("a", section.title, href=f"#{section.id}") for section in sections))
    parts = [tag("section", tag("h2", s.title), s.content, id=s.id) for s in sections]
    meta = together(
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", _own("page.css")),
    )
    body = tag("main", head, links, *parts)
    whole = tag("html", tag("head", meta), tag("body", body, tag("script", _own("page.js"))), lang="en")
    return f"<!doctype html>\n{whole}\n"


def badge(state: str) -> Markup:
    """The status of a run, by word and colour."""
    return tag("span", state, class_=f"badge {state}")


def tiles(values: dict[str, str]) -> Markup:
    """The figures that matter most."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in values.items()), class_="tiles")


def notes(lines: Sequence[str]) -> Markup | None:
    """What a reader should know before believing the rest."""
    return tag("ul", *(tag("li", line) for line in lines), class_="notes") if lines else None


def more(title: str, content: Markup, is_open: bool = False) -> Markup:
    """What is folded away."""
    return tag("details", tag("summary", title), content, open=is_open)


def bar(parts: dict[str, float], unit: str) -> Markup:
    """Parts of a whole, side by side, with their numbers in a legend."""
    whole = sum(parts.values()) or 1.0
    pieces = [
        tag("i", style=f"flex:{max(value, 0) / whole:.5f}", class_=f"c{k}") for k, value in enumerate(parts.values(), 1)
    ]
    words = [
        tag("li", tag("i", class_=f"area c{k}"), f"{name} {value:.4g} {unit} ({100 * value / whole:.0f}%)")
        for k, (name, value) in enumerate(parts.items(), 1)
    ]
    return together(tag("div", *pieces, class_="bar"), tag("ul", *words, class_="legend"))


def _own(name: str) -> Markup:
    return Markup((_HERE / name).read_text(encoding="utf-8"))
