"""Reader of `.ir` files: the listing that `text` was written from."""

import re
from pathlib import Path

from runner import dtype as dt
from runner.errors import DataError
from runner.host.files import read_bytes
from runner.observe.graph.listing import DeviceType, ListedLine, ListedParameter, Listing, Operation, Subgraph
from runner.types import Shape, TensorType

LIMIT = 1 << 28  # bytes; the text of ResNet-50 has 2 MB
_DTYPES = {kind.name: kind for kind in dt.ALL}
_DIGITS = "[0-9]{1,18}"
_SHAPE = rf"\[const vector\]\[((?:-?{_DIGITS}(?:, -?{_DIGITS})*)?)\]>"
_TYPE = re.compile(rf"<Tensor\[({'|'.join(_DTYPES)})\]x{_SHAPE}")
_DEVICE_TYPE = re.compile(rf"<({'|'.join(_DTYPES)})x(\w+){_SHAPE}")
_LINES = {  # the kinds of lines, by their names in errors
    kind: re.compile(pattern)
    for kind, pattern in {
        "an empty line": "",
        "#IR entry": "#IR entry      : @(.*)",
        "#attrs": "#attrs         :",
        "key : value": "(.*?) : (.*)",
        "#Total params and a number": f"#Total params  : ({_DIGITS})",
        "a parameter": r"(%para\d+_.*) : (<.*>)  :  (<.*>)  :  IsWeight:(true|false)",
        "#Total subgraph and a number": f"#Total subgraph : ({_DIGITS})",
        "subgraph attr:": "subgraph attr:",
        "a subgraph": r"subgraph @(.+?)\((.*)\) \{",
        "an operation": rf"  %({_DIGITS})\((.*?)\) = (\w+)\((.*?)\)"
        r"(?: \{instance name: ([^{}]*)\})?(?: primitive_attrs: \{(.*)\})?",
        "types of operands and results": r"      : \((.*?)\) -> \((.*)\)",
        "a full name": r"      : \((.*)\)",
        "a source line": rf"      # In file (.+?)\(({_DIGITS})\)/(.*)/",
        "an update": r"  Assign\((.*)\)",
        "an operation or return": r"  return\((.*)\)",
        "the types of what is returned": r"      : \((.*)\)",
        "}": "}",
    }.items()
}
_OPEN, _CLOSE = "([{<", ")]}>"


def read(path: str | Path) -> Listing:
    """The listing in a file. Raises DataError with the line when the file is damaged or has another format."""
    place = Path(path)
    content = read_bytes(place, LIMIT)
    try:
        return parse(content.decode())
    except UnicodeDecodeError:
        raise DataError("not a text file", file=place) from None
    except DataError as error:
        raise error.add(file=place) from None


def parse(content: str) -> Listing:
    """The listing in a text. Raises DataError with the line of the first error."""
    lines = _Lines(content)
    entry = lines.next("#IR entry")[1]
    lines.next("#attrs")
    attributes = tuple([(found[1], found[2]) for found in lines.all("key : value")])
    lines.next("an empty line")
    count = int(lines.next("#Total params and a number")[1])
    lines.next("an empty line")
    parameters = tuple([_parameter(lines.next("a parameter"), lines) for _ in range(count)])
    lines.next("an empty line")
    subgraphs = tuple([_subgraph(lines) for _ in range(int(lines.next("#Total subgraph and a number")[1]))])
    lines.require(lines.at_end and bool(subgraphs) and subgraphs[0].name == entry, f"the subgraph @{entry}")
    return Listing(attributes, parameters, subgraphs)


def split(text: str) -> tuple[str, ...]:
    """Parts between commas that are not within brackets or quotes.

    >>> split('a, cst1:Float32[2]{1, 2}, "x, (y"')
    ('a', 'cst1:Float32[2]{1, 2}', '"x, (y"')
    """
    parts, start, depth, quoted, k = [], 0, 0, False, 0
    while k < len(text):
        letter = text[k]
        if quoted:
            k += letter == "\\"
            quoted = letter != '"'
        elif letter == '"':
            quoted = True
        elif letter == "," and not depth:
            parts.append(text[start:k])
            start = k + 2
        else:
            depth += (letter in _OPEN) - (letter in _CLOSE)
        k += 1
    return (*parts, text[start:]) if text else ()


