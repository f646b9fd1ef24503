"""A listing as a Graphviz drawing: a table for each operation, a frame for each cell.

The table of an operation has a port for each computed operand, its name, weights and constants, attributes and results.
A cell that is called several times has a frame for each call. In graphs with more than `MAX_OPERATIONS` operations, a
cell is one box that counts its operators by type.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from html import escape
from itertools import count, groupby

from runner.observe.graph.listing import Listing, Operation, Subgraph

MAX_OPERATIONS = 120
MAX_BOXES = 80
Scope = tuple[str, ...]
_NUMBER = re.compile(r"-op(\d+)")

_HEAD = """digraph runner {
compound=true
rankdir=TB
ranksep=0.3
nodesep=0.15
fontname="Helvetica"
node [fontname="Helvetica", fontsize=10, shape=plaintext]
edge [arrowhead=vee, arrowsize=0.6, color="#555555"]"""
_FRAME = 'style="rounded,filled" color="#bbbbbb" fillcolor="{}" fontsize=11'
_TABLE = '<table port="core" border="0" cellborder="1" cellspacing="0" cellpadding="3" color="#777777">{}</table>'
_TINT = "#00000006"  # nearly transparent: nested frames get darker
_TINTS = {"Default": "#0000ff06", "Gradients": "#ff000008"}
_INPUT = "shape=octagon, style=filled, fillcolor=palegreen"


def dot(listing: Listing) -> str:
    """The text of a `.dot` file."""
    parts = [_HEAD, f'label="{_quoted(listing.subgraphs[0].name)}"']
    frames = count()
    for number, subgraph in enumerate(listing.subgraphs):
        drawing = _Boxes if len(subgraph.operations) > MAX_OPERATIONS else _Operations
        parts += drawing(listing, subgraph, f"g{number}").lines(frames)
    return "\n".join([*parts, "}", ""])


def scope_of(operation: Operation) -> Scope:
    """The cells around an operation, the outermost first."""
    return tuple(operation.full_name.split("/")[:-1])


class _Frames:
    """Nested frames in the order of the operations; a frame that contains only another frame is merged with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inner: list[_Frames | str] = []

    def within(self, scope: Scope) -> "_Frames":
        """The frame of a scope: the last one if it has this scope, otherwise a new one."""
        frame = self
        for name in scope:
            last = frame.inner[-1] if frame.inner else None
            if not isinstance(last, _Frames) or last.name != name:
                last = _Frames(name)
                frame.inner.append(last)
            frame = last
        return frame

    def lines(self, number: Iterator[int]) -> Iterator[str]:
        """The frame and its contents."""
        frame, label = self, self.name
        while len(frame.inner) == 1 and isinstance(only := frame.inner[0], _Frames):
            frame, label = only, f"{label}/{only.name}"
        yield f"subgraph cluster_{next(number)} {{"
        yield f'label="{_quoted(label)}" {_FRAME.format(_TINTS.get(self.name, _TINT))}'
        yield from frame.contents(number)
        yield "}"

    def contents(self, number: Iterator[int]) -> Iterator[str]:
        """The nodes and frames inside."""
        for inner in self.inner:
            yield from [inner] if isinstance(inner, str) else inner.lines(number)


class _Drawing:
    """Base of both kinds of drawings: nodes in frames, and edges between them."""

    def __init__(self, listing: Listing, subgraph: Subgraph, prefix: str) -> None:
        self.subgraph, self.prefix = subgraph, prefix
        self.parameters = {p.reference: p for p in listing.parameters}
        self.producers = {result: operation for operation in subgraph.operations for result in operation.results}
        self.frames = _Frames("")
        self.outside: list[str] = []
        self.edges: list[str] = []

    def lines(self, number: Iterator[int]) -> Iterator[str]:
        """The lines of nodes in their frames, then of edges."""
        self.draw()
        target = self.id("return")
        self.edges += [f"{self.source(reference)} -> {target}" for reference in self.subgraph.returned]
        yield f'{target} [shape=oval, label="return"]'
        yield from self.frames.contents(number)
        yield from dict.fromkeys((*self.outside, *self.edges))

    def draw(self) -> None:
        """Add all nodes to frames, and all edges."""
        raise NotImplementedError

    def output(self, operation: Operation) -> str:
        """The start of edges from the results of an operation."""
        raise NotImplementedError

    def id(self, name: str) -> str:
        """The quoted name of a node."""
        return f'"{_quoted(f"{self.prefix}/{name}")}"'

    def is_drawn(self, reference: str) -> bool:
        """Whether a value has edges: it is computed, or data. Weights and constants are listed in tables."""
        parameter = self.parameters.get(reference)
        return reference in self.producers or (parameter is not None and not parameter.is_weight)

    def source(self, reference: str) -> str:
        """The start of edges from a value."""
        if reference in self.producers:
            return self.output(self.producers[reference])
        name = self.id(reference)
        self.outside.append(f'{name} [{_INPUT}, label="{_quoted(self.text(reference, chr(10)))}"]')
        return name

    def text(self, reference: str, between: str = " ") -> str:
        """A parameter by name and type, a constant by value."""
        parameter = self.parameters.get(reference)
        return reference if parameter is None else f"{_name(reference)}{between}{parameter.type}"


class _Operations(_Drawing):
    """A table for every operation."""

    def draw(self) -> None:
        self.updated = {value: _name(parameter) for parameter, value in self.subgraph.updates}
        for operation in sorted(self.subgraph.operations, key=_trace_order):
            name = self.id(str(operation.number))
            self.frames.within(scope_of(operation)).inner.append(f"{name} [label=<{self.table(operation)}>]")
            for k, reference in enumerate(operation.operands):
                if self.is_drawn(reference):
                    self.edges.append(f"{self.source(reference)} -> {name}:{k}:n")

    def output(self, operation: Operation) -> str:
        return f"{self.id(str(operation.number))}:core"

    def table(self, operation: Operation) -> str:
        """Ports, name, weights and constants, attributes, results."""
        drawn = [k for k, reference in enumerate(operation.operands) if self.is_drawn(reference)]
        wide = f'colspan="{max(1, len(drawn))}"'
        rows = ["".join(_cell(str(k), f'port="{k}"') for k in drawn)] if drawn else []
        rows.append(_cell(f"<b>{escape(operation.op)}</b>", wide, "cornsilk", str))
        for k in sorted({*range(len(operation.operands))} - {*drawn}):
            reference = operation.operands[k]
            rows.append(_cell(self.text(reference), wide, "paleturquoise" if reference[0] == "%" else "lavender"))
        if operation.attributes:
            rows.append(_cell("\n".join(f"{key} {value}" for key, value in operation.attributes), wide))
        for k, (reference, type) in enumerate(zip(operation.results, operation.result_types, strict=True)):
            layout = f"\n{operation.device_types[1][k].format}" if operation.device_types else ""
            new = f"\nnew {self.updated[reference]}" if reference in self.updated else ""
            rows.append(_cell(f"{reference} {type or ''}{layout}{new}", wide))
        return _TABLE.format("".join(f"<tr>{row}</tr>" for row in rows))


class _Boxes(_Drawing):
    """A box for every call of a cell, down to the depth with at most `MAX_BOXES` boxes."""

    def draw(self) -> None:
        operations = sorted(self.subgraph.operations, key=_trace_order)
        depths = range(1, max(len(scope_of(operation)) for operation in operations) + 1)
        calls = [_calls(operations, depth) for depth in depths]
        chosen = max((boxes for boxes in calls if len(boxes) <= MAX_BOXES), key=len, default=calls[0])
        self.boxes = {
            o.number: self.id(f"{k}/{'/'.join(box)}") for k, (box, inside) in enumerate(chosen) for o in inside
        }
        for box, inside in chosen:
            target = self.output(inside[0])
            self.frames.within(box[:-1]).inner.append(f"{target} [label=<{_box(box[-1], inside)}>]")
            used = dict.fromkeys(x for operation in inside for x in operation.operands if self.is_drawn(x))
            self.edges += [f"{source} -> {target}" for source in map(self.source, used) if source != target]

    def output(self, operation: Operation) -> str:
        return self.boxes[operation.number]


def _calls(operations: list[Operation], depth: int) -> list[tuple[Scope, list[Operation]]]:
    """Groups of adjacent operations whose scopes agree in the first `depth` names."""
    return [(box, list(inside)) for box, inside in groupby(operations, lambda o: scope_of(o)[:depth])]


def _trace_order(operation: Operation) -> tuple[bool, int]:
    """Sort key: the position in the trace, so that calls of cells are contiguous; the batch of a sink comes first."""
    found = _NUMBER.search(operation.full_name)
    return not operation.full_name.startswith("Dataset/"), int(found[1]) if found else operation.number


def _box(name: str, operations: list[Operation]) -> str:
    """The name of a cell, its operators by frequency, and the type of its last result."""
    counts = Counter(operation.op for operation in operations).most_common()
    rows = [_cell(f"<b>{escape(name)}</b>", "", "cornsilk", str)]
    rows.append(_cell("\n".join(f"{op} \N{MULTIPLICATION SIGN}{count}" for op, count in counts)))
    rows += [_cell(str(type)) for type in operations[-1].result_types[:1]]
    return _TABLE.format("".join(f"<tr>{row}</tr>" for row in rows))


def _cell(text: str, attributes: str = "", colour: str = "white", markup: Callable[[str], str] = escape) -> str:
    return f'<td {attributes} bgcolor="{colour}">{markup(text).replace(chr(10), "<br/>")}</td>'


def _name(parameter: str) -> str:
    """The name in a reference: `conv1.weight` in `%para3_conv1.weight`."""
    return parameter.partition("_")[2]


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
