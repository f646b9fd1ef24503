"""A listing: the content of a `.ir` file as plain values.

A traced graph, the graph of a PyNative step and a lowered ONNX model are described as a `Listing`, from which text and
drawing are written. First its parts; then `read` and `parse`, from text; `describe`, from a graph; and `text`, to text.

References to values are strings, as in the text: `%para3_conv1.weight` a parameter, `%12` the result of operation 12,
`%37[1]` its second result, `@step.1` a subgraph, anything else a constant.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runner import dtype as dt
from runner.core.graph import Graph
from runner.core.lowering import PLAIN, Layout, Lowering, physical_shape
from runner.core.operators import Node
from runner.core.source import Source, is_users
from runner.core.values import Value
from runner.dtype import DType
from runner.errors import DataError
from runner.host.files import read_bytes
from runner.types import Shape, TensorType


class DeviceType(NamedTuple):
    """Type and layout of a value on the device: `<Float32xCHWN[const vector][6, 28, 28, 32]>`."""

    dtype: DType
    format: str
    shape: Shape


class ListedLine(NamedTuple):
    """A source line of an operation."""

    file: str
    number: int
    text: str


class ListedParameter(NamedTuple):
    """An input of the program: data or a weight."""

    reference: str
    type: TensorType
    device_type: DeviceType
    is_weight: bool


class Operation(NamedTuple):
    """One application of an operator.

    `results` has one reference for each result. `device_types` (operands, results) is None before layouts are chosen;
    a type is None where it is not known. `full_name` is `{scope}/{Op}-op{N}`.
    """

    number: int
    name: str
    op: str
    operands: tuple[str, ...]
    instance: str
    attributes: tuple[tuple[str, str], ...]
    operand_types: tuple[TensorType | None, ...]
    result_types: tuple[TensorType | None, ...]
    device_types: tuple[tuple[DeviceType, ...], tuple[DeviceType, ...]] | None
    full_name: str
    source: tuple[ListedLine, ...]

    @property
    def results(self) -> tuple[str, ...]:
        """References to the results."""
        return result_references(self.number, len(self.result_types))


class Subgraph(NamedTuple):
    """Operations in order, returned values, and updates: pairs of a parameter and its new value at the end."""

    name: str
    parameters: tuple[str, ...]
    operations: tuple[Operation, ...]
    updates: tuple[tuple[str, str], ...]
    returned: tuple[str, ...]
    returned_types: tuple[TensorType | None, ...]


class Listing(NamedTuple):
    """A whole program. The first subgraph is the entry; its parameters are those of the listing."""

    attributes: tuple[tuple[str, str], ...]
    parameters: tuple[ListedParameter, ...]
    subgraphs: tuple[Subgraph, ...]


def result_references(number: int, count: int) -> tuple[str, ...]:
    """References to the results of an operation.

    >>> result_references(3, 1), result_references(4, 2), result_references(5, 0)
    (('%3',), ('%4[0]', '%4[1]'), ())
    """
    return (f"%{number}",) if count == 1 else tuple([f"%{number}[{k}]" for k in range(count)])


def parameter_reference(number: int, name: str) -> str:
    """The reference to a parameter; numbers start at 1."""
    return f"%para{number}_{name}"


# Reader of `.ir` files: the listing that `text` was written from.

LIMIT = 1 << 28  # bytes; the text of ResNet-50 has 2 MB
_DTYPES = {kind.name: kind for kind in dt.ALL}
_DIGITS = "[0-9]{1,18}"
_SHAPE = rf"\[const vector\]\[((?:-?{_DIGITS}(?:, -?{_DIGITS})*)?)\]>"
# Patterns are text, which `re` compiles at the first use: most runs write listings and read none.
_TYPE = rf"<Tensor\[({'|'.join(_DTYPES)})\]x{_SHAPE}"
_DEVICE_TYPE = rf"<({'|'.join(_DTYPES)})x(\w+){_SHAPE}"
_LINES = {  # the kinds of lines, by their names in errors
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
    parameters = tuple([_read_parameter(lines.next("a parameter"), lines) for _ in range(count)])
    lines.next("an empty line")
    subgraphs = tuple([_read_subgraph(lines) for _ in range(int(lines.next("#Total subgraph and a number")[1]))])
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
        found = re.fullmatch(_LINES[kind], self._lines[self.number]) if self.number < len(self._lines) else None
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


def _read_parameter(found: re.Match[str], lines: _Lines) -> ListedParameter:
    return ListedParameter(
        found[1], _read_type(found[2], lines), _read_device_type(found[3], lines), found[4] == "true"
    )


def _read_subgraph(lines: _Lines) -> Subgraph:
    lines.next("an empty line")
    lines.next("subgraph attr:")
    head = lines.next("a subgraph")
    operations = tuple([_read_operation(found, lines) for found in iter(lambda: lines.maybe("an operation"), None)])
    updates = []
    for found in lines.all("an update"):
        parameter, value = split(found[1])
        updates.append((parameter, value))
    returned = split(lines.next("an operation or return")[1])
    types = _read_types(lines.next("the types of what is returned")[1], lines)
    lines.next("}")
    return Subgraph(head[1], split(head[2]), operations, tuple(updates), returned, types)


def _read_operation(found: re.Match[str], lines: _Lines) -> Operation:
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
        _read_types(logical[1], lines),
        _read_types(logical[2], lines),
        physical and (_read_device_types(physical[1], lines), _read_device_types(physical[2], lines)),
        lines.next("a full name")[1],
        tuple([ListedLine(line[1], int(line[2]), line[3]) for line in lines.all("a source line")]),
    )


def _read_types(text: str, lines: _Lines) -> tuple[TensorType | None, ...]:
    return tuple([None if part == "<null>" else _read_type(part, lines) for part in split(text)])


def _read_type(text: str, lines: _Lines) -> TensorType:
    found = re.fullmatch(_TYPE, text)
    if found is None:
        raise lines.wrong(f"a type of {', '.join(_DTYPES)}")
    return TensorType(_DTYPES[found[1]], _read_shape(found[2]))


def _read_device_types(text: str, lines: _Lines) -> tuple[DeviceType, ...]:
    return tuple([_read_device_type(part, lines) for part in split(text)])


def _read_device_type(text: str, lines: _Lines) -> DeviceType:
    found = re.fullmatch(_DEVICE_TYPE, text)
    if found is None:
        raise lines.wrong(f"a type with a format, of {', '.join(_DTYPES)}")
    return DeviceType(_DTYPES[found[1]], found[2], _read_shape(found[3]))


def _read_shape(text: str) -> Shape:
    return tuple(int(n) for n in text.split(", ")) if text else ()


# Listings of graphs. Operations keep their numbers from the trace, so stages of one graph can be compared.

MAX_ELEMENTS = 8  # of constants that are printed in full
_PLAIN_WORD = re.compile(r"[\w.+/-]+")


def describe(graph: Graph, number: int = 0, attributes: Mapping[str, str] | None = None) -> Listing:
    """The listing of a graph, with the name `@{name}.{number}`."""
    symbols = (*graph.inputs, *graph.parameters.values())
    parameters = [
        ListedParameter(parameter_reference(k, s.name), s.type, device_type(s.type), k > len(graph.inputs))
        for k, s in enumerate(symbols, 1)
    ]
    references: dict[Value, str] = {s: p.reference for s, p in zip(symbols, parameters, strict=True)}
    entry = _describe_subgraph(graph, number, (), references)
    return Listing(tuple((attributes or {}).items()), tuple(parameters), tuple(entry))


def _describe_subgraph(
    graph: Graph, number: int, parameters: tuple[str, ...], references: Mapping[Value, str]
) -> list[Subgraph]:
    """A graph, and after it those of its branches and loops; `references` has the names of its inputs."""
    known: dict[Value, str] = dict(references)
    known.update((symbol, constant_text(symbol.name, array)) for symbol, array in graph.constants.items())
    numbers = _numbers((*graph.nodes, *graph.effects))
    inner: list[Subgraph] = []
    for node in graph.nodes:  # effects have no results
        for part in node.op.graphs:
            given: dict[Value, str] = {x: parameter_reference(k, x.name) for k, x in enumerate(part.inputs, 1)}
            inner += _describe_subgraph(part, number, tuple(given.values()), given)
        known.update(zip(node.outputs, result_references(numbers[node], len(node.outputs)), strict=True))
    entry = Subgraph(
        f"{graph.name}.{number}",
        parameters,
        tuple([_describe_operation(node, known, number, numbers[node]) for node in (*graph.nodes, *graph.effects)]),
        tuple([(known[graph.parameters[p]], known[s]) for p, s in graph.updates.items()]),
        tuple([known[s] for s in graph.outputs]),
        tuple([s.type for s in graph.outputs]),
    )
    return [entry, *inner]


def _numbers(nodes: Sequence[Node]) -> dict[Node, int]:
    """The number of each node, and another one for nodes that a pass has put beside it with the same number."""
    free = count(max((node.number for node in nodes), default=0) + 1)
    taken: set[int] = set()
    numbers: dict[Node, int] = {}
    for node in nodes:
        numbers[node] = next(free) if node.number in taken else node.number
        taken.add(node.number)
    return numbers


def constant_text(name: str, array: np.ndarray) -> str:
    """A constant as an operand: all elements if there are few, otherwise name, type and the first element.

    >>> constant_text("cst1", np.float32([0.5, 2])), constant_text("cst2", np.zeros((9, 9)))
    ('Float32[2]{0.5, 2.0}', 'cst2:Float64[9, 9]{0.0, ...}')
    """
    kind = TensorType.of(array)
    if array.size <= MAX_ELEMENTS:
        return f"{kind}{{{', '.join(map(str, array.ravel()))}}}"
    first = array.flat[0]
    start = f"{first!s}, " if (array == first).all() else ""  # str: a format would print the digits of a Float64
    return f"{name}:{kind}{{{start}...}}"


def attribute_text(value: Any) -> str:
    """An attribute as text; strings that are not plain words are quoted.

    >>> attribute_text((True, 2, "same", "a, b", None)), attribute_text(["x", "w"])
    ('(true, 2, same, "a, b", None)', '[x, w]')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        start, end = "()" if isinstance(value, tuple) else "[]"
        return f"{start}{', '.join(map(attribute_text, value))}{end}"
    if isinstance(value, str):
        return value if _PLAIN_WORD.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return value.name if isinstance(value, DType) else str(value)


