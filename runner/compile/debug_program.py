"""A program whose intermediate values an observer receives; it does not update the parameters."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from runner.compile.onnx.describe import locate_errors
from runner.compile.onnx.lower import lower
from runner.compile.passes import layout_passes, optimize
from runner.compile.passes.simplify import dce
from runner.compile.program import Executable
from runner.core.graph import NO_GRAPHS, ObservedValue, ValueObserver
from runner.core.lowering import LAST, PLAIN, Layout, with_layouts
from runner.core.operators import Node
from runner.core.trace import trace_path
from runner.core.values import Symbol, Value
from runner.device import Device
from runner.types import TensorType


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
        program, values = self._taken(arrays)
        program.report(step, arrays, values)

    def _taken(self, arrays: Sequence[np.ndarray]) -> tuple["_PathProgram", list[np.ndarray]]:
        """The program of the path that these inputs take, and its values: first that of the last step is tried."""
        while True:
            program = self._program(self._last)
            values, outcomes = program.run(arrays)
            if outcomes == self._last:
                return program, values
            agreed = next((k for k, (a, b) in enumerate(zip(outcomes, self._last, strict=False)) if a != b), None)
            self._last = outcomes if agreed is None else outcomes[: agreed + 1]

    def _program(self, outcomes: tuple[bool, ...]) -> "_PathProgram":
        if outcomes not in self._paths:
            self._paths[outcomes] = self._compile(outcomes)
        return self._paths[outcomes]


class _PathProgram:
    """The program of one path, or of its part up to the first branch that `outcomes` do not decide."""

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
        start = time.perf_counter()
        self.types, self.observer, self.owner = types, observer, getattr(function, "__self__", function)
        graph, forks = trace_path(function, types, name, root, outcomes)
        self.graph = optimize(graph, layout_passes(device))
        in_order = sorted((*self.graph.nodes, *self.graph.effects), key=lambda node: node.number)
        self.selected = [node for node in in_order if observer.selects(node)]
        computed = {y for node in self.graph.nodes for y in node.outputs}
        fetched = dict.fromkeys(x for node in self.selected for x in (*node.inputs, *node.outputs) if x in computed)
        self.fetched = tuple(x for x in fetched if isinstance(x, Symbol))
        self.predicates = [fork.predicate for fork in forks]
        self.layouts = _layouts(self.graph.nodes) if observer.device_layout else {}
        self._program: Executable | None = None
        wanted = tuple(dict.fromkeys((*self.fetched, *(x for x in self.predicates if x in computed))))
        self.results = wanted
        if wanted:
            graph = dce(replace(self.graph, outputs=wanted, updates={}, effects=()))
            with locate_errors(graph, NO_GRAPHS):
                model = lower(graph, None, [f"value:{x.name}" for x in wanted], self.layouts)
                self._program = Executable(graph, model, device, start, layouts=self.layouts)

    def run(self, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], tuple[bool, ...]]:
        """All results, and the outcomes of the branches."""
        values = self._program(arrays) if self._program else []
        known: dict[Value, np.ndarray] = dict(zip(self.graph.inputs, arrays, strict=True))
        known |= {x: parameter.array for parameter, x in self.graph.parameters.items()}
        known |= dict(zip(self.results, values, strict=True))
        return values, tuple([bool(known[x]) for x in self.predicates])

    def report(self, step: int, arrays: Sequence[np.ndarray], values: list[np.ndarray]) -> None:
        """Pass the values of a step to the observer; `values` is emptied."""
        self.observer.begin(step, self.types, self.owner)
        known: dict[Value, ObservedValue] = {
            x: ObservedValue(array) for x, array in zip(self.graph.inputs, arrays, strict=True)
        }
        known |= {x: ObservedValue(array) for x, array in self.graph.constants.items()}
        known |= {x: ObservedValue(parameter.array) for parameter, x in self.graph.parameters.items()}
        known |= {x: ObservedValue(y, self.layouts.get(x, PLAIN)) for x, y in zip(self.results, values, strict=True)}
        values.clear()
        last = {x: node for node in self.selected for x in (*node.inputs, *node.outputs)}
        for node in self.selected:
            self.observer.operator(step, node, [known[x] for x in node.inputs], [known[y] for y in node.outputs])
            for x in {*node.inputs, *node.outputs}:
                if last[x] is node:
                    del known[x]
        self.observer.end(step, self.graph)


def _layouts(nodes: Sequence[Node]) -> Mapping[Value, Layout]:
    """The values that are not stored as NCHW: batch last, also for those in tiles, which file formats cannot name."""
    layouts: dict[Value, Layout] = {}
    for node in nodes:
        pairs = with_layouts(node.outputs, node.lowering.results if node.lowering else ())
        layouts.update((y, LAST) for y, layout in pairs if layout is not PLAIN and y.ndim == 4)
    return layouts