class _Lines:
    """The lines of a file in order; unexpected lines raise DataError with their number."""

    def __init__(self, content: str) -> None:
        *self._lines, self._rest = content.split("\n")
        self.number = 0  # of lines that were read

    @property
    def at_end(self) -> bool:
        return self.number == len(self._lines) and not self._rest

    def maybe(self, kind: str) -> re.Match[str] | None:
        """The next line if it is of this kind."""
        found = _LINES[kind].fullmatch(self._lines[self.number]) if self.number < len(self._lines) else None
        self.number += found is not None
        return found

    def all(self, kind: str) -> list[re.Match[str]]:
        """The next lines, as long as they are of this kind."""
        return list(iter(lambda: self.maybe(kind), None))

    def next(self, kind: str) -> re.Match[str]:
        found = self.maybe(kind)
        if found is None:
            self.number += 1
            raise self.wrong(kind)
        return found

    def require(self, holds: bool, expected: str) -> None:
        if not holds:
            raise self.wrong(expected)

    def wrong(self, expected: str) -> DataError:
        found = "".join(self._lines[max(0, self.number - 1) :][:1])
        return DataError("not the text of a graph", line=self.number, expected=expected, found=found[:80])


def _parameter(found: re.Match[str], lines: _Lines) -> ListedParameter:
    return ListedParameter(found[1], _type(found[2], lines), _device_type(found[3], lines), found[4] == "true")


def _subgraph(lines: _Lines) -> Subgraph:
    lines.next("an empty line")
    lines.next("subgraph attr:")
    head = lines.next("a subgraph")
    operations = tuple([_operation(found, lines) for found in iter(lambda: lines.maybe("an operation"), None)])
    updates = []
    for found in lines.all("an update"):
        parameter, value = split(found[1])
        updates.append((parameter, value))
    returned = split(lines.next("an operation or return")[1])
    types = _types(lines.next("the types of what is returned")[1], lines)
    lines.next("}")
    return Subgraph(head[1], split(head[2]), operations, tuple(updates), returned, types)


def _operation(found: re.Match[str], lines: _Lines) -> Operation:
    attributes = [part.partition(": ") for part in split(found[6] or "")]
    lines.require(all(separator for _, separator, _ in attributes), "key: value")
    logical = lines.next("types of operands and results")
    physical = lines.maybe("types of operands and results")
    return Operation(
        int(found[1]),
        found[2],
        found[3],
        split(found[4]),
        found[5] or "",
        tuple([(key, value) for key, _, value in attributes]),
        _types(logical[1], lines),
        _types(logical[2], lines),
        physical and (_device_types(physical[1], lines), _device_types(physical[2], lines)),
        lines.next("a full name")[1],
        tuple([ListedLine(line[1], int(line[2]), line[3]) for line in lines.all("a source line")]),
    )


def _types(text: str, lines: _Lines) -> tuple[TensorType | None, ...]:
    return tuple([None if part == "<null>" else _type(part, lines) for part in split(text)])


def _type(text: str, lines: _Lines) -> TensorType:
    found = _TYPE.fullmatch(text)
    if found is None:
        raise lines.wrong(f"a type of {', '.join(_DTYPES)}")
    return TensorType(_DTYPES[found[1]], _shape(found[2]))


def _device_types(text: str, lines: _Lines) -> tuple[DeviceType, ...]:
    return tuple([_device_type(part, lines) for part in split(text)])


def _device_type(text: str, lines: _Lines) -> DeviceType:
    found = _DEVICE_TYPE.fullmatch(text)
    if found is None:
        raise lines.wrong(f"a type with a format, of {', '.join(_DTYPES)}")
    return DeviceType(_DTYPES[found[1]], found[2], _shape(found[3]))


def _shape(text: str) -> Shape:
    return tuple(int(n) for n in text.split(", ")) if text else ()
