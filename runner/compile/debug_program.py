"""A program whose intermediate values an observer receives; it does not update the parameters."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from runner.compile.onnx.describe import locate_errors
from runner.compile.onnx.lower import lower
from runner.compile.passes import layout_passes, optimize
from runner.compile.passes.simplify import dce
from runner.compile.program import Executable
from runner.core.graph import NO_GRAPHS, Graph, ObservedValue, ValueObserver
from runner.core.lowering import LAST, PLAIN, Layout, with_layouts
from runner.core.operators import Node
from runner.core.trace import trace_path
from runner.core.values import Symbol, Value
from runner.device import Device
from runner.types import TensorType

# Of the results of a part, after which the next part runs: a step of a ResNet has gigabytes.
PART_BYTES = 256 << 20


class DebugProgram:
    """Compile `function` so that the values which `observer` selects are outputs.

    It contains every traced operator, as PyNative mode does: operators have the lowerings of the program of the step,
    but nothing is folded, merged or eliminated. Each path through the branches of the function is a program
    of its own, with the operators that PyNative mode would execute. Raises as `Program`.
    """

    def __init__(
        self,
        function: Callable[..., object],
        types: tuple[TensorType, ...],
        device: Device,
        name: str,
        root: str,
        observer: ValueObserver,
    ) -> None:
        self.types, self.observer = types, observer
        self._compile = partial(_PathProgram, function, types, device, name, root, observer)
        self._paths: dict[tuple[bool, ...], _PathProgram] = {}
        self._last: tuple[bool, ...] = ()
        self._program(())  # so that errors come before the first step

    def __call__(self, step: int, arrays: Sequence[np.ndarray]) -> None:
        """Run one step for the observer. Each value is released after its last use."""
        program, known = self._taken(arrays)
        program.report(step, known)

    def _taken(self, arrays: Sequence[np.ndarray]) -> tuple["_PathProgram", dict[Value, ObservedValue]]:
        """The program of the path that these inputs take, which has run its first part: that of the last step first."""
        while True:
            program = self._program(self._last)
            known, outcomes = program.first(arrays)
            if outcomes == self._last:
                return program, known
            agreed = next((k for k, (a, b) in enumerate(zip(outcomes, self._last, strict=False)) if a != b), None)
            self._last = outcomes if agreed is None else outcomes[: agreed + 1]

    def _program(self, outcomes: tuple[bool, ...]) -> "_PathProgram":
        if outcomes not in self._paths:
            self._paths[outcomes] = self._compile(outcomes)
        return self._paths[outcomes]


class _PathProgram:
    """The program of one path, or of its part up to the first branch that `outcomes` do not decide.

    A long path is several parts: each runs when the values of the one before it have been reported. Only all values of
    a path with branches say whether it is the one that is taken, so it is one part.
    """

    def __init__(
        self,
        function: Callable[..., object],
        types: tuple[TensorType, ...],
        device: Device,
        name: str,
        root: str,
        observer: ValueObserver,
        outcomes: Sequence[bool],
    ) -> None:
        self.types, self.observer, self.owner = types, observer, getattr(function, "__self__", function)
        graph, forks = trace_path(function, types, name, root, outcomes)
        self.graph = optimize(graph, layout_passes(device))
        self.predicates = [fork.predicate for fork in forks]
        layouts = _layouts(self.graph.nodes) if observer.device_layout else {}
        in_order = sorted((*self.graph.nodes, *self.graph.effects), key=lambda node: node.number)
        computed = {y for node in self.graph.nodes for y in node.outputs}
        observed = {x for node in in_order if observer.selects(node) for x in (*node.inputs, *node.outputs)}
        wanted = computed.intersection(observed.union(self.predicates))
        sections = [in_order] if forks else _sections(in_order, wanted)
        self.parts: list[_Part] = []
        for nodes in reversed(sections):
            part = _Part(self.graph, nodes, wanted, observer, layouts, device)
            wanted = wanted.union(x for x in part.inputs if x in computed)
            self.parts.insert(0, part)
        self._last: dict[Value, object] = {}  # what reads a value last: a part, or a node that is reported
        for part in self.parts:
            self._last |= dict.fromkeys(part.inputs, part)
            self._last |= {x: node for node in part.selected for x in (*node.inputs, *node.outputs)}

    def first(self, arrays: Sequence[np.ndarray]) -> tuple[dict[Value, ObservedValue], tuple[bool, ...]]:
        """The values that are known when the first part has run, and the outcomes of the branches."""
        known: dict[Value, ObservedValue] = {}
        known |= {x: ObservedValue(array) for x, array in zip(self.graph.inputs, arrays, strict=True)}
        known |= {x: ObservedValue(array) for x, array in self.graph.constants.items()}
        known |= {x: ObservedValue(parameter.array) for parameter, x in self.graph.parameters.items()}
        self.parts[0].run(known)
        return known, tuple([bool(known[x].array) for x in self.predicates])

    def report(self, step: int, known: dict[Value, ObservedValue]) -> None:
        """Run the other parts and pass the values of a step to the observer; each is released after its last use."""
        self.observer.begin(step, self.types, self.owner)
        for part in self.parts:
            if part is not self.parts[0]:
                part.run(known)
            self._release(known, part, part.inputs)
            for node in part.selected:
                self.observer.operator(step, node, [known[x] for x in node.inputs], [known[y] for y in node.outputs])
                self._release(known, node, {*node.inputs, *node.outputs})
        self.observer.end(step, self.graph)

    def _release(self, known: dict[Value, ObservedValue], reader: object, values: Iterable[Value]) -> None:
        for x in values:
            if self._last[x] is reader:
                del known[x]


class _Part:
    """Successive nodes of a path: those `selected` are reported, and what is `wanted` of them is computed.

    `inputs` are inputs of the path and results of earlier parts.
    """

    def __init__(
        self,
        whole: Graph,
        nodes: Sequence[Node],
        wanted: Collection[Value],
        observer: ValueObserver,
        layouts: Mapping[Value, Layout],
        device: Device,
    ) -> None:
        start = time.perf_counter()
        self.layouts = layouts
        self.selected = [node for node in nodes if observer.selects(node)]
        made = {y for node in nodes for y in node.outputs}
        results = [y for node in nodes for y in node.outputs if y in wanted]
        self.results = tuple(y for y in results if isinstance(y, Symbol))
        inner = tuple(node for node in whole.nodes if made.issuperset(node.outputs))
        graph = dce(replace(whole, nodes=inner, outputs=self.results, updates={}, effects=()))
        inside = made.union(graph.parameters.values(), graph.constants)
        read = dict.fromkeys(x for node in graph.nodes for x in node.inputs if x not in inside)
        self.inputs = tuple(x for x in read if isinstance(x, Symbol))
        graph = replace(graph, inputs=self.inputs)
        self._program: Executable | None = None
        if self.results:
            with locate_errors(graph, NO_GRAPHS):
                model = lower(graph, None, [f"value:{x.name}" for x in self.results], self.layouts)
                self._program = Executable(graph, model, device, start, layouts=self.layouts)

    def run(self, known: dict[Value, ObservedValue]) -> None:
        """Add the results to the known values."""
        if self._program is not None:
            arrays = self._program([_plain(known[x]) for x in self.inputs])
            known |= {
                x: ObservedValue(y, self.layouts.get(x, PLAIN)) for x, y in zip(self.results, arrays, strict=True)
            }


def _sections(nodes: Sequence[Node], wanted: Collection[Value]) -> list[list[Node]]:
    """The nodes, cut where the wanted results since the last cut have PART_BYTES."""
    sections: list[list[Node]] = [[]]
    held = 0
    for node in nodes:
        sections[-1].append(node)
        held += sum(y.type.nbytes for y in node.outputs if y in wanted)
        if held >= PART_BYTES:
            sections.append([])
            held = 0
    return [section for section in sections if section] or [[]]


def _plain(value: ObservedValue) -> np.ndarray:
    """The elements as operands are passed; of results, only those of four axes have another layout."""
    return value.array if value.layout is PLAIN else np.ascontiguousarray(np.moveaxis(value.array, -1, 0))


def _layouts(nodes: Sequence[Node]) -> Mapping[Value, Layout]:
    """The values that are not stored as NCHW: batch last, also for those in tiles, which file formats cannot name."""
    layouts: dict[Value, Layout] = {}
    for node in nodes:
        pairs = with_layouts(node.outputs, node.lowering.results if node.lowering else ())
        layouts.update((y, LAST) for y, layout in pairs if layout is not PLAIN and y.ndim == 4)
    return layouts
