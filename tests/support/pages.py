"""Reading a report as a browser would: elements, texts, curves."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "input", "img", "br", "link", "wbr"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    inside: list["Element | str"] = field(default_factory=list)

    def all(self, name: str, **attributes: str) -> list["Element"]:
        """Elements below with this name and these attributes."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [e for e in self.walk() if e.name == name and wanted.items() <= e.attributes.items()]

    def walk(self) -> Iterator["Element"]:
        for one in self.inside:
            if isinstance(one, Element):
                yield one
                yield from one.walk()

    @property
    def text(self) -> str:
        return "".join(one if isinstance(one, str) else one.text for one in self.inside)

    @property
    def classes(self) -> set[str]:
        return set((self.attributes.get("class") or "").split())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("")
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        made = Element(tag, dict(attrs))
        self.open[-1].inside.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_endtag(self, tag):
        assert self.open[-1].name == tag, f"{tag} closes {self.open[-1].name}"
        self.open.pop()

    def handle_data(self, data):
        self.open[-1].inside.append(data)


def page(text: str) -> Element:
    """The tree; every element that was opened must be closed in its order."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert len(reader.open) == 1
    return reader.root


def points(path: Element, svg: Element) -> list[tuple[float, float]]:
    """The places of a curve in the units of its axes, from what the picture says of them."""
    axes = [list(map(float, svg.attributes[name].split())) for name in ("data-x", "data-y")]
    pairs = [
        pair.split()
        for pair in path.attributes["d"].replace("h0", "").replace("Z", "").replace("L", "M").split("M")[1:]
    ]
    return [(_value(axes[0], int(x) / 1000), _value(axes[1], 1 - int(y) / 1000)) for x, y in pairs]


def unit(svg: Element) -> tuple[float, float]:
    """What one unit of a linear picture is, along both axes."""
    (a, b, _), (c, d, _) = (map(float, svg.attributes[name].split()) for name in ("data-x", "data-y"))
    return (b - a) / 1000, (d - c) / 1000


def _value(axis: list[float], part: float) -> float:
    low, high, is_log = axis
    return low * (high / low) ** part if is_log else low + (high - low) * part


def section(root: Element, title: str) -> Element:
    return next(one for one in root.all("section") if one.all("h2")[0].text == title)


def cells(table: Element) -> list[list[str]]:
    return [[cell.text for cell in row.all("td")] for row in table.all("tr") if row.all("td")]
