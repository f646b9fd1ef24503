"""A graph as a listing. Numbers of operations are those of the trace: two stages of one graph can be compared."""

import json
import re
from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import Any

import numpy as np

from runner.core.graph import Graph
from runner.core.lowering import PLAIN, Form, Layout, physical_shape
from runner.core.primitive import Node
from runner.core.source import PACKAGE, Source
from runner.core.value import Symbol, Value
from runner.dtype import DType
from runner.observe.graph.listing import (
    Held,
    Listing,
    Operation,
    Parameter,
    SourceLine,
    Subgraph,
    parameter_of,
    results_of,
)
from runner.types import TensorType

SHOWN = 8  # elements of a constant that are printed
_PLAIN_WORD = re.compile(r"[\w.+/-]+")


def describe(graph: Graph, number: int = 0, attributes: Mapping[str, str] | None = None) -> Listing:
    """The listing of a graph, which is called `@{name}.{number}`."""
    parameters = _parameters(graph)
    references: dict[Value, str] = dict(zip(_given(graph), (p.reference for p in parameters), strict=True))
    for symbol, array in graph.constants.items():
        references[symbol] = constant_text(symbol.name, array)
    for node in graph.nodes:  # effects make nothing
        references.update(zip(node.outputs, results_of(node.number, len(node.outputs)), strict=True))
    subgraph = Subgraph(
        f"{graph.name}.{number}",
        (),
        tuple([_operation(node, references) for node in (*graph.nodes, *graph.effects)]),
        tuple([(references[graph.parameters[p]], references[s]) for p, s in graph.updates.items()]),
        tuple([references[s] for s in graph.outputs]),
        tuple([s.type for s in graph.outputs]),
    )
    return Listing(tuple((attributes or {}).items()), parameters, (subgraph,))


def constant_text(name: str, array: np.ndarray) -> str:
    """A constant as an operand: its elements where they fit a line, else also its name.

    >>> constant_text("cst1", np.float32([0.5, 2])), constant_text("cst2", np.zeros((9, 9)))
    ('Float32[2]{0.5, 2.0}', 'cst2:Float64[9, 9]{0.0, ...}')
    """
    kind = TensorType.of(array)
    if array.size <= SHOWN:
        return f"{kind}{{{', '.join(map(str, array.ravel()))}}}"
    first = array.flat[0]
    return f"{name}:{kind}{{{f'{first}, ...' if (array == first).all() else '...'}}}"


def attribute_text(value: Any) -> str:
    """An attribute as it is printed; text that could be mistaken for something else stands in quotes.

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


def source_lines(source: Source) -> tuple[SourceLine, ...]:
    """The stack of lines, innermost first; it ends with the outermost one of the user, where there is one."""
    users = [place for place, line in enumerate(source) if not line.file.startswith(PACKAGE)]
    shown = source[: users[-1] + 1] if users else source
    return tuple([SourceLine(line.file, line.number, line.text) for line in shown])


def instance_of(scope: str) -> str:
    """The attribute that holds the innermost cell of a scope.

    >>> instance_of("Gradients/Default/network-LeNet5/conv1-Conv2d/gradConv2D"), instance_of("Default")
    ('conv1', '')
    """
    parts = scope.split("/")
    if parts[0] == "Gradients":
        parts = parts[1:-1]
    return parts[-1].partition("-")[0] if len(parts) > 1 else ""


def _given(graph: Graph) -> Iterable[Symbol]:
    return (*graph.inputs, *graph.parameters.values())


def _parameters(graph: Graph) -> tuple[Parameter, ...]:
    return tuple(
        [
            Parameter(parameter_of(k, s.name), s.type, held(s.type), k > len(graph.inputs))
            for k, s in enumerate(_given(graph), 1)
        ]
    )


def held(type: TensorType, layout: Layout = PLAIN) -> Held:
    """How a value of that type lies in a layout; only four axes have names."""
    layout = layout if type.ndim > 1 else PLAIN
    name = layout.value if type.ndim == 4 else "DefaultFormat" if layout is PLAIN else "BatchLast"
    return Held(type.dtype, name, physical_shape(type.shape, layout))


def _operation(node: Node, references: Mapping[Value, str]) -> Operation:
    return Operation(
        node.number,
        f"[CNode]{node.number}",
        node.op.name,
        tuple([references[x] for x in node.inputs]),
        instance_of(node.scope),
        tuple([(name, attribute_text(value)) for name, value in node.op.attributes().items()]),
        tuple([x.type for x in node.inputs]),
        tuple([y.type for y in node.outputs]),
        None if node.form is None else _held(node, node.form),
        node.name,
        source_lines(node.source),
    )


def _held(node: Node, form: Form) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
    pairs = (node.inputs, form.operands), (node.outputs, form.results)
    operands, results = (
        tuple([held(x.type, lies) for x, lies in zip(values, chain(layouts, repeat(PLAIN)), strict=False)])
        for values, layouts in pairs
    )
    return operands, results
