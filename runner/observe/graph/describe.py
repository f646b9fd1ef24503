"""Listings of graphs. Operations keep their numbers from the trace, so stages of one graph can be compared."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import chain, count, repeat
from typing import Any

import numpy as np

from runner.core.graph import Graph
from runner.core.lowering import PLAIN, Form, Layout, physical_shape
from runner.core.operators import Node
from runner.core.source import Source, is_users
from runner.core.values import Value
from runner.dtype import DType
from runner.observe.graph.listing import (
    DeviceType,
    ListedLine,
    ListedParameter,
    Listing,
    Operation,
    Subgraph,
    parameter_reference,
    result_references,
)
from runner.types import TensorType

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
    entry = _subgraph(graph, number, (), references)
    return Listing(tuple((attributes or {}).items()), tuple(parameters), tuple(entry))


def _subgraph(
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
            inner += _subgraph(part, number, tuple(given.values()), given)
        known.update(zip(node.outputs, result_references(numbers[node], len(node.outputs)), strict=True))
    entry = Subgraph(
        f"{graph.name}.{number}",
        parameters,
        tuple([_operation(node, known, number, numbers[node]) for node in (*graph.nodes, *graph.effects)]),
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

    >>> attribute_text((True, 2, "same", "a, b", None))
    '(true, 2, same, "a, b", None)'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(attribute_text, value))})"
    if isinstance(value, str):
        return value if _PLAIN_WORD.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return value.name if isinstance(value, DType) else str(value)


def source_lines(source: Source) -> tuple[ListedLine, ...]:
    """The stack of source lines, innermost first, up to the outermost line of user code if there is one."""
    of_user = [place for place, line in enumerate(source) if is_users(line.file)]
    lines = source[: of_user[-1] + 1] if of_user else source
    return tuple([ListedLine(line.file, line.number, line.text) for line in lines])


def instance_name(scope: str) -> str:
    """The attribute name of the innermost cell of a scope; empty at the root.

    >>> instance_name("Gradients/Default/network-LeNet5/conv1-Conv2d/gradConv2D"), instance_name("Default")
    ('conv1', '')
    """
    parts = scope.split("/")
    if parts[0] == "Gradients":
        parts = parts[1:-1]
    return parts[-1].partition("-")[0] if len(parts) > 1 else ""


def device_type(type: TensorType, layout: Layout = PLAIN) -> DeviceType:
    """The device type of a value in a layout. Only layouts of values with four axes have a name."""
    layout = layout if type.ndim > 1 else PLAIN
    name = layout.value if type.ndim == 4 else "DefaultFormat" if layout is PLAIN else "BatchLast"
    return DeviceType(type.dtype, name, physical_shape(type.shape, layout))


def _operation(node: Node, references: Mapping[Value, str], number: int, own: int) -> Operation:
    inner = {graph.name: f"@{graph.name}.{number}" for graph in node.op.graphs}
    return Operation(
        own,
        f"[CNode]{own}",
        node.op.name,
        tuple([references[x] for x in node.inputs]),
        instance_name(node.scope),
        tuple([(k, inner.get(str(x)) or attribute_text(x)) for k, x in node.op.attributes().items()]),
        tuple([x.type for x in node.inputs]),
        tuple([y.type for y in node.outputs]),
        None if node.form is None else _device_types(node, node.form),
        node.name,
        source_lines(node.source),
    )


def _device_types(node: Node, form: Form) -> tuple[tuple[DeviceType, ...], tuple[DeviceType, ...]]:
    pairs = (node.inputs, form.operands), (node.outputs, form.results)
    operands, results = (
        tuple([device_type(x.type, layout) for x, layout in zip(values, chain(layouts, repeat(PLAIN)), strict=False)])
        for values, layouts in pairs
    )
    return operands, results
