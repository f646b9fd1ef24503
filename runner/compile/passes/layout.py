"""Layouts: the memory layout of every value on the CPU, and the form in which every operator is lowered.

Convolutions and pools run about twice as fast when the batch is the innermost axis (BENCHMARKS.md); most other
operators support both layouts. So one walk in graph order is enough: each operator gets the form that converts the
fewest elements, and operators without a preference follow those that have one. Tiles pay off only if the producer
writes them, so a walk backwards first finds the values that should be tiled: operands of pools, and of elementwise
operators before pools.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from runner.compile.onnx.float16 import operand_types
from runner.core.graph import Graph, Pass
from runner.core.lowering import PLAIN, TILED, Form, Layout, with_layouts
from runner.core.operators import Node
from runner.core.values import Value
from runner.device import Device


def layout_for(device: Device) -> Pass:
    """The pass that chooses the form of every node: that of the tuning where there is one, else the best by rule.

    Operands in another layout than a form requires are converted before it.
    """
    tuned = dict(device.tuning.forms)

    def layout(graph: Graph) -> Graph:
        candidates = [(node, _allowed(node, device, tuned)) for node in graph.nodes]
        assignment = _Assignment(_preferably_tiled(candidates))
        return replace(graph, nodes=tuple(assignment.place(node, forms) for node, forms in candidates))

    return layout


layout = layout_for(Device())


def signature(node: Node) -> str:
    """The operator with its attributes and operand types. Nodes with the same signature have the same form."""
    return f"{node.op!r} of {', '.join(map(str, operand_types(node)))}"


def forms_of(node: Node, device: Device) -> tuple[Form, ...]:
    """The forms that a node supports and the device allows, the best one first."""
    forms = node.op.forms(*operand_types(node))
    return tuple(form for form in forms if not form.winograd or device.winograd == "auto")


def _allowed(node: Node, device: Device, tuned: Mapping[str, str]) -> tuple[Form, ...]:
    forms = forms_of(node, device)
    name = tuned.get(signature(node)) if tuned else None
    return tuple(form for form in forms if str(form) == name) or forms


def _preferably_tiled(candidates: Sequence[tuple[Node, tuple[Form, ...]]]) -> set[Value]:
    """The values that should be tiled."""
    tiled: set[Value] = set()
    for node, forms in reversed(candidates):
        required = not tiled.isdisjoint(node.outputs)
        form = next((f for f in forms if TILED in f.results), forms[0]) if required else forms[0]
        tiled.update(x for x, layout in with_layouts(node.inputs, form.operands) if layout is TILED)
    return tiled


class _Assignment:
    """The layouts in which each value is available so far: that of its producer, and those it was converted to."""

    def __init__(self, tiled: set[Value]) -> None:
        self.tiled = tiled
        self.layouts: dict[Value, set[Layout]] = {}

    def place(self, node: Node, forms: Sequence[Form]) -> Node:
        best = min(forms, key=lambda form: self.cost(node, form))
        for x, layout in self.conversions(node, best):
            self.layouts.setdefault(x, {PLAIN}).add(layout)
        self.layouts.update((y, {layout}) for y, layout in with_layouts(node.outputs, best.results))
        return replace(node, form=best)

    def cost(self, node: Node, form: Form) -> int:
        """The number of elements that are copied because of a form, before this node or later."""
        later = [y for y, layout in with_layouts(node.outputs, form.results) if y in self.tiled and layout is not TILED]
        return form.penalty + sum(x.size for x, _ in self.conversions(node, form)) + sum(y.size for y in later)

    def conversions(self, node: Node, form: Form) -> list[tuple[Value, Layout]]:
        """The operands that must be converted for this form, with their new layout."""
        pairs = with_layouts(node.inputs, form.operands)
        return [(x, layout) for x, layout in pairs if x.ndim > 1 and layout not in self.layouts.get(x, {PLAIN})]