def source_lines(source: Source) -> tuple[ListedLine, ...]:
    """The stack of source lines, innermost first, up to the outermost line of user code if there is one."""
    of_user = [place for place, line in enumerate(source) if is_users(line.file)]
    lines = source[: of_user[-1] + 1] if of_user else source
    return tuple([ListedLine(line.file, line.number, line.text) for line in lines])


def device_type(type: TensorType, layout: Layout = PLAIN) -> DeviceType:
    """The device type of a value in a layout. Only layouts of values with four axes have a name."""
    layout = layout if type.ndim > 1 else PLAIN
    name = layout.value if type.ndim == 4 else "DefaultFormat" if layout is PLAIN else "BatchLast"
    return DeviceType(type.dtype, name, physical_shape(type.shape, layout))


def _describe_operation(node: Node, references: Mapping[Value, str], number: int, own: int) -> Operation:
    inner = {graph.name: f"@{graph.name}.{number}" for graph in node.op.graphs}
    return Operation(
        own,
        f"[CNode]{own}",
        node.op.name,
        tuple([references[x] for x in node.inputs]),
        node.instance,
        tuple([(k, inner.get(str(x)) or attribute_text(x)) for k, x in node.listed_attributes().items()]),
        tuple([x.type for x in node.inputs]),
        tuple([y.type for y in node.outputs]),
        None if node.lowering is None else _describe_device_types(node, node.lowering),
        node.name,
        source_lines(node.source),
    )


