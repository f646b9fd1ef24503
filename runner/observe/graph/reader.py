"""Reader of `.ir` files: the listing that `text` was written from."""

import re
from collections.abc import Iterator
from pathlib import Path

from runner import dtype as dt
from runner.dtype import DType
from runner.errors import DataError
from runner.host.files import read_bytes
from runner.observe.graph.listing import DeviceType, ListedLine, ListedParameter, Listing, Operation, Subgraph
from runner.types import Shape, TensorType

LIMIT = 1 << 28  # bytes; the text of ResNet-50 has 2 MB
_DTYPES = {kind.name: kind for kind in dt.ALL}
_DIGITS = r"\d{1,18}"
_SHAPE = rf"\[const vector\]\[((?:-?{_DIGITS}(?:, -?{_DIGITS})*)?)\]>"
_TYPE = re.compile(r"<Tensor\[(\w+)\]x" + _SHAPE)
_DEVICE_TYPE = re.compile(r"<([A-Za-z0-9]+?)x(\w+)" + _SHAPE)
_PARAMETER = re.compile(r"(%para\d+_.*) : (<.*>)  :  (<.*>)  :  IsWeight:(true|false)")
_SUBGRAPH = re.compile(r"subgraph @(.+?)\((.*)\) \{")
_OPERATION = re.compile(
    rf"  %({_DIGITS})"
    r"\((.*?)\) = (\w+)\((.*?)\)(?: \{instance name: ([^{}]*)\})?(?: primitive_attrs: \{(.*)\})?"
)
_ASSIGN = re.compile(r"  Assign\((.*)\)")
_RETURN = re.compile(r"  return\((.*)\)")
_NOTE = re.compile(r"      : \((.*)\)")
_SOURCE = re.compile(rf"      # In file (.+?)\(({_DIGITS})\)/(.*)/")
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
    entry = lines.after("#IR entry      : @")
    lines.after("#attrs         :")
    attributes = tuple([_pair(line, " : ", lines) for line in lines.until("")])
    count = lines.count("#Total params  : ")
    lines.after("")
    parameters = tuple([_parameter(line, lines) for line in lines.until("")])
    lines.require(len(parameters) == count, f"{count} parameters")
    subgraphs = tuple([_subgraph(lines) for _ in range(lines.count("#Total subgraph : "))])
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
        self._lines = content.split("\n")
        self.number = 0

    @property
    def at_end(self) -> bool:
        return self._lines[self.number :] == [""]

    def next(self) -> str:
        self.require(self.number < len(self._lines) - 1, "another line")
        self.number += 1
        return self._lines[self.number - 1]

    def peek(self) -> str:
        return self._lines[min(self.number, len(self._lines) - 1)]

    def after(self, start: str) -> str:
        """The rest of the next line, which must begin with `start`; an empty `start` requires an empty line."""
        line = self.next()
        self.require(line.startswith(start) if start else not line, repr(start))
        return line.removeprefix(start)

    def count(self, start: str) -> int:
        found = self.after(start)
        self.require(re.fullmatch(_DIGITS, found, re.ASCII) is not None, "a number")
        return int(found)

    def until(self, end: str) -> Iterator[str]:
        while (line := self.next()) != end:
            yield line

    def match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        found = pattern.fullmatch(self.next())
        if found is None:
            raise self.wrong(expected)
        return found

    def maybe(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.fullmatch(self.peek())
        self.number += found is not None
        return found

    def require(self, holds: bool, expected: str) -> None:
        if not holds:
            raise self.wrong(expected)

    def wrong(self, expected: str) -> DataError:
        found = self._lines[max(0, self.number - 1)]
        return DataError("not the text of a graph", line=self.number, expected=expected, found=found[:80])


def _pair(text: str, between: str, lines: _Lines) -> tuple[str, str]:
    key, found, value = text.partition(between)
    lines.require(bool(found), f"key{between}value")
    return key, value


def _parameter(line: str, lines: _Lines) -> ListedParameter:
    found = _PARAMETER.fullmatch(line)
    if found is None:
        raise lines.wrong("a parameter")
    (type,), (device_type,) = _types(found[2], lines), _device_types(found[3], lines)
    if type is None:
        raise lines.wrong("a parameter with a type")
    return ListedParameter(found[1], type, device_type, found[4] == "true")


def _subgraph(lines: _Lines) -> Subgraph:
    lines.after("")
    lines.after("subgraph attr:")
    head = lines.match(_SUBGRAPH, "a subgraph")
    operations = []
    while found := lines.maybe(_OPERATION):
        operations.append(_operation(found, lines))
    updates = []
    while found := lines.maybe(_ASSIGN):
        parameter, value = split(found[1])
        updates.append((parameter, value))
    returned = split(lines.match(_RETURN, "an operation or return")[1])
    types = _types(lines.match(_NOTE, "the types of what is returned")[1], lines)
    lines.after("}")
    return Subgraph(head[1], split(head[2]), tuple(operations), tuple(updates), returned, types)


def _operation(found: re.Match[str], lines: _Lines) -> Operation:
    operand_types, result_types = (_types(side, lines) for side in _sides(lines))
    device_types = None
    if " -> (" in lines.peek():
        operands, results = (_device_types(side, lines) for side in _sides(lines))
        device_types = operands, results
    full_name = lines.match(_NOTE, "a full name")[1]
    source = []
    while line := lines.maybe(_SOURCE):
        source.append(ListedLine(line[1], int(line[2]), line[3]))
    attributes = tuple([_pair(part, ": ", lines) for part in split(found[6] or "")])
    head = int(found[1]), found[2], found[3], split(found[4]), found[5] or "", attributes
    return Operation(*head, operand_types, result_types, device_types, full_name, tuple(source))


def _sides(lines: _Lines) -> tuple[str, str]:
    """The texts left and right of the arrow."""
    left, _, right = lines.match(_NOTE, "types of operands and results")[1].partition(") -> (")
    return left, right


def _types(text: str, lines: _Lines) -> tuple[TensorType | None, ...]:
    types: list[TensorType | None] = []
    for part in split(text):
        found = _TYPE.fullmatch(part)
        lines.require(found is not None or part == "<null>", "a type")
        types.append(found and TensorType(_dtype(found[1], lines), _shape(found[2])))
    return tuple(types)


def _device_types(text: str, lines: _Lines) -> tuple[DeviceType, ...]:
    types = []
    for part in split(text):
        found = _DEVICE_TYPE.fullmatch(part)
        if found is None:
            raise lines.wrong("a type with a format")
        types.append(DeviceType(_dtype(found[1], lines), found[2], _shape(found[3])))
    return tuple(types)


def _dtype(name: str, lines: _Lines) -> DType:
    lines.require(name in _DTYPES, ", ".join(_DTYPES))
    return _DTYPES[name]


def _shape(text: str) -> Shape:
    return tuple(int(n) for n in text.split(", ")) if text else ()
