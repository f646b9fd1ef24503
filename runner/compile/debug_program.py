"""A program whose intermediate values an observer receives; it does not update the parameters."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from runner.compile.onnx.locate_error import locate_errors
from runner.compile.onnx.lower import lower
from runner.compile.passes import layout_passes, optimize
from runner.compile.passes.dce import dce
from runner.compile.program import Executable
from runner.core.lowering import LAST, PLAIN, Layout, with_layouts
from runner.core.observers import NO_GRAPHS, ObservedValue, ValueObserver
from runner.core.primitive import Node
from runner.core.tracer import trace
from runner.core.value import Symbol, Value
from runner.device import Device
from runner.types import TensorType


class DebugProgram:
    """Compile `function` so that the values which `observer` selects are outputs.

    It contains every traced operator, as PyNative mode does: operators are lowered in the forms that the program of the
    step uses, but nothing is folded, merged or eliminated. Raises as `Program`.
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
        self.graph = optimize(graph, layout_passes(device))
        in_order = sorted((*self.graph.nodes, *self.graph.effects), key=lambda node: node.number)
        self.selected = [node for node in in_order if observer.selects(node)]
        computed = {y for node in self.graph.nodes for y in node.outputs}
        fetched = dict.fromkeys(x for node in self.selected for x in (*node.inputs, *node.outputs) if x in computed)
        self.fetched = tuple(x for x in fetched if isinstance(x, Symbol))
        self.layouts = _layouts(self.graph.nodes) if observer.device_layout else {}
        self._program: Executable | None = None
        if self.fetched:
            graph = dce(replace(self.graph, outputs=self.fetched, updates={}, effects=()))
            with locate_errors(graph, NO_GRAPHS):
                model = lower(graph, None, [f"value:{x.name}" for x in self.fetched], self.layouts)
                self._program = Executable(graph, model, device, start, layouts=self.layouts)

    def __call__(self, step: int, arrays: Sequence[np.ndarray]) -> None:
        """Run one step for the observer. Each value is released after its last use."""
        self.observer.begin(step, self.types)
        known: dict[Value, ObservedValue] = {
            x: ObservedValue(array) for x, array in zip(self.graph.inputs, arrays, strict=True)
        }
        known |= {x: ObservedValue(array) for x, array in self.graph.constants.items()}
        known |= {x: ObservedValue(parameter.data) for parameter, x in self.graph.parameters.items()}
        outputs = self._program(arrays) if self._program else []
        known |= {x: ObservedValue(y, self.layouts.get(x, PLAIN)) for x, y in zip(self.fetched, outputs, strict=True)}
        outputs.clear()
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
        pairs = with_layouts(node.outputs, node.form.results if node.form else ())
        layouts.update((y, LAST) for y, layout in pairs if layout is not PLAIN and y.ndim == 4)
    return layouts