def _describe_device_types(node: Node, form: Lowering) -> tuple[tuple[DeviceType, ...], tuple[DeviceType, ...]]:
    pairs = (node.inputs, form.operands), (node.outputs, form.results)
    operands, results = (
        tuple([device_type(x.type, layout) for x, layout in zip(values, chain(layouts, repeat(PLAIN)), strict=False)])
        for values, layouts in pairs
    )
    return operands, results


# A listing as text: the grammar of MindSpore's `.ir` files.

MARGIN = " " * 6


def text(listing: Listing) -> str:
    """The whole file. Equal programs have equal text, independent of process and time."""
    return "\n".join([*_header(listing), *_subgraphs(listing.subgraphs)]) + "\n"


def type_text(type: TensorType | None) -> str:
    """A type without layout.

    >>> from runner import dtype
    >>> type_text(TensorType(dtype.float32, (2, 3)))
    '<Tensor[Float32]x[const vector][2, 3]>'
    """
    return "<null>" if type is None else f"<Tensor[{type.dtype}]x[const vector]{list(type.shape)}>"


def device_type_text(type: DeviceType) -> str:
    """A type with its layout on the device."""
    return f"<{type.dtype}x{type.format}[const vector]{list(type.shape)}>"


def _header(listing: Listing) -> Iterator[str]:
    yield f"#IR entry      : @{listing.subgraphs[0].name}"
    yield "#attrs         :"
    yield from (f"{key} : {value}" for key, value in listing.attributes)
    yield ""
    yield f"#Total params  : {len(listing.parameters)}"
    yield ""
    yield from map(_parameter_line, listing.parameters)
    yield ""


