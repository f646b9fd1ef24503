"""A second way to run a graph: for somebody who looks at its values, and without any effect on the parameters."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat

import numpy as np

from runner.compile.onnx.locate_error import at_home
from runner.compile.onnx.lower import lower
from runner.compile.passes import optimize, placing
from runner.compile.passes.dce import dce
from runner.compile.program import Executable
from runner.core.lowering import LAST, PLAIN, Layout
from runner.core.observers import NO_GRAPHS, ObservedValue, ValueObserver
from runner.core.primitive import Node
from runner.core.tracer import trace
from runner.core.value import Symbol, Value
from runner.device import Device
from runner.types import TensorType


class DebugProgram:
    """Compile `function` so that the values which an observer chooses come out of it.

    Every operator that was applied is there, as in PyNative mode: operators are lowered in the forms in which the
    program of the step has them, but nothing is folded, merged or left out. Raises as `Program`.
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
        start = time.perf_counter()
        self.types, self.observer = types, observer
        graph = trace(function, types, name, root)
        self.graph = optimize(graph, placing(device))
        in_order = sorted((*self.graph.nodes, *self.graph.effects), key=lambda node: node.number)
        self.chosen = [node for node in in_order if observer.selects(node)]
        made = {y for node in self.graph.nodes for y in node.outputs}
        wanted = dict.fromkeys(x for node in self.chosen for x in (*node.inputs, *node.outputs) if x in made)
        self.wanted = tuple(x for x in wanted if isinstance(x, Symbol))
        self.ways = _ways(self.graph.nodes) if observer.device_layout else {}
        self._program: Executable | None = None
        if self.wanted:
            seen = dce(replace(self.graph, outputs=self.wanted, updates={}, effects=()))
            inputs, outputs = [f"input{k}" for k in range(len(types))], [f"value:{x.name}" for x in self.wanted]
            with at_home(seen, NO_GRAPHS):
                self._program = Executable(seen, lower(seen, inputs, outputs, self.ways), device, start, ways=self.ways)

    def __call__(self, step: int, arrays: Sequence[np.ndarray]) -> None:
        """Show the observer one step. Each value is let go of when it was shown for the last time."""
        self.observer.begin(step, self.types)
        known: dict[Value, ObservedValue] = {
            x: ObservedValue(array) for x, array in zip(self.graph.inputs, arrays, strict=True)
        }
        known |= {x: ObservedValue(array) for x, array in self.graph.constants.items()}
        known |= {x: ObservedValue(parameter.data) for parameter, x in self.graph.parameters.items()}
        made = self._program(arrays) if self._program else []
        known |= {x: ObservedValue(y, self.ways.get(x, PLAIN)) for x, y in zip(self.wanted, made, strict=True)}
        made.clear()
        last = {x: node for node in self.chosen for x in (*node.inputs, *node.outputs)}
        for node in self.chosen:
            self.observer.operator(step, node, [known[x] for x in node.inputs], [known[y] for y in node.outputs])
            for x in {*node.inputs, *node.outputs}:
                if last[x] is node:
                    del known[x]
        self.observer.end(step, self.graph)


def _ways(nodes: Sequence[Node]) -> Mapping[Value, Layout]:
    """The values that lie batch last; tiles, which have no name elsewhere, are shown that way too."""
    lies: dict[Value, Layout] = {}
    for node in nodes:
        results = node.form.results if node.form else ()
        pairs = zip(node.outputs, chain(results, repeat(PLAIN)), strict=False)
        lies.update((y, LAST) for y, layout in pairs if layout is not PLAIN and y.ndim == 4)
    return lies