def _parameter_line(parameter: ListedParameter) -> str:
    types = f"{type_text(parameter.type)}  :  {device_type_text(parameter.device_type)}"
    return f"{parameter.reference} : {types}  :  IsWeight:{'true' if parameter.is_weight else 'false'}"


def _subgraphs(subgraphs: Iterable[Subgraph]) -> Iterator[str]:
    subgraphs = tuple(subgraphs)
    yield f"#Total subgraph : {len(subgraphs)}"
    for subgraph in subgraphs:
        yield ""
        yield "subgraph attr:"
        yield f"subgraph @{subgraph.name}({', '.join(subgraph.parameters)}) {{"
        for operation in subgraph.operations:
            yield from operation_lines(operation)
        yield from (f"  Assign({parameter}, {value})" for parameter, value in subgraph.updates)
        yield f"  return({', '.join(subgraph.returned)})"
        yield f"{MARGIN}: ({_types_text(subgraph.returned_types)})"
        yield "}"


def operation_lines(operation: Operation) -> Iterator[str]:
    """The lines of one operation."""
    line = f"  %{operation.number}({operation.name}) = {operation.op}({', '.join(operation.operands)})"
    if operation.instance:
        line += f" {{instance name: {operation.instance}}}"
    if operation.attributes:
        line += f" primitive_attrs: {{{', '.join([f'{key}: {value}' for key, value in operation.attributes])}}}"
    yield line
    yield f"{MARGIN}: ({_types_text(operation.operand_types)}) -> ({_types_text(operation.result_types)})"
    if operation.device_types is not None:
        operands, results = (", ".join(map(device_type_text, values)) for values in operation.device_types)
        yield f"{MARGIN}: ({operands}) -> ({results})"
    yield f"{MARGIN}: ({operation.full_name})"
    for file, number, source in operation.source:
        yield f"{MARGIN}# In file {file}({number})/{source}/"


def _types_text(types: Iterable[TensorType | None]) -> str:
    return ", ".join(map(type_text, types))
